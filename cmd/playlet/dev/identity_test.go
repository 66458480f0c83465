package dev

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// sleeper is a process to be killed.
type sleeper struct {
	cmd  *exec.Cmd
	pid  string
	done chan struct{}
}

func startSleep(t *testing.T) *sleeper {
	t.Helper()
	s := &sleeper{cmd: exec.Command("sleep", "1000"), done: make(chan struct{})}
	must(t, s.cmd.Start())
	s.pid = strconv.Itoa(s.cmd.Process.Pid)
	// Start returns once the kernel has closed the descriptors of the old program. The arguments of the new one follow later.
	await(t, "the arguments of sleep", func() bool { return read(t, filepath.Join(procDir, s.pid, "cmdline")) != "" })
	go func() {
		_ = s.cmd.Wait() // killed
		close(s.done)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // it has usually ended
		<-s.done
	})
	return s
}

func (s *sleeper) hasEnded() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

func (s *sleeper) ended(t *testing.T) {
	t.Helper()
	await(t, "the end of "+s.pid, s.hasEnded)
}

func TestOnlyThatVeryProcessIsKilled(t *testing.T) {
	s := startSleep(t)
	this, err := identify(procDir, s.cmd.Process.Pid)
	must(t, err)
	if this.Command != "sleep 1000" || this.Started == 0 {
		t.Errorf("it is %+v", this)
	}
	for _, another := range []Identity{
		{},
		{this.PID, this.Started + 1, this.Command},
		{this.PID, this.Started, "playlet dev init"},
	} {
		must(t, another.kill(procDir))
		if runs, err := another.runs(procDir); runs || err != nil {
			t.Errorf("%+v runs: %v, %v", another, runs, err)
		}
	}
	if runs, err := this.runs(procDir); !runs || err != nil || s.hasEnded() {
		t.Fatalf("it runs: %v, %v", runs, err)
	}
	must(t, this.kill(procDir))
	s.ended(t)
	must(t, this.kill(procDir))
}

func TestStartTime(t *testing.T) {
	const rest = " S 1 7 7 0 -1 4194304 95 0 0 0 0 0 0 0 20 0 1 0 4711 3256320 0"
	for _, name := range []string{"sleep", "a b", "a) S 1 (b", ")"} {
		got, err := startTime("7 (" + name + ")" + rest)
		if err != nil || got != 4711 {
			t.Errorf("%q: %d, %v", name, got, err)
		}
	}
	for _, nonsense := range []string{"", "7 (sleep", "7 (sleep) S 1",
		fmt.Sprint("7 (x)", " S 1 7 7 0 -1 4194304 95 0 0 0 0 0 0 0 20 0 1 0 x 3")} {
		if got, err := startTime(nonsense); err == nil {
			t.Errorf("%q gives %d", nonsense, got)
		}
	}
}
