//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/playlet-dev/playlet/e2e/stack"
)

const figuresPort = 10255

// incomplete is in metrics that lack figures.
var incomplete = regexp.MustCompile(`(?m)^(resource|container)_scrape_error [^0]`)

// figure reads a path of the agent's port without credentials.
func figure(t *testing.T, path string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", figuresPort, path), nil)
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	must(t, resp.Body.Close())
	if resp.StatusCode != http.StatusOK || incomplete.Match(body) {
		t.Fatalf("%s: %s: %s", path, resp.Status, body)
	}
	return body
}

// metric is the value of a family's only sample that has these labels.
func metric(t *testing.T, text []byte, name string, labels map[string]string) float64 {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	must(t, err)
	var found []float64
	for _, m := range all[name].GetMetric() {
		have := 0
		for _, l := range m.GetLabel() {
			if want, asked := labels[l.GetName()]; asked && want == l.GetValue() {
				have++
			}
		}
		if have == len(labels) {
			found = append(found, m.GetCounter().GetValue()+m.GetGauge().GetValue())
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s%v: %v in %v", name, labels, found, all[name])
	}
	return found[0]
}

// cpuSeconds returns the kernel's CPU time of a cgroup.
func cpuSeconds(t *testing.T, group string) float64 {
	t.Helper()
	text, err := os.ReadFile(groupFile(group, "cpuacct/cpuacct.usage", "cpu.stat"))
	must(t, err)
	words, unit := strings.Fields(string(text)), 1e9
	if unified() {
		words, unit = words[1:], 1e6
	}
	n, err := strconv.ParseFloat(words[0], 64)
	must(t, err)
	return n / unit
}

// /stats/summary, /metrics/resource, /metrics/cadvisor and the kernel's own files agree on a pod's usage.
func TestFigures(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a := agentWith(t, s, func(a *stack.Agent) {
		a.Config["readOnlyPort"], a.Config["address"] = figuresPort, "127.0.0.1"
	})
	must(t, a.Write("p.yaml", manifest(s, "p", `
terminationGracePeriodSeconds: 1
volumes: [{name: data, emptyDir: {}}]
containers:
- {name: one, image: HELLO, args: [args, hello, '--', sleep], volumeMounts: [{name: data, mountPath: /data}], resources: {limits: {memory: 64Mi}}}`)))
	p := awaitPod(t, a, "p", ready)
	id := up(t, s, "p", "one").Id
	group := groupOf(t, s, id)
	const written = 3 << 20
	data := filepath.Join(a.RootDir, "pods", string(p.UID), "volumes", "kubernetes.io~empty-dir", "data")
	must(t, os.WriteFile(filepath.Join(data, "file"), make([]byte, written), 0o600))

	before := cpuSeconds(t, group)
	var sum api.Summary
	must(t, json.Unmarshal(figure(t, "/stats/summary"), &sum))
	after := cpuSeconds(t, group)
	cadvisor, resource := figure(t, "/metrics/cadvisor"), figure(t, "/metrics/resource")
	if len(sum.Pods) != 1 || len(sum.Pods[0].Containers) != 1 || sum.Pods[0].PodRef.Name != onNode("p") {
		t.Fatalf("%+v", sum.Pods)
	}
	pod := sum.Pods[0]
	one := pod.Containers[0]
	cpu := float64(*one.CPU.UsageCoreNanoSeconds) / 1e9
	if cpu < before || cpu > after || cpu == 0 {
		t.Errorf("CPU %v, and the kernel told %v before and %v after", cpu, before, after)
	}
	of := map[string]string{"container": "one", "pod": onNode("p"), "namespace": "default"}
	if got := metric(t, resource, "container_cpu_usage_seconds_total", of); math.Abs(got-cpu) > 0.5 {
		t.Errorf("/metrics/resource tells %v, /stats/summary %v", got, cpu)
	}
	of["id"], of["name"] = group, id
	if got := metric(t, cadvisor, "container_cpu_usage_seconds_total", of); got != cpu {
		t.Errorf("/metrics/cadvisor tells %v, /stats/summary %v", got, cpu)
	}
	if got := metric(t, cadvisor, "container_memory_working_set_bytes", of); got != float64(*one.Memory.WorkingSetBytes) || got == 0 {
		t.Errorf("/metrics/cadvisor tells %v, /stats/summary %v", got, *one.Memory.WorkingSetBytes)
	}
	if got := metric(t, cadvisor, "container_spec_memory_limit_bytes", of); got != 64<<20 {
		t.Errorf("a limit of %v", got)
	}
	// The sandbox has the network.
	network := map[string]string{"pod": onNode("p"), "container": "", "interface": "eth0", "image": s.PauseImage()}
	if got := metric(t, cadvisor, "container_network_receive_bytes_total", network); got != float64(*pod.Network.RxBytes) {
		t.Errorf("/metrics/cadvisor tells %v received, /stats/summary %v", got, *pod.Network.RxBytes)
	}
	if len(pod.VolumeStats) == 0 || *pod.VolumeStats[0].UsedBytes < written || *pod.EphemeralStorage.UsedBytes < written ||
		one.Rootfs == nil || *one.Rootfs.CapacityBytes == 0 || one.Logs == nil || *one.Logs.UsedBytes == 0 ||
		*pod.ProcessStats.ProcessCount < 2 || *one.Memory.AvailableBytes == 0 || *pod.CPU.UsageCoreNanoSeconds < *one.CPU.UsageCoreNanoSeconds {
		text, _ := json.Marshal(pod)
		t.Errorf("%s", text)
	}
	if n := sum.Node; n.Fs == nil || n.Runtime.ImageFs == nil || *n.Runtime.ImageFs.CapacityBytes == 0 || *n.Memory.WorkingSetBytes == 0 {
		text, _ := json.Marshal(n)
		t.Errorf("%s", text)
	}
	metrics := figure(t, "/metrics")
	if got := metric(t, metrics, "kubelet_running_pods", nil); got != 1 {
		t.Errorf("%v pods run", got)
	}
	if got := metric(t, metrics, "kubelet_runtime_operations_total", map[string]string{"operation_type": "run_podsandbox"}); got != 1 {
		t.Errorf("%v sandboxes were run", got)
	}
	must(t, a.Remove("p.yaml"))
	forgotten(t, a, "p")
}
