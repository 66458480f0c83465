package stats

import (
	"maps"
	"math"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"testing"

	"github.com/google/cadvisor/lib/model"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	commonmodel "github.com/prometheus/common/model"

	"github.com/playlet-dev/playlet/actors/stats/cgroupstats"
)

// families parses a handler's answer in Prometheus' text format.
func families(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(commonmodel.UTF8Validation)
	out, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// sample returns the family's metric with these labels.
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

// On this machine's own cgroups, all views of a pod agree with the kernel's files.
func TestOnThisMachinesCgroups(t *testing.T) {
	mounts, err := cgroupstats.Mounts()
	if err != nil || os.Geteuid() != 0 || cgroupstats.Unified() {
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
	// The process allocates before it prints.
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
			!strings.Contains(mount, "cpuset") { // it accepts no process before it has CPUs
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
	// The kernel counts in batches per processor.
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

// A pod's mounts are no file systems of the node.
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

// The summary has all figures of a cgroup.
func TestTheSummaryOfACgroup(t *testing.T) {
	spec := model.ContainerSpec{HasCpu: true, HasMemory: true, Memory: model.MemorySpec{Limit: 2_000_000, SwapLimit: 10_000}}
	g := &cgroupstats.Cgroup{Info: &model.ContainerInfo{Spec: spec, Stats: []*model.ContainerStats{{
		Cpu: &model.CpuStats{Usage: model.CpuUsage{Total: 5e9}, PSI: model.PSIStats{Some: model.PSIData{Total: 7000}}},
		Memory: &model.MemoryStats{Usage: 1_000_000, WorkingSet: 900_000, RSS: 600_000, Swap: 5000,
			ContainerData: model.MemoryStatsMemoryData{Pgfault: 70, Pgmajfault: 7}, PSI: model.PSIStats{Some: model.PSIData{Avg10: 1.5}}},
		DiskIo: &model.DiskIoStats{PSI: model.PSIStats{Full: model.PSIData{Total: 3000}}},
	}}}}
	c, m, s, io := cpu(g), memory(g), swap(g), inputOutput(g)
	if *c.UsageCoreNanoSeconds != 5e9 || *m.UsageBytes != 1_000_000 || *m.WorkingSetBytes != 900_000 || *m.RSSBytes != 600_000 ||
		*m.AvailableBytes != 1_100_000 || *m.PageFaults != 70 || *m.MajorPageFaults != 7 || *s.SwapUsageBytes != 5000 ||
		*s.SwapAvailableBytes != 5000 {
		t.Errorf("%+v %+v %+v", c, m, s)
	}
	if n := memoryOfNode(g, 200_000); *n.AvailableBytes != 900_000 || *n.WorkingSetBytes != 900_000 {
		t.Errorf("with huge pages, the node has %d available", *n.AvailableBytes)
	}
	if n := memoryOfNode(g, 9_000_000); *n.AvailableBytes != 0 {
		t.Errorf("with all memory in huge pages, the node has %d available", *n.AvailableBytes)
	}
	if c.PSI.Some.Total != 7000 || m.PSI.Some.Avg10 != 1.5 || io.PSI.Full.Total != 3000 {
		t.Errorf("pressure %+v %+v %+v", c.PSI, m.PSI, io.PSI)
	}
}
