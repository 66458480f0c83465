package dev

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// script is a shell script that notes its numbers in a file.
func script(t *testing.T, text string) (d *supervisedProgram, said *buffer, pids func() []string) {
	t.Helper()
	dir := t.TempDir()
	program(t, dir+"/program", "echo $$ >>"+dir+"/pids\n"+text)
	said = &buffer{}
	d = &supervisedProgram{
		command: func() *exec.Cmd { return exec.Command(dir + "/program") },
		say:     func(what string) { _, _ = said.Write([]byte(what + "\n")) },
		backOff: func(time.Duration) time.Duration { return 0 },
	}
	return d, said, func() []string {
		text, err := os.ReadFile(dir + "/pids")
		if err != nil {
			return nil
		}
		return strings.Fields(string(text))
	}
}

func alive(pid string) bool { return there(filepath.Join(procDir, pid)) }

func TestADaemonThatIsKilledIsStartedAgain(t *testing.T) {
	d, said, pids := script(t, "while :; do sleep 0.02; done")
	d.start()
	await(t, "the first", func() bool { return len(pids()) == 1 })
	first, err := identify(procDir, atoi(t, pids()[0]))
	must(t, err)
	must(t, first.kill(procDir))
	await(t, "the second", func() bool { return len(pids()) == 2 })
	<-d.failed()
	if err := d.err(); err == nil || err.Error() != "program has ended: signal: killed" {
		t.Errorf("the first end: %v", err)
	}
	d.close()
	if alive(pids()[1]) || len(pids()) != 2 {
		t.Errorf("%v were started, and the last is there: %v", pids(), alive(pids()[1]))
	}
	if got := said.String(); got != "program has ended: signal: killed; starting it again in 0s\n" {
		t.Errorf("it says %q", got)
	}
}

func TestADaemonThatCannotStartIsReportedOf(t *testing.T) {
	said := &buffer{}
	d := &supervisedProgram{
		command: func() *exec.Cmd { return exec.Command("/nowhere/containerd") },
		say:     func(what string) { _, _ = said.Write([]byte(what + "\n")) },
	}
	d.start()
	<-d.failed()
	await(t, "its back-off", func() bool { return strings.Contains(said.String(), "starting it again in 250ms") })
	d.close()
	if err := d.err(); err == nil || !strings.HasPrefix(err.Error(), "containerd does not start: ") {
		t.Errorf("%v", err)
	}
}

func TestADaemonThatEndsByItself(t *testing.T) {
	d, _, pids := script(t, "exit 3")
	d.start()
	await(t, "the third", func() bool { return len(pids()) >= 3 })
	d.close()
	if err := d.err(); err == nil || err.Error() != "program has ended: exit status 3" {
		t.Errorf("%v", err)
	}
	if got := endOfProcess("x", nil); got.Error() != "x has ended" {
		t.Errorf("%v", got)
	}
}

func TestBackOffDoublesUntilALongLife(t *testing.T) {
	d := &delays{}
	var got []time.Duration
	for _, ran := range []time.Duration{0, 0, 0, 0, 0, 0, 0, longLife, 0} {
		got = append(got, d.after(ran))
	}
	const ms = time.Millisecond
	if want := []time.Duration{250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 8000 * ms, 10000 * ms, 250 * ms,
		500 * ms}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// The signal that asks must be the one that lets containerd end in order.
func TestADaemonIsAskedToEnd(t *testing.T) {
	d, _, pids := script(t, `trap 'echo asked >>$(dirname $0)/pids; exit 0' TERM; while :; do sleep 0.02; done`)
	d.start()
	await(t, "its start", func() bool { return len(pids()) == 1 })
	awaitTrap(t, atoi(t, pids()[0]))
	d.close()
	if got := pids(); len(got) != 2 || got[1] != "asked" {
		t.Errorf("%q", got)
	}
}

// awaitTrap waits until the process catches SIGTERM (proc_pid_status(5), SigCgt).
func awaitTrap(t *testing.T, pid int) {
	t.Helper()
	await(t, "its trap", func() bool {
		_, caught, _ := strings.Cut(read(t, filepath.Join(procDir, itoa(pid), "status")), "SigCgt:\t")
		mask := parseHex(t, strings.Fields(caught)[0])
		return mask&(1<<(uint(syscall.SIGTERM)-1)) != 0
	})
}
