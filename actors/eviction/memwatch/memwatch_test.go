package memwatch

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Without notifications, a watch waits for its timeout, but no longer than its context.
func TestWithoutTheKernel(t *testing.T) {
	w := Arm(t.TempDir(), t.TempDir(), []Threshold{{Usage: 1}, {Group: "pods", Usage: 1}})
	defer w.Close()
	if w.exact || len(w.fds) > 0 {
		t.Errorf("%+v", w)
	}
	w.Wait(t.Context(), time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	w.Wait(ctx, time.Hour)
	var none *Watch
	none.Close()
}

// A cgroup of version 1 notifies when its usage crosses the threshold.
func TestACgroupTells(t *testing.T) {
	const cgroups = "/sys/fs/cgroup"
	name := filepath.Base(t.TempDir()) + "-memwatch"
	dir := filepath.Join(cgroups, "memory", name)
	if _, err := os.Stat(filepath.Join(cgroups, "memory/cgroup.event_control")); err != nil || os.Geteuid() != 0 {
		t.Skip("there is no cgroup of version 1 to try it on")
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip(err)
	}
	defer func() { _ = os.Remove(dir) }()
	w := Arm(cgroups, "/proc", []Threshold{{Group: name, Usage: 8 << 20}})
	defer w.Close()
	if !w.exact {
		t.Fatalf("%+v", w)
	}
	w.Wait(t.Context(), time.Millisecond) // nothing has happened
	const much = `echo $$ > "$0/cgroup.procs" && exec dd if=/dev/zero of="$1" bs=1M count=20`
	began := time.Now()
	command := exec.CommandContext(t.Context(), "sh", "-c", much, dir, filepath.Join(t.TempDir(), "much"))
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	w.Wait(t.Context(), time.Minute)
	if took := time.Since(began); took >= time.Minute {
		t.Error("nothing was told")
	}
	if err := command.Wait(); err != nil {
		t.Error(err)
	}
}

// Without a cgroup of version 1, the kernel notifies of pressure: processes that wait for memory.
func TestPressureTells(t *testing.T) {
	w := Arm(t.TempDir(), "/proc", []Threshold{{Usage: 1}})
	defer w.Close()
	if len(w.fds) == 0 {
		t.Skip("the kernel tells of no pressure")
	}
	if w.Exact() || w.Broken() {
		t.Errorf("%+v", w)
	}
	dir := limitedCgroup(t, "8M")
	// Repeated reads and writes of a file larger than the group's memory make the process wait for memory.
	const much = `echo $$ > "$0/cgroup.procs" && while :; do dd if=/dev/zero of="$1" bs=1M count=64 2>/dev/null; done`
	command := exec.Command("sh", "-c", much, dir, filepath.Join(t.TempDir(), "much"))
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		_ = command.Wait() // it was killed
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if w.Wait(ctx, time.Hour); ctx.Err() != nil {
		t.Error("nothing was told")
	}
	if w.Broken() {
		t.Error("what was told once is told no more")
	}
}

// limitedCgroup returns a group with this much memory, of either version.
func limitedCgroup(t *testing.T, limit string) string {
	t.Helper()
	const cgroups = "/sys/fs/cgroup"
	name := filepath.Base(t.TempDir()) + "-pressure"
	dir, file := filepath.Join(cgroups, "memory", name), "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(cgroups, "memory")); err != nil {
		dir, file = filepath.Join(cgroups, name), "memory.max"
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	if err := os.WriteFile(filepath.Join(dir, file), []byte(limit), 0o600); err != nil {
		t.Skip(err)
	}
	return dir
}

// A broken notification, as of a removed cgroup, ends one wait and not the next one.
func TestAWatchThatBreaks(t *testing.T) {
	var broken, whole [2]int
	for _, pipe := range []*[2]int{&broken, &whole} {
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { _ = unix.Close(whole[1]) }()
	w := &Watch{fds: []unix.PollFd{
		{Fd: int32(whole[0]), Events: unix.POLLIN}, {Fd: int32(broken[1]), Events: unix.POLLPRI},
	}}
	defer w.Close()
	_ = unix.Close(broken[0]) // from now on the other end has an error
	w.Wait(t.Context(), time.Hour)
	if !w.Broken() || len(w.fds) != 1 || w.fds[0].Fd != int32(whole[0]) {
		t.Errorf("%+v", w)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	if w.Wait(ctx, time.Hour); ctx.Err() == nil {
		t.Error("the next wait ends at once, too")
	}
}
