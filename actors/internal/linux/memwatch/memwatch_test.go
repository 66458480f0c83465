package memwatch

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Where the kernel tells of nothing, a watch waits for its time to pass, and for nobody longer than its context.
func TestWithoutTheKernel(t *testing.T) {
	w := Arm(t.TempDir(), t.TempDir(), []Threshold{{Usage: 1}, {Group: "pods", Usage: 1}})
	defer w.Close()
	if w.Exact || len(w.fds) > 0 {
		t.Errorf("%+v", w)
	}
	w.Wait(t.Context(), time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	w.Wait(ctx, time.Hour)
	var none *Watch
	none.Close()
}

// A cgroup of version 1 tells when its use crosses the threshold.
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
	if !w.Exact {
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
