package devimages

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestPauseEndsOnSignals(t *testing.T) {
	everyBuild(t, func(t *testing.T, b programSet) {
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			r := start(t, b.command(Pause))
			awaitReady(t, r.cmd.Process.Pid)
			r.signal(s)
			if code := r.wait().ExitCode(); code != 0 {
				t.Errorf("pause ended with %d on %v", code, s)
			}
		}
	})
}

// As PID 1 it must end on TERM (the kernel discards signals that PID 1 does not handle) and reap orphans.
func TestPauseAsInit(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not tried: a PID namespace takes root")
	}
	everyBuild(t, func(t *testing.T, b programSet) {
		if b.runner != nil {
			t.Skip("not tried: an emulator has its own idea of the signals of PID 1")
		}
		cmd := b.command(Pause)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		r := start(t, cmd)
		pid := cmd.Process.Pid
		awaitReady(t, pid)
		// The shell leaves its child behind, which becomes pause's.
		orphan := exec.Command("nsenter", "-t", strconv.Itoa(pid), "-p", "sh", "-c", "sleep 1000 >/dev/null 2>&1 &")
		if out, err := orphan.CombinedOutput(); err != nil {
			t.Skipf("not tried: nsenter: %v %s", err, out)
		}
		await(t, "the orphan to become a child of pause", func() bool { return len(children(t, pid)) == 1 })
		for _, child := range children(t, pid) {
			if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		await(t, "the orphan to be reaped", func() bool { return len(children(t, pid)) == 0 })
		r.signal(syscall.SIGTERM)
		if code := r.wait().ExitCode(); code != 0 {
			t.Errorf("pause as PID 1 ended with %d on TERM", code)
		}
	})
}

// awaitReady waits until the process waits for signals, which are then blocked. /proc/PID/status does not show them, since an
// emulator keeps the blocked set to itself.
func awaitReady(t *testing.T, pid int) {
	number := strconv.Itoa(syscall.SYS_RT_SIGTIMEDWAIT) + " "
	await(t, "pause to wait for signals", func() bool {
		return strings.HasPrefix(read(t, fmt.Sprintf("/proc/%d/syscall", pid)), number)
	})
}

func children(t *testing.T, pid int) (pids []int) {
	for _, word := range strings.Fields(read(t, fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))) {
		n, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, n)
	}
	return pids
}

func read(t *testing.T, path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
