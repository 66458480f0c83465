package cgroups_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	library "github.com/opencontainers/cgroups"

	"github.com/playlet-dev/playlet/actors/internal/linux/cgroups"
)

// TestOnARealUnifiedHierarchy checks groups in the machine's own cgroup v2, mounted as on a v2 node, in a process with its own
// mounts. The controllers depend on the machine: the test checks the values for huge pages if their controller is available.
func TestOnARealUnifiedHierarchy(t *testing.T) {
	withOwnMounts(t, onUnified)
}

// withOwnMounts reruns the test in a process with its own mounts, because the library caches the mounts for the life of a
// process.
func withOwnMounts(t *testing.T, test func(*testing.T), env ...string) {
	t.Helper()
	const inside = "PLAYLET_OWN_MOUNTS"
	if os.Getenv(inside) == t.Name() {
		must(t, "private mounts", syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
		test(t)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("it mounts, and needs root")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), inside+"="+t.Name()), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "--- SKIP") {
		t.Errorf("%v\n%s", err, out)
	}
}

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func onUnified(t *testing.T) {
	const mounted = "/sys/fs/cgroup"
	must := func(what string, err error) { t.Helper(); must(t, what, err) }
	must("mount", syscall.Mount("cgroup2", mounted, "cgroup2", 0, ""))
	if !library.IsCgroup2UnifiedMode() {
		t.Fatal("the library does not take it for cgroup v2")
	}
	var host cgroups.Host
	root := cgroups.ParseName(fmt.Sprintf("/playlet-test-%d", os.Getpid()))
	pod := cgroups.PodName(root, "Burstable", "u1")
	dir := filepath.Join(mounted, pod.Cgroupfs())
	defer func() {
		for at := dir; at != mounted; at = filepath.Dir(at) {
			_ = os.Remove(at) // already removed, unless the test has failed
		}
	}()
	controllers, err := os.ReadFile(filepath.Join(mounted, "cgroup.controllers"))
	must("controllers", err)
	v := cgroups.Values{}
	huge := slices.Contains(strings.Fields(string(controllers)), "hugetlb")
	if huge {
		v.HugePages = map[string]uint64{"2MB": 4 << 20}
	}
	for range 2 { // the group exists the second time
		must("apply", host.Apply(pod, false, v))
	}
	if got, err := os.ReadFile(filepath.Join(dir, "hugetlb.2MB.max")); huge &&
		(err != nil || strings.TrimSpace(string(got)) != "4194304") {
		t.Errorf("huge pages: %q, %v", got, err)
	}
	if names, err := host.Children(cgroups.ClassName(root, "Burstable"), false); err != nil ||
		!slices.Equal(names, []string{"podu1"}) {
		t.Errorf("children %v, %v", names, err)
	}
	sleeper := exec.CommandContext(t.Context(), "sleep", "600")
	must("a process", sleeper.Start())
	must("move it", host.Enter(pod, sleeper.Process.Pid))
	tree := cgroups.Tree{Root: root, Groups: host, Systemd: func() bool { return false }}
	ended := make(chan error, 1)
	go func() { ended <- sleeper.Wait() }() // a child stays in its group until it is reaped
	must("remove", tree.RemovePod(t.Context(), "u1"))
	if err := <-ended; err == nil {
		t.Error("the process ended by itself")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the group is still there: %v", err)
	}
}
