package stats

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"os/exec"
	"path"
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
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	commonmodel "github.com/prometheus/common/model"
)

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

// The cgroups of pods are found as either driver spells them.
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
		r := &cgroupReader{mounts: map[string]string{"": dir}}
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
		{at(0, 6e9), at(10, 5e9), -1},                                 // another of the same name
		{at(0, 0), at(0, 5), -1},                                      // no time passed
		{at(0, 0), at(int(longestRate/time.Second)+1, 1_000_000), -1}, // it would say nothing of now
	} {
		got := rate(test.before, test.now)
		if test.want < 0 && got != nil || test.want >= 0 && (got == nil || *got != uint64(test.want)) {
			t.Errorf("%v to %v: %v, want %d", test.before, test.now, got, test.want)
		}
	}
}

// families reads what a handler answers in Prometheus' text format.
func families(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(commonmodel.UTF8Validation)
	out, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// sample is the family's metric with these labels.
func sample(t *testing.T, all map[string]*dto.MetricFamily, name string, labels map[string]string) *dto.Metric {
	t.Helper()
	for _, m := range all[name].GetMetric() {
		have := map[string]string{}
		for _, l := range m.GetLabel() {
			if _, asked := labels[l.GetName()]; asked {
				have[l.GetName()] = l.GetValue()
			}
		}
		if maps.Equal(have, labels) {
			return m
		}
	}
	t.Fatalf("no %s with %v in %v", name, labels, all[name])
	return nil
}

// On this machine's own cgroups, all views of a pod agree with the files of the kernel.
func TestOnThisMachinesCgroups(t *testing.T) {
	mounts, err := mountedCgroups()
	if err != nil || os.Geteuid() != 0 || unified() {
		t.Skip("it makes cgroups of version 1, and needs root: ", err)
	}
	top := "/playlet-stats-" + strconv.Itoa(os.Getpid())
	web := pod("web", containerID1)
	inPod := path.Join(top, "burstable", "poduid-web")
	inside, sandbox := path.Join(inPod, containerID1), path.Join(inPod, containerID2)
	for _, mount := range mounts {
		for _, name := range []string{inside, sandbox} {
			if err := os.MkdirAll(path.Join(mount, name), 0o755); err != nil {
				t.Skip("no cgroups can be made here: ", err)
			}
		}
	}
	// What it uses, it uses before it says so.
	process := exec.CommandContext(t.Context(), "sh", "-c", `read x; a=$(head -c 8000000 /dev/zero | tr '\0' a); echo; read x`)
	in, _ := process.StdinPipe()
	out, _ := process.StdoutPipe()
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = process.Wait() // it ends with its input
		for _, mount := range mounts {
			for _, name := range []string{inside, sandbox, inPod, path.Dir(inPod), top} {
				_ = os.Remove(path.Join(mount, name))
			}
		}
	})
	for _, mount := range mounts {
		if err := os.WriteFile(path.Join(mount, inside, "cgroup.procs"), []byte(strconv.Itoa(process.Process.Pid)), 0); err != nil &&
			!strings.Contains(mount, "cpuset") { // which takes no process before it has CPUs
			t.Fatal(err)
		}
	}
	_, _ = in.Write([]byte("\n"))
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}

	r := newRig(t, web)
	r.opts.Kubepods = func() string { return top }
	c := NewCollector(r.opts)
	c.Attach(r.tell)
	h := Handler(c, nil)
	file := func(controller, name string) float64 {
		t.Helper()
		text, err := os.ReadFile(path.Join(mounts[controller], inside, name))
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := file("cpuacct", "cpuacct.usage")
	s := summaryOf(t, h, "/stats/summary")
	after := file("cpuacct", "cpuacct.usage")
	if len(s.Pods) != 1 {
		t.Fatalf("%+v", s)
	}
	got := s.Pods[0].Containers[0]
	used := float64(*got.CPU.UsageCoreNanoSeconds)
	if used == 0 || used < before || used > after {
		t.Errorf("CPU %v, and the kernel told %v before and %v after", used, before, after)
	}
	// The kernel counts in batches, a processor each.
	if n := float64(*got.Memory.UsageBytes); n < 8e6 || math.Abs(n-file("memory", "memory.usage_in_bytes")) > 2<<20 {
		t.Errorf("memory %v, and the kernel tells %v", n, file("memory", "memory.usage_in_bytes"))
	}
	if got.CPU.PSI == nil || got.Memory.PSI == nil {
		t.Errorf("no pressure: %+v, %+v", got.CPU, got.Memory)
	}
	if p := s.Pods[0]; *p.CPU.UsageCoreNanoSeconds < *got.CPU.UsageCoreNanoSeconds || *p.ProcessStats.ProcessCount != 1 ||
		got.Rootfs != nil {
		t.Errorf("the pod %+v", p)
	}
	reader := &cgroupReader{mounts: mounts, root: "/", now: time.Now, files: filesFor(mounts)}
	for _, name := range []string{inPod, inside, sandbox} {
		asTheLibraryReads(t, reader, name, name == inside)
	}
	cadvisor := families(t, get(t, h, "/metrics/cadvisor").Body.String())
	resource := families(t, get(t, h, "/metrics/resource").Body.String())
	of := map[string]string{"container": "c1", "pod": "web", "namespace": "default"}
	if n := sample(t, resource, "container_cpu_usage_seconds_total", of).GetCounter().GetValue(); n != used/1e9 {
		t.Errorf("/metrics/resource %v, /stats/summary %v", n, used/1e9)
	}
	of["id"], of["image"], of["name"] = inside, "registry/c1", containerID1
	if n := sample(t, cadvisor, "container_cpu_usage_seconds_total", of).GetCounter().GetValue(); n != used/1e9 {
		t.Errorf("/metrics/cadvisor %v, /stats/summary %v", n, used/1e9)
	}
	if n := sample(t, cadvisor, "container_memory_working_set_bytes", of).GetGauge().GetValue(); n != float64(*got.Memory.WorkingSetBytes) {
		t.Errorf("/metrics/cadvisor %v, /stats/summary %v", n, *got.Memory.WorkingSetBytes)
	}
	if n := sample(t, cadvisor, "container_start_time_seconds", of).GetGauge().GetValue(); n != float64(begin.Unix()+1) {
		t.Errorf("started at %v", n)
	}
	sample(t, cadvisor, "container_memory_usage_bytes", map[string]string{"id": inPod, "pod": "web", "container": "", "name": ""})
	sample(t, cadvisor, "container_memory_usage_bytes", map[string]string{"id": sandbox, "pod": "web", "container": "", "name": containerID2, "image": "registry/pause"})
	sample(t, cadvisor, "container_memory_usage_bytes", map[string]string{"id": top, "pod": ""})
	sample(t, cadvisor, "container_network_receive_bytes_total", map[string]string{"id": "/"})
	sample(t, cadvisor, "container_processes", of)
	sample(t, cadvisor, "container_oom_events_total", of)
	sample(t, cadvisor, "machine_memory_bytes", nil)
	if n := sample(t, cadvisor, "container_scrape_error", nil).GetGauge().GetValue(); n != 0 {
		t.Error("container_scrape_error")
	}
	if n := sample(t, resource, "resource_scrape_error", nil).GetGauge().GetValue(); n != 0 {
		t.Errorf("resource_scrape_error: %q", get(t, h, "/metrics/resource").Header())
	}
}

