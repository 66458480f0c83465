package stats

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/playlet-dev/playlet/cri"
)

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w
}

func summaryOf(t *testing.T, h http.Handler, path string) api.Summary {
	t.Helper()
	w := get(t, h, path)
	var s api.Summary
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %v: %s", w.Code, err, w.Body)
	}
	return s
}

// A pod whose containers have no cgroups here has the runtime's figures; a pod that is over is omitted.
func TestSummary(t *testing.T) {
	web := pod("web", containerID1, "")
	web.Pod.Spec.Volumes = []v1.Volume{
		{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}},
	}
	over := pod("over", "")
	over.Status.Phase = v1.PodFailed
	r := newRig(t, web, over)
	r.cri.stats = append(r.cri.stats, criStats(containerID1, 9, 1000))
	volumes := filepath.Join(r.opts.RootDir, "pods", "uid-web", "volumes")
	write(t, filepath.Join(volumes, "kubernetes.io~empty-dir", "data", "file"), 10000)
	write(t, filepath.Join(volumes, "kubernetes.io~secret", "secret", "file"), 10000)
	write(t, filepath.Join(r.opts.RootDir, "pods", "uid-web", "etc-hosts"), 100)
	write(t, filepath.Join(r.opts.PodLogsDir, "default_web_uid-web", "c1", "0.log"), 5000)
	h := Handler(r.Collector, nil)

	s := summaryOf(t, h, "/stats/summary")
	if len(s.Pods) != 1 || s.Node.NodeName != "node" || s.Node.Fs == nil || s.Node.Rlimit == nil || s.Node.CPU == nil ||
		*s.Node.Memory.WorkingSetBytes == 0 || *s.Node.Memory.AvailableBytes == 0 || len(s.Node.Network.Interfaces) == 0 ||
		*s.Node.Runtime.ImageFs.UsedBytes != 12345 {
		t.Fatalf("%+v", s)
	}
	p := s.Pods[0]
	if p.PodRef != (api.PodReference{Name: "web", Namespace: "default", UID: "uid-web"}) || !p.StartTime.Time.Equal(begin) ||
		*p.CPU.UsageCoreNanoSeconds != 9e9 || *p.Memory.WorkingSetBytes != 1000 || len(p.Containers) != 1 {
		t.Errorf("pod %+v", p)
	}
	c := p.Containers[0]
	if c.Name != "c1" || !c.StartTime.Time.Equal(begin.Add(time.Second)) || *c.CPU.UsageNanoCores != 5e6 ||
		*c.Memory.UsageBytes != 2000 || *c.Swap.SwapUsageBytes != 3 || *c.Swap.SwapAvailableBytes != 7 ||
		*c.Rootfs.UsedBytes != 4096 || *c.Rootfs.InodesUsed != 2 || c.Memory.AvailableBytes != nil {
		t.Errorf("container %+v", c)
	}
	logs, data, secret := *c.Logs.UsedBytes, p.VolumeStats[0], p.VolumeStats[1]
	if logs < 5000 || data.Name != "data" || *data.UsedBytes < 10000 || *data.InodesUsed != 2 || *data.CapacityBytes == 0 ||
		*secret.UsedBytes < 10000 {
		t.Errorf("logs %d, volumes %+v", logs, p.VolumeStats)
	}
	if got, want := *p.EphemeralStorage.UsedBytes, 4096+logs+*data.UsedBytes+100; got != want {
		t.Errorf("ephemeral storage %d, want %d: not the secret, which lies in memory elsewhere", got, want)
	}
	only := summaryOf(t, h, "/stats/summary?only_cpu_and_memory=true")
	if p := only.Pods[0]; p.VolumeStats != nil || p.EphemeralStorage != nil || p.Containers[0].Rootfs != nil ||
		*p.CPU.UsageCoreNanoSeconds != 9e9 || only.Node.Fs != nil {
		t.Errorf("CPU and memory alone: %+v", p)
	}
	if w := get(t, h, "/stats/summary?only_cpu_and_memory=maybe"); w.Code != http.StatusBadRequest {
		t.Errorf("%d", w.Code)
	}
}

