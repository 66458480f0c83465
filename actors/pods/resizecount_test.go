package pods

import (
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/messages"
)

// resizeFamilies are the metrics that pods updates.
const resizeFamilies = `kubelet_container_requested_resizes_total kubelet_pod_infeasible_resizes_total
	kubelet_pod_deferred_accepted_resizes_total`

// counts returns a function that returns the increase of the counters since, by the values of the labels in the order of their
// names.
func counts(t *testing.T) (since func() map[string]float64) {
	t.Helper()
	read := func() map[string]float64 {
		all, err := metrics.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]float64{}
		for _, f := range all {
			if !strings.Contains(resizeFamilies, f.GetName()) {
				continue
			}
			for _, m := range f.GetMetric() {
				key := ""
				for _, l := range m.GetLabel() {
					key += " " + l.GetValue()
				}
				out[strings.TrimSpace(key)] = m.GetCounter().GetValue()
			}
		}
		return out
	}
	before := read()
	return func() map[string]float64 {
		now := read()
		for key, n := range now {
			if now[key] = n - before[key]; now[key] == 0 {
				delete(now, key)
			}
		}
		return now
	}
}

// The requested changes of a new version are counted by resource, by request or limit, and by operation.
func TestRequestedResizesAreCounted(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		out := v1.ResourceList{}
		for name, text := range map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourceMemory: memory} {
			if text != "" {
				out[name] = resource.MustParse(text)
			}
		}
		return out
	}
	pod := func(main, sidecar v1.ResourceRequirements) *v1.Pod {
		always := v1.ContainerRestartPolicyAlways
		return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: main}}, InitContainers: []v1.Container{
			{Name: "s", RestartPolicy: &always, Resources: sidecar}}}}
	}
	type r = v1.ResourceRequirements
	since := counts(t)
	countRequested(
		pod(r{Requests: list("1", "1Gi"), Limits: list("", "2Gi")}, r{Requests: list("1", "")}),
		pod(r{Requests: list("2", "1024Mi"), Limits: list("1", "")}, r{Requests: list("500m", "")}))
	want := map[string]float64{"increase requests cpu": 1, "add limits cpu": 1, "remove limits memory": 1, "decrease requests cpu": 1}
	if got := since(); !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// Each resize that was refused or had to wait is counted once, with the kubelet's terms for the cause and for the end of the
// wait.
func TestResizesAreCounted(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	since := counts(t)
	pods := []*v1.Pod{asking("a", 200), asking("bb", 200), asking("ccc", 600)}
	say := func(want map[string]float64, i int, p *v1.Pod) {
		t.Helper()
		pods[i] = p
		wants(n.Kit, messages.APIServer, pods...)
		n.RunWork()
		if got := since(); !maps.Equal(got, want) {
			t.Errorf("counted %v, want %v", got, want)
		}
		since = counts(t)
	}
	const more, less = "increase requests cpu", "decrease requests cpu"
	say(map[string]float64{}, 0, asking("a", 200))
	say(map[string]float64{more: 1, "insufficient_node_allocatable": 1}, 0, resized("a", 2, 5000))
	say(map[string]float64{}, 0, resized("a", 2, 5000)) // it is sent again
	say(map[string]float64{less: 1}, 0, resized("a", 3, 400))
	say(map[string]float64{less: 1, "pod_updated": 1}, 2, resized("ccc", 2, 300))
	say(map[string]float64{more: 1}, 1, resized("bb", 2, 600))
	n.Send(messages.PodAddress("ccc"), messages.PodStatusChanged{UID: "ccc", Status: &v1.PodStatus{Phase: v1.PodSucceeded}})
	n.expect("bb", 600, "")
	if got, want := since(), (map[string]float64{"pod_terminated": 1}); !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	since = counts(t)
	say(map[string]float64{more: 1}, 0, resized("a", 4, 1000))
	say(map[string]float64{less: 1}, 0, resized("a", 5, 400)) // it is withdrawn, and did not wait
	say(map[string]float64{less: 1}, 0, resized("a", 6, 300))
	say(map[string]float64{more: 1}, 0, resized("a", 7, 900))
	pods = pods[:1]
	wants(n.Kit, messages.APIServer, pods...)
	gone(n.Kit, "bb", &v1.PodStatus{Phase: v1.PodSucceeded})
	n.expect("a", 900, "")
	if got, want := since(), (map[string]float64{"pods_removed": 1}); !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}