// asTheLibraryReads has a cgroup read from the files that are known here, and by cAdvisor's library.
func asTheLibraryReads(t *testing.T, r *cgroupReader, name string, network bool) {
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

// Cgroups of version 2 as files of a folder, in a process that takes itself for one on such a machine.
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
	if !unified() {
		t.Fatal("the library does not take it for cgroup v2")
	}
	library.TestMode = true // the files are no cgroup's
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
	r := &cgroupReader{mounts: map[string]string{"": dir}, root: "/", now: time.Now, files: filesV2}
	r.machine = model.MachineInfo{NumCores: 2}
	asTheLibraryReads(t, r, "/"+group, false)
	again := *r // limits that are read again
	r.now = func() time.Time { return time.Now().Add(specAge) }
	asTheLibraryReads(t, r, "/"+group, false)
	*r = again
	local := filepath.Join(dir, group, "memory.events.local") // which the library does not read
	if err := os.WriteFile(local, []byte("oom_kill 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := r.one("/"+group, false)
	if err != nil {
		t.Fatal(err)
	}
	g := &cgroup{info: info}
	c, m, s := cpu(g), memory(g), swap(g)
	if *c.UsageCoreNanoSeconds != 5e9 || *m.UsageBytes != 1_000_000 || *m.WorkingSetBytes != 900_000 || *m.RSSBytes != 600_000 ||
		*m.AvailableBytes != 1_100_000 || *m.PageFaults != 70 || *m.MajorPageFaults != 7 || *s.SwapUsageBytes != 5000 ||
		*s.SwapAvailableBytes != 5000 {
		t.Errorf("%+v %+v %+v", c, m, s)
	}
	if stats := g.stats(); stats.OOMEvents != 1 || stats.Memory.Events.High != 8 || stats.Processes.ThreadsMax != 100 || stats.Processes.ThreadsCurrent != 4 || info.Spec.Cpu.Quota != 50000 {
		t.Errorf("%+v", stats)
	}
	if c.PSI.Some.Total != 7000 || c.PSI.Full.Avg10 != 0.5 || m.PSI.Some.Avg10 != 1.5 || inputOutput(g).PSI.Full.Total != 3000 {
		t.Errorf("pressure %+v %+v", c.PSI, inputOutput(g))
	}
}

// Pressure is told of where the machine has it.
func TestPressureIsCollectedWhereThereIsSome(t *testing.T) {
	for _, there := range []bool{false, true} {
		if got := includedFor(there).Has(container.PressureMetrics); got != there {
			t.Errorf("there %v: %v", there, got)
		}
	}
}

// A cgroup that is idle has weight 0; one that is made anew under its name is another one.
func TestLimitsOfAnotherCgroup(t *testing.T) {
	var idle model.ContainerSpec
	limitsV2[0].into(&idle, []byte("0\n"))
	if idle.Cpu.Limit != 2 {
		t.Errorf("weight 0 is %d shares", idle.Cpu.Limit)
	}
	dir, now := t.TempDir(), time.Now()
	r := &cgroupReader{mounts: map[string]string{"pids": dir}, now: func() time.Time { return now }}
	for i, limit := range []uint64{5, 7} {
		folder := filepath.Join(dir, strconv.Itoa(i)) // the first stays, so that its inode is not used again
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
		spec, err := r.spec(cgroupAt{r.mounts, "/a", map[string]int{"pids": int(at.Fd())}})
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
		read := func(r *cgroupReader) model.ContainerSpec {
			t.Helper()
			at, err := os.Open(filepath.Join(dir, "a"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = at.Close() }()
			spec, err := r.spec(cgroupAt{r.mounts, "/a", map[string]int{test.controller: int(at.Fd())}})
			if err != nil {
				t.Fatal(err)
			}
			spec.CreationTime = time.Time{}
			return spec
		}
		fresh := func() *cgroupReader {
			return &cgroupReader{mounts: map[string]string{test.controller: dir}, now: func() time.Time { return now }}
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

// What is mounted for a pod is no file system of the node's.
func TestFilesystemsOfPods(t *testing.T) {
	for at, want := range map[string]bool{
		"/": false, "/dev/shm": false, "/var/lib/kubelet": false, "/run": false,
		"/run/containerd/io.containerd.runtime.v2.task/k8s.io/x/rootfs": true, "/run/x/sandboxes/id/shm": true,
		"/var/lib/kubelet/pods/uid/volumes/kubernetes.io~secret/s": true,
	} {
		device := at
		if at == "/" || strings.HasSuffix(at, "rootfs") {
			device = "overlay_0-41"
		}
		if got := ofAPod(device, at, "/var/lib/kubelet"); got != want {
			t.Errorf("%s: %v", at, got)
		}
	}
}