// A pod whose containers are all in back-off keeps the figures of its volumes and logs: its data is still on the disk
// (kubernetes/kubernetes#141350). Eviction needs those of a pod that has not started, too: init containers write volumes.
func TestPodWithoutRunningContainer(t *testing.T) {
	crashing, initializing, waiting := pod("crashing", ""), pod("initializing", ""), pod("waiting")
	initializing.Status.Phase, waiting.Status.Phase = v1.PodPending, v1.PodPending
	data := []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	crashing.Pod.Spec.Volumes, initializing.Pod.Spec.Volumes = data, data
	r := newRig(t, crashing, initializing, waiting)
	for _, uid := range []string{"uid-crashing", "uid-initializing"} {
		write(t, filepath.Join(r.opts.RootDir, "pods", uid, "volumes", "kubernetes.io~empty-dir", "data", "file"), 10000)
	}
	write(t, filepath.Join(r.opts.PodLogsDir, "default_crashing_uid-crashing", "c1", "0.log"), 5000)
	write(t, filepath.Join(r.opts.PodLogsDir, "default_crashing_uid-crashing", "init", "0.log"), 1<<20)

	h := Handler(r.Collector, nil)
	s := summaryOf(t, h, "/stats/summary")
	if len(s.Pods) != 1 || s.Pods[0].PodRef.Name != "crashing" || s.Pods[0].Containers == nil || len(s.Pods[0].VolumeStats) != 1 {
		t.Fatalf("got pods %+v, want the crashing one with its volume and an empty list of containers", s.Pods)
	}
	volume := *s.Pods[0].VolumeStats[0].UsedBytes
	if got := *s.Pods[0].EphemeralStorage.UsedBytes; volume < 10000 || got < volume+5000 || got >= volume+1<<20 {
		t.Errorf("ephemeral storage %d with %d in the volume, want the volume and the log, without the init container's", got, volume)
	}
	if s := summaryOf(t, h, "/stats/summary?only_cpu_and_memory=true"); len(s.Pods) != 0 {
		t.Errorf("CPU and memory alone: got %+v, want no pod", s.Pods)
	}
	var names []string
	pods, _, _, _ := r.PodStats(t.Context(), nil, false)
	for _, p := range pods {
		if len(p.VolumeStats) > 0 {
			names = append(names, p.PodRef.Name)
		}
	}
	if !slices.Equal(names, []string{"crashing", "initializing"}) {
		t.Errorf("for eviction: got %v with volumes, want the two with data", names)
	}
}

// Files that the agent keeps for a pod, and its containers can fill, count as the pod's, including the termination logs of each
// attempt. The targets of links do not.
func TestTerminationLogsCount(t *testing.T) {
	r := newRig(t, pod("web", containerID1))
	r.cri.stats = append(r.cri.stats, criStats(containerID1, 9, 1000))
	dir := filepath.Join(r.opts.RootDir, "pods", "uid-web")
	uses := func() uint64 {
		r.usage.keep(nil)
		s, lacks := r.Summary(t.Context(), false)
		if len(lacks) > 0 {
			t.Fatalf("lacks %q", lacks)
		}
		return *s.Pods[0].EphemeralStorage.UsedBytes
	}
	none := uses()
	write(t, filepath.Join(dir, "containers", "c1", "00000000"), 1<<20)
	write(t, filepath.Join(dir, "containers", "c1", "00000001"), 2<<20)
	write(t, filepath.Join(r.opts.RootDir, "elsewhere"), 8<<20)
	if err := os.Symlink(filepath.Join(r.opts.RootDir, "elsewhere"), filepath.Join(dir, "containers", "c1", "link")); err != nil {
		t.Fatal(err)
	}
	if got := uses() - none; got < 3<<20 || got > 4<<20 {
		t.Errorf("the termination logs count for %d", got)
	}
}

// Eviction decides by current figures, not by earlier ones.
func TestFiguresForEvictionAreNew(t *testing.T) {
	r := newRig(t, pod("web", containerID1))
	r.cri.stats = append(r.cri.stats, criStats(containerID1, 9, 1000))
	uses := func() uint64 {
		pods, _, _, lacks := r.PodStats(t.Context(), map[types.UID]bool{"uid-web": true}, true)
		if len(lacks) > 0 {
			t.Fatalf("lacks %q", lacks)
		}
		return *pods[0].EphemeralStorage.UsedBytes
	}
	none := uses()
	write(t, filepath.Join(r.opts.RootDir, "pods", "uid-web", "containers", "c1", "00000000"), 3<<20)
	quick := *r.usage.of("uid-web")
	quick.took = 0 // a slow machine does not walk as often
	publish(r, "uid-web", quick)
	r.clock.SetTime(begin.Add(1100 * time.Millisecond))
	r.actor.Advance(1100 * time.Millisecond)
	if got := uses(); got < none+3<<20 {
		t.Errorf("%d bytes are used a second after 3 MiB were added to %d", got, none)
	}
}

// The agent's first reading has the node's CPU usage, as in the kubelet.
func TestSummary_FirstReading_HasARate(t *testing.T) {
	s, _ := newRig(t).Summary(t.Context(), true)
	if s.Node.CPU == nil || s.Node.CPU.UsageNanoCores == nil {
		t.Errorf("got %+v", s.Node.CPU)
	}
}

