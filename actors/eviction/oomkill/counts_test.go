package oomkill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

const (
	container = "/kubepods/burstable/podu/abc"
	another   = "/kubepods/podv/def"
	inSlices  = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu.slice/cri-containerd-abc.scope"
)

// countingKernel is a fake machine whose kernel counts kills.
type countingKernel struct {
	*Counts
	t   *testing.T
	old bool // cgroups of version 1
}

func countedOn(t *testing.T, old bool, top string) countingKernel {
	t.Helper()
	c := countingKernel{&Counts{Proc: t.TempDir(), Cgroups: t.TempDir(), Every: time.Millisecond, Kubepods: func() string { return top }}, t, old}
	c.write(filepath.Join(c.Proc, "vmstat"), "nr_free_pages 1\noom_kill 0\npgfault 2\n")
	return c
}

func (c countingKernel) write(file, text string) {
	c.t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// group sets the number of kills in a cgroup, and how many times its limit was met.
func (c countingKernel) group(path string, kills, limits int) {
	if c.old {
		dir := filepath.Join(c.Cgroups, "memory", path)
		c.write(filepath.Join(dir, "memory.oom_control"), fmt.Sprintf("oom_kill_disable 0\nunder_oom 0\noom_kill %d\n", kills))
		c.write(filepath.Join(dir, "memory.failcnt"), fmt.Sprintln(limits))
		return
	}
	c.write(filepath.Join(c.Cgroups, path, "memory.events"), fmt.Sprintf("low 0\nhigh 7\nmax 9\noom %d\noom_kill %d\n", limits, kills))
}

// machine sets the machine's number of kills, and checks.
func (c countingKernel) machine(kills int) []Kill {
	c.t.Helper()
	c.write(filepath.Join(c.Proc, "vmstat"), fmt.Sprintf("nr_free_pages 1\noom_kill %d\npgfault 2\n", kills))
	c.found = nil
	if err := c.look(); err != nil {
		c.t.Fatal(err)
	}
	return c.found
}

func TestKillsAreCounted(t *testing.T) {
	for _, old := range []bool{true, false} {
		c := countedOn(t, old, "/kubepods")
		expect := func(what string, got []Kill, want ...Kill) {
			t.Helper()
			if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
				t.Errorf("%s, v1 %t: %+v, want %+v", what, old, got, want)
			}
		}
		for path, kills := range map[string]int{"/kubepods": 0, "/kubepods/burstable": 0, "/kubepods/burstable/podu": 3, container: 3} {
			c.group(path, kills, kills)
		}
		expect("what was before the start", c.machine(3))
		c.group(container, 4, 4)
		expect("its own limit", c.machine(4), Kill{Group: container, Limited: container, Times: 1})
		expect("nothing since", c.machine(4))
		c.group(container, 6, 4)
		c.group("/kubepods/burstable/podu", map[bool]int{true: 3, false: 6}[old], 4) // on v2 with those of its containers
		expect("the pod's limit", c.machine(6), Kill{Group: container, Limited: "/kubepods/burstable/podu", Times: 2})
		c.group(another, 1, 0)
		expect("a new container on a machine that is short", c.machine(7), Kill{Group: another, Times: 1})
		expect("somebody else's", c.machine(8))
		c.group(another, 2, 1) // a little after the machine's number, which the previous check saw
		expect("a counter that follows", c.machine(8), Kill{Group: another, Limited: another, Times: 1})
		c.group(container, 9, 9)
		expect("the machine's number is as it was: nothing is looked at", c.machine(8))
		if err := os.RemoveAll(c.Cgroups); err != nil {
			t.Fatal(err)
		}
		expect("all have gone", c.machine(10))
	}
}

func TestKillsAreCountedInSlices(t *testing.T) {
	c := countedOn(t, false, "/kubepods.slice")
	c.machine(0)
	c.group(inSlices, 1, 1)
	if got := c.machine(1); len(got) != 1 || got[0].Group != inSlices {
		t.Errorf("%+v", got)
	}
}

func TestCountsAreAwaited(t *testing.T) {
	c := countedOn(t, false, "/kubepods")
	c.group(container, 0, 0)
	c.machine(0)
	c.group(container, 1, 1)
	c.group(another, 1, 1)
	c.write(filepath.Join(c.Proc, "vmstat"), "oom_kill 2\n")
	for _, want := range []string{container, another} {
		if k, err := c.Next(t.Context()); err != nil || k.Group != want {
			t.Errorf("%+v, %v", k, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	c.write(filepath.Join(c.Proc, "vmstat"), "nr_free_pages 1\n")
	if _, err := c.Next(t.Context()); err == nil {
		t.Error("a kernel that does not count")
	}
	c.Kubepods = func() string { return "" }
	c.write(filepath.Join(c.Proc, "vmstat"), "oom_kill 3\n")
	if _, err := c.Next(t.Context()); err == nil {
		t.Error("pods without cgroups")
	}
}

// On a real cgroup of version 1 a killed child is counted, while its parent lives on.
func TestARealKillIsCounted(t *testing.T) {
	const cgroups = "/sys/fs/cgroup"
	top := "/" + filepath.Base(t.TempDir()) + "-oomkill"
	c := &Counts{Proc: "/proc", Cgroups: cgroups, Kubepods: func() string { return top }, Every: time.Millisecond}
	group := top + "/podu/c"
	dir := filepath.Join(cgroups, "memory", group)
	if _, err := os.Stat(filepath.Join(cgroups, "memory/memory.oom_control")); err != nil || os.Geteuid() != 0 {
		t.Skip("there is no cgroup of version 1 to try it on")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Skip(err)
	}
	defer func() {
		for at := dir; at != filepath.Join(cgroups, "memory"); at = filepath.Dir(at) {
			if err := os.Remove(at); err != nil {
				t.Error(err)
			}
		}
	}()
	if err := os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), []byte("16777216"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.look(); err != nil {
		t.Fatal(err)
	}
	const hog = `echo $$ > "$0/cgroup.procs"; tail /dev/zero; echo $? >&2; read wait` // a line without an end, kept in memory
	parent := exec.CommandContext(t.Context(), "sh", "-c", hog, dir)
	in, err := parent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	k, err := c.Next(t.Context())
	if want := (Kill{Group: group, Limited: group, Times: 1}); err != nil || k != want {
		t.Errorf("%+v, %v, want %+v", k, err, want)
	}
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Errorf("the parent does not live on: %v", err)
	}
	if err := parent.Wait(); err != nil {
		t.Errorf("the parent: %v", err)
	}
}
