package cgroupstats

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/cadvisor/lib/container"
	"github.com/google/cadvisor/lib/model"
	library "github.com/opencontainers/cgroups"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const containerID1 = "1111111111111111111111111111111111111111111111111111111111111111"

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestContainerIDs(t *testing.T) {
	for literal, want := range map[string]string{
		containerID1: containerID1,
		"cri-containerd-" + containerID1 + ".scope": containerID1,
		"crio-" + containerID1 + ".scope":           containerID1,
		"crio-conmon-" + containerID1 + ".scope":    containerID1,
		"init.scope":                                "",
		"system.slice":                              "",
	} {
		if got := containerID(literal); got != want {
			t.Errorf("%s: %q, want %q", literal, got, want)
		}
	}
}

// The cgroups of pods are found in the spelling of either driver.
func TestCgroupsOfPods(t *testing.T) {
	for top, paths := range map[string][]string{
		"/kubepods": {
			"kubepods/pod1-2/a", "kubepods/burstable/pod3-4/b", "kubepods/besteffort/pod5/c", "kubepods/other",
		},
		"/kubepods.slice": {
			"kubepods.slice/kubepods-pod1_2.slice", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod3_4.slice",
			"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod5.slice",
		},
	} {
		dir := t.TempDir()
		for _, p := range paths {
			if err := os.MkdirAll(filepath.Join(dir, p), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		r := &Reader{Mounts: map[string]string{"": dir}}
		var classes, uids []string
		r.walk(top, 0, func(name string) { classes = append(classes, name) }, func(uid, _ string) { uids = append(uids, uid) })
		slices.Sort(uids)
		if !slices.Equal(uids, []string{"1-2", "3-4", "5"}) || len(classes) != 3 {
			t.Errorf("%s: pods %q, classes %q", top, uids, classes)
		}
	}
}

func TestRates(t *testing.T) {
	at := func(seconds int, total uint64) cpuTime {
		return cpuTime{begin.Add(time.Duration(seconds) * time.Second), total}
	}
	for _, test := range []struct {
		before, now cpuTime
		want        int
	}{
		{at(0, 0), at(10, 5e9), 500_000_000},
		{cpuTime{}, at(10, 5e9), -1},                                  // the first
		{at(0, 6e9), at(10, 5e9), -1},                                 // another cgroup of the same name
		{at(0, 0), at(0, 5), -1},                                      // no time passed
		{at(0, 0), at(int(longestRate/time.Second)+1, 1_000_000), -1}, // too long for a current rate
	} {
		got := rate(test.before, test.now)
		if test.want < 0 && got != nil || test.want >= 0 && (got == nil || *got != uint64(test.want)) {
			t.Errorf("%v to %v: %v, want %d", test.before, test.now, got, test.want)
		}
	}
}

// asTheLibraryReads compares a cgroup read from the table of files with the reading of cAdvisor's library.
func asTheLibraryReads(t *testing.T, r *Reader, name string, network bool) {
	t.Helper()
	if r.files == nil {
		t.Error("the library reads this machine's cgroups")
	}
	byLibrary := *r
	byLibrary.files, byLibrary.specs = nil, nil
	got, err := r.one(name, network)
	if err != nil {
		t.Fatal(err)
	}
	want, err := byLibrary.one(name, network)
	if err != nil {
		t.Fatal(err)
	}
	text := func(info *model.ContainerInfo) string {
		info.Stats[0].Timestamp = time.Time{}
		for _, disks := range [][]model.PerDiskStats{info.Stats[0].DiskIo.IoServiced, info.Stats[0].DiskIo.IoServiceBytes} {
			slices.SortFunc(disks, func(a, b model.PerDiskStats) int { return cmp.Compare(a.Minor, b.Minor) })
		}
		out, err := json.MarshalIndent(info, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if got, want := text(got), text(want); got != want {
		t.Errorf("%s\n%s\nand the library reads\n%s", name, got, want)
	}
}

// Cgroups of version 2 are files of a folder, in a process that considers itself on such a machine.
func TestUnifiedCgroups(t *testing.T) {
	const inside = "PLAYLET_OWN_MOUNTS"
	if os.Getenv(inside) == "" {
		if os.Geteuid() != 0 {
			t.Skip("it mounts, and needs root")
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestUnifiedCgroups$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "--- SKIP") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	for _, err := range []error{
		syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if !Unified() {
		t.Fatal("the library does not take it for cgroup v2")
	}
	library.TestMode = true // the files are not on cgroupfs
	dir := t.TempDir()
	group := "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poduid_web.slice/cri-containerd-" + containerID1 + ".scope"
	pressure := "some avg10=1.50 avg60=0.25 avg300=0.10 total=7000\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=3000\n"
	for name, text := range map[string]string{
		"cgroup.controllers": "cpu io memory pids", "cgroup.procs": "", "cgroup.events": "populated 0\n",
		"cpu.stat": "usage_usec 5000000\nuser_usec 3000000\nsystem_usec 2000000\nnr_periods 10\nnr_throttled 2\nthrottled_usec 400\n" +
			"nr_bursts 3\nburst_usec 70\n",
		"cpu.max": "50000 100000\n", "cpu.weight": "100\n", "cpu.pressure": pressure, "memory.pressure": pressure,
		"io.pressure": pressure, "memory.current": "1000000\n", "memory.max": "2000000\n", "memory.min": "0\n",
		"memory.swap.current": "5000\n", "memory.swap.max": "10000\n", "memory.events": "low 0\nhigh 8\nmax 9\noom 3\noom_kill 2\n",
		"memory.stat": "anon 600000\nfile 300000\ninactive_file 100000\nactive_file 200000\npgfault 70\npgmajfault 7\nfile_mapped 11\n" +
			"file_dirty 12\nfile_writeback 13\npgscan 14\npgsteal 15\nworkingset_refault_file 16\nworkingset_refault_anon 17\n",
		"memory.peak": "1500000\n", "pids.current": "4\n", "pids.max": "100\n",
		"io.stat": "8:0 rbytes=100 wbytes=200 rios=1 wios=2 dbytes=0 dios=0 cost.usage=5 cost.wait=6\n8:16 rbytes=7 rios=1\n",
	} {
		path := filepath.Join(dir, group, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := &Reader{Mounts: map[string]string{"": dir}, Root: "/", Now: time.Now, files: filesV2}
	r.machine = model.MachineInfo{NumCores: 2}
	asTheLibraryReads(t, r, "/"+group, false)
	again := *r // a second reading of limits
	r.Now = func() time.Time { return time.Now().Add(specAge) }
	asTheLibraryReads(t, r, "/"+group, false)
	*r = again
	local := filepath.Join(dir, group, "memory.events.local") // not read by the library
	if err := os.WriteFile(local, []byte("oom_kill 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := r.one("/"+group, false)
	if err != nil {
		t.Fatal(err)
	}
	stats := info.Stats[0]
	if stats.OOMEvents != 1 || stats.Memory.Events.High != 8 || stats.Processes.ThreadsMax != 100 || stats.Processes.ThreadsCurrent != 4 || info.Spec.Cpu.Quota != 50000 {
		t.Errorf("%+v", stats)
	}
}

// Pressure is collected if the machine supports it.
func TestPressureIsCollectedWhereThereIsSome(t *testing.T) {
	for _, there := range []bool{false, true} {
		if got := MetricsFor(there).Has(container.PressureMetrics); got != there {
			t.Errorf("there %v: %v", there, got)
		}
	}
}

// A file that is there and cannot be read, as with psi=0 before Linux 6.1, is no pressure: its families would be zeros
// (kubernetes/kubernetes#137326).
func TestPressure_UnreadableFile(t *testing.T) {
	dir := t.TempDir()
	if hasPressure(dir) {
		t.Error("pressure without a file")
	}
	if err := os.Mkdir(filepath.Join(dir, "cpu.pressure"), 0o700); err != nil {
		t.Fatal(err)
	}
	if hasPressure(dir) {
		t.Error("pressure with an unreadable file")
	}
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cpu.pressure"), []byte("some avg10=0.00\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !hasPressure(dir) {
		t.Error("no pressure with a readable file")
	}
}

// An idle cgroup has weight 0; a cgroup recreated under the same name is a different one.
func TestLimitsOfAnotherCgroup(t *testing.T) {
	var idle model.ContainerSpec
	limitsV2[0].into(&idle, []byte("0\n"))
	if idle.Cpu.Limit != 2 {
		t.Errorf("weight 0 is %d shares", idle.Cpu.Limit)
	}
	dir, now := t.TempDir(), time.Now()
	r := &Reader{Mounts: map[string]string{"pids": dir}, Now: func() time.Time { return now }}
	for i, limit := range []uint64{5, 7} {
		folder := filepath.Join(dir, strconv.Itoa(i)) // the first one stays, so that its inode is not reused
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "pids.max"), strconv.AppendUint(nil, limit, 10), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(filepath.Join(dir, "a"))
		if err := os.Symlink(folder, filepath.Join(dir, "a")); err != nil {
			t.Fatal(err)
		}
		at, err := os.Open(folder)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := r.spec(cgroupAt{r.Mounts, "/a", map[string]int{"pids": int(at.Fd())}})
		if err = errors.Join(err, at.Close()); err != nil || spec.Processes.Limit != limit {
			t.Errorf("%d processes, want %d: %v", spec.Processes.Limit, limit, err)
		}
	}
}

// Limits are read once a minute.
func TestLimitsAreReadOnceAMinute(t *testing.T) {
	for _, test := range []struct {
		controller    string
		before, after map[string]string
	}{
		{"cpu", map[string]string{"cpu.shares": "2", "cpu.cfs_quota_us": "-1"}, map[string]string{"cpu.shares": "512", "cpu.cfs_quota_us": "70"}},
		{"memory", map[string]string{"memory.limit_in_bytes": "4096", "memory.memsw.limit_in_bytes": "8192", "memory.soft_limit_in_bytes": "1"},
			map[string]string{"memory.limit_in_bytes": "5000", "memory.memsw.limit_in_bytes": "9000", "memory.soft_limit_in_bytes": "2"}},
		{"pids", map[string]string{"pids.max": "max"}, map[string]string{"pids.max": "5"}},
	} {
		now, dir := time.Now(), t.TempDir()
		write := func(dir string, files map[string]string) {
			t.Helper()
			for name, text := range files {
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		read := func(r *Reader) model.ContainerSpec {
			t.Helper()
			at, err := os.Open(filepath.Join(dir, "a"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = at.Close() }()
			spec, err := r.spec(cgroupAt{r.Mounts, "/a", map[string]int{test.controller: int(at.Fd())}})
			if err != nil {
				t.Fatal(err)
			}
			spec.CreationTime = time.Time{}
			return spec
		}
		fresh := func() *Reader {
			return &Reader{Mounts: map[string]string{test.controller: dir}, Now: func() time.Time { return now }}
		}
		r := fresh()
		write(filepath.Join(dir, "a"), test.before)
		first := read(r)
		write(filepath.Join(dir, "a"), test.after)
		if soon := read(r); !reflect.DeepEqual(soon, first) {
			t.Errorf("%s: at first %+v, at once %+v", test.controller, first, soon)
		}
		now = now.Add(specAge)
		if later, want := read(r), read(fresh()); !reflect.DeepEqual(later, want) || reflect.DeepEqual(later, first) {
			t.Errorf("%s: after a minute %+v, and the library reads %+v", test.controller, later, want)
		}
	}
}

// A pod chooses names and number of its interfaces: no name corrupts the answer, and their number is limited.
func TestNamesOfInterfaces(t *testing.T) {
	var text strings.Builder
	for i := range 2 * mostInterfaces {
		fmt.Fprintf(&text, "%d: 1 0 0 0 0 0 0 0 2 0 0 0 0 0 0 0\n", i)
	}
	if got := len(interfaces([]byte(text.String()))); got != mostInterfaces {
		t.Errorf("%d interfaces", got)
	}
	got := interfaces([]byte("e\xff: 1 0 0 0 0 0 0 0 2 0 0 0 0 0 0 0\n"))
	if len(got) != 1 || got[0].Name != "e\uFFFD" || got[0].RxBytes != 1 || got[0].TxBytes != 2 {
		t.Errorf("%+v", got)
	}
}

// A cgroup of this machine, with a process and without.
func TestAsTheLibraryReadsOnThisMachine(t *testing.T) {
	mounts, err := Mounts()
	if err != nil || os.Geteuid() != 0 || Unified() {
		t.Skip("it makes cgroups of version 1, and needs root: ", err)
	}
	top := "/playlet-cgroupstats-" + strconv.Itoa(os.Getpid())
	process := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait() // it was killed
		for _, mount := range mounts {
			_, _ = os.Remove(filepath.Join(mount, top, "inside")), os.Remove(filepath.Join(mount, top))
		}
	})
	pid := []byte(strconv.Itoa(process.Process.Pid))
	// Its start uses CPU, so a later reading would differ.
	for begun := false; !begun; time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + string(pid) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		begun = strings.Contains(string(stat), "(sleep) S ")
	}
	for _, mount := range mounts {
		inside := filepath.Join(mount, top, "inside")
		if err := os.MkdirAll(inside, 0o755); err != nil {
			t.Skip("no cgroups can be made here: ", err)
		}
		if err := os.WriteFile(filepath.Join(inside, "cgroup.procs"), pid, 0); err != nil &&
			!strings.Contains(mount, "cpuset") { // it accepts no process before it has CPUs
			t.Fatal(err)
		}
	}
	r := &Reader{Mounts: mounts, Root: "/", Now: time.Now, files: filesFor(mounts)}
	asTheLibraryReads(t, r, top, false)
	asTheLibraryReads(t, r, top+"/inside", true)
}