// Within its age a reading serves all requests, and concurrent requests share one.
func TestReadingsAreShared(t *testing.T) {
	r := newRig(t, pod("web", containerID1))
	r.cri.stats = append(r.cri.stats, criStats(containerID1, 9, 1000))
	hang := make(chan struct{})
	r.cri.hangs = hang
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() { _, _ = r.runtime.get(context.Background(), fullAge) })
	}
	close(hang)
	asking.Wait()
	ask := func() { _, _ = r.Summary(t.Context(), false) }
	ask()
	if n := r.cri.called(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	r.clock.SetTime(begin.Add(fullAge - time.Nanosecond))
	ask()
	if n := r.cri.called(); n != 1 {
		t.Errorf("within its age asked %d times", n)
	}
	r.clock.SetTime(begin.Add(fullAge))
	ask()
	if n := r.cri.called(); n != 2 {
		t.Errorf("after it asked %d times", n)
	}
}

// A hanging runtime only costs its own figures, and the answer names them; once it is back, all figures are there.
func TestTheRuntimeHangs(t *testing.T) {
	r := newRig(t, pod("web", containerID1))
	r.cri.stats = append(r.cri.stats, criStats(containerID1, 9, 1000))
	if s, lacks := r.Summary(t.Context(), false); len(lacks) > 0 || s.Pods[0].CPU == nil {
		t.Fatalf("%v, lacks %q", s.Pods, lacks)
	}
	hang := make(chan struct{})
	r.cri.hangs = hang
	r.clock.SetTime(begin.Add(time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no request waits any longer
	s, lacks := r.Summary(ctx, false)
	if len(lacks) == 0 || !strings.Contains(strings.Join(lacks, " "), "the runtime's figures of containers") {
		t.Errorf("lacks %q", lacks)
	}
	if *s.Pods[0].CPU.UsageCoreNanoSeconds != 9e9 || !s.Pods[0].CPU.Time.Time.Equal(begin) {
		t.Errorf("it does not tell the figures from before, by their time: %+v", s.Pods[0].CPU)
	}
	w := httptest.NewRecorder()
	Handler(r.Collector, nil).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics/resource", nil))
	if !strings.Contains(w.Body.String(), "\nresource_scrape_error 1\n") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	close(hang)
	if _, lacks := r.Summary(t.Context(), false); len(lacks) > 0 {
		t.Errorf("it is back, and lacks %q", lacks)
	}
}

// Figures that do not fit into one message are requested pod by pod.
func TestFiguresTooLargeForOneMessage(t *testing.T) {
	r := newRig(t, pod("web", containerID1), pod("db", containerID2))
	r.cri.large = true
	for id, uid := range map[string]string{containerID1: "uid-web", containerID2: "uid-db"} {
		s := criStats(id, 9, 1000)
		s.Attributes.Labels = map[string]string{cri.LabelPodUID: uid}
		r.cri.stats = append(r.cri.stats, s)
	}
	s, lacks := r.Summary(t.Context(), false)
	if len(lacks) > 0 || len(s.Pods) != 2 || s.Pods[0].CPU == nil || s.Pods[1].CPU == nil {
		t.Errorf("%+v, lacks %q", s.Pods, lacks)
	}
}

func write(t *testing.T, path string, size int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLaterTime(t *testing.T) {
	a, b := metav1.Unix(1, 0), metav1.Unix(2, 0)
	if later(a, b) != b || later(b, a) != b {
		t.Error("the earlier of two times")
	}
}

// metrics-server uses a node's or a container's figures only if both CPU and memory are present. It computes rates from the times
// beside them, and ignores a container without a start time.
func TestWhatMetricsServerReads(t *testing.T) {
	r := newRig(t, pod("web", containerID1))
	r.cri.stats = append(r.cri.stats, criStats(containerID1, 9, 1000))
	all := families(t, get(t, Handler(r.Collector, nil), "/metrics/resource").Body.String())
	of := map[string]string{"container": "c1", "pod": "web", "namespace": "default"}
	for name, labels := range map[string]map[string]string{
		"node_cpu_usage_seconds_total": nil, "node_memory_working_set_bytes": nil,
		"container_cpu_usage_seconds_total": of, "container_memory_working_set_bytes": of,
	} {
		s := sample(t, all, name, labels)
		if s.GetCounter().GetValue()+s.GetGauge().GetValue() == 0 || s.GetTimestampMs() == 0 {
			t.Errorf("%s: %v", name, s)
		}
	}
	if s := sample(t, all, "container_start_time_seconds", of); s.GetGauge().GetValue() == 0 {
		t.Errorf("the start: %v", s)
	}
}
