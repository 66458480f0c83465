package namespaces

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

// fakeGroup is a folder with the files of a cgroup; the kernel's answers are missing.
func fakeGroup(t *testing.T, controllers, down string, children ...string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, controllersFile), controllers)
	write(t, filepath.Join(dir, handedDownFile), down)
	for _, child := range children {
		must(t, os.Mkdir(filepath.Join(dir, child), 0o755))
	}
	return dir
}

func TestControllersAreHandedDownAndTakenBack(t *testing.T) {
	dir := fakeGroup(t, "cpu io memory hugetlb\n", "cpu memory\n", "system.slice")
	lacking, err := notHandedDown(dir)
	if err != nil || !slices.Equal(lacking, []string{"io", "hugetlb"}) {
		t.Fatalf("not handed down: %q, %v", lacking, err)
	}
	groups, err := children(dir)
	if err != nil || !slices.Equal(groups, []string{"system.slice"}) {
		t.Fatalf("children: %q, %v", groups, err)
	}
	last := func() string { return read(t, filepath.Join(dir, handedDownFile)) }
	must(t, handDown(dir, lacking))
	if got := last(); got != "+hugetlb" {
		t.Errorf("last told %q", got)
	}
	must(t, os.Mkdir(filepath.Join(dir, "docker"), 0o755))
	must(t, takeBack(dir, lacking, groups))
	if got := last(); got != "+hugetlb" {
		t.Errorf("told %q although another may rely on it", got)
	}
	must(t, os.Remove(filepath.Join(dir, "docker")))
	must(t, takeBack(dir, lacking, groups))
	if got := last(); got != "-hugetlb" {
		t.Errorf("last told %q", got)
	}
}

func TestHierarchies(t *testing.T) {
	all, err := mountinfo.GetMountsFromReader(strings.NewReader(strings.Join([]string{
		`22 1 0:20 / /sys/fs/cgroup rw shared:9 - tmpfs tmpfs rw`,
		`23 22 0:21 / /sys/fs/cgroup/cpu,cpuacct rw shared:1 - cgroup cgroup rw,cpu,cpuacct,clone_children`,
		`24 22 0:22 / /sys/fs/cgroup/systemd rw,nosuid - cgroup cgroup rw,xattr,name=systemd`,
		`25 22 0:23 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate`,
		`26 22 0:23 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate`,
		`27 1 0:23 / /var/lib/lxc/a\040b/cgroup rw - cgroup2 cgroup2 rw`,
	}, "\n")), nil)
	must(t, err)
	found, err := hierarchies(all)
	must(t, err)
	var got []string
	for _, m := range found {
		got = append(got, filepath.Base(m.Mountpoint)+":"+hierarchyOptions(m))
	}
	if want := []string{"cpu,cpuacct:cpu,cpuacct", "systemd:none,name=systemd", "unified:"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := hierarchies(all[:1]); err == nil {
		t.Error("no hierarchy is no error")
	}
}

// A cgroup is removed with all below it, its members before: here a folder stands for it.
func TestATreeOfCgroupsIsRemoved(t *testing.T) {
	root := filepath.Join(t.TempDir(), "playlet-dev-x")
	must(t, os.MkdirAll(filepath.Join(root, "k8s.io/pod"), 0o755))
	must(t, os.MkdirAll(filepath.Join(root, "init"), 0o755))
	for range 2 {
		must(t, removeTree(root))
		if there(root) {
			t.Fatal("it is there")
		}
	}
}

// The machine's own: a member is killed, and everything goes.
func TestCgroupsOfARun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not tried: cgroups take root")
	}
	const name = "playlet-dev-unittest"
	if err := MakeCgroups(name, nil); err != nil {
		t.Skipf("not tried: cgroups cannot be made here: %v", err)
	}
	t.Cleanup(func() { must(t, RemoveCgroups(name, nil, nil)) })
	all, err := mountedHierarchies()
	must(t, err)
	child := exec.Command("sleep", "1000")
	must(t, child.Start())
	for _, m := range all {
		below := filepath.Join(m.Mountpoint, name, "below")
		must(t, os.Mkdir(below, 0o755))
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if !unified(m) {
				must(t, copyValue(filepath.Join(m.Mountpoint, name, file), filepath.Join(below, file)))
			}
		}
		must(t, os.WriteFile(filepath.Join(below, "cgroup.procs"), []byte(strconv.Itoa(child.Process.Pid)), 0))
	}
	must(t, RemoveCgroups(name, nil, nil))
	if err := child.Wait(); err == nil {
		t.Error("a member has ended by itself")
	}
	for _, m := range all {
		if there(filepath.Join(m.Mountpoint, name)) {
			t.Errorf("a cgroup is left in %s", m.Mountpoint)
		}
	}
}
