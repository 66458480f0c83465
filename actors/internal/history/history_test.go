package history

import (
	"fmt"
	"testing"
	"time"

	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// summary has a node and pods with one container each, which use as many cores and have received as many bytes as n.
func summary(n uint64, pods ...string) *api.Summary {
	use := &api.CPUStats{UsageNanoCores: ptr.To(n * 1e9)}
	network := &api.NetworkStats{InterfaceStats: api.InterfaceStats{RxBytes: ptr.To(n * 100), TxBytes: ptr.To[uint64](0)}}
	out := &api.Summary{Node: api.NodeStats{CPU: use, Network: network,
		SystemContainers: []api.ContainerStats{{Name: "kubelet", Memory: &api.MemoryStats{WorkingSetBytes: ptr.To(n)}}}}}
	for _, uid := range pods {
		out.Pods = append(out.Pods, api.PodStats{PodRef: api.PodReference{UID: uid}, CPU: use, Network: network,
			Containers: []api.ContainerStats{{Name: "app", CPU: use}}})
	}
	return out
}

func TestHistory_RecordsRates(t *testing.T) {
	var h History
	h.Add(start, summary(1, "a"))
	h.Add(start.Add(Every), summary(3, "a", "b"))
	h.Add(start.Add(2*Every), summary(2, "b")) // the counters were reset
	node := h.Of("")
	if len(node) != 2 || node[0].Name != "" || node[1].Name != "kubelet" || len(node[0].Samples) != 3 {
		t.Fatalf("got the series %+v of the node", node)
	}
	s := node[0].Samples
	if *s[2].CPU != 2 || s[0].Received != nil || *s[1].Received != 20 || s[2].Received != nil || s[1].RSS != nil {
		t.Errorf("got the samples %+v of the node", s)
	}
	a := h.Of("a")
	if len(a) != 2 || a[1].Name != "app" || len(a[0].Samples) != 2 || !a[0].Samples[1].At.Equal(start.Add(Every)) {
		t.Errorf("got the series %+v of a pod that ended", a)
	}
	h.Add(start.Add(3*Every), summary(9, "a"))
	if s := h.Of("a")[0].Samples; len(s) != 3 || s[2].Received != nil {
		t.Errorf("got the samples %+v, want no rate over a gap", s)
	}
	if none := h.Of("c"); len(none) != 0 {
		t.Errorf("got the series %+v of an unknown pod", none)
	}
}

func TestHistory_DropsOldSamplesAndSeries(t *testing.T) {
	var h History
	for i := range 3 * Samples {
		h.Add(start.Add(time.Duration(i)*Every), summary(1, fmt.Sprint(i)))
	}
	if s := h.Of("")[0].Samples; len(s) != Samples || !s[0].At.Equal(start.Add(2*Samples*Every)) {
		t.Errorf("got %d samples from %v, want the last %d", len(s), s[0].At, Samples)
	}
	if n := len(h.series); n != 2+2*Samples {
		t.Errorf("got %d series, want those of the last %d pods", n, Samples)
	}
}

func TestHistory_IsBounded(t *testing.T) {
	var h History
	var uids []string
	for i := range maxSeries {
		uids = append(uids, fmt.Sprint(i))
	}
	h.Add(start, summary(1, uids...))
	if len(h.series) != maxSeries {
		t.Errorf("got %d series, want %d", len(h.series), maxSeries)
	}
	if len(h.Of("5")) != 1 {
		t.Error("a pod was left out while containers were recorded")
	}
}

func TestHistory_EndsWhenNobodyReads(t *testing.T) {
	var h History
	if h.Active(start) {
		t.Error("recording is on before the first request")
	}
	if !h.Request(start) || !h.Active(start) {
		t.Error("the first request does not start recording")
	}
	h.Add(start, summary(1))
	if h.Request(start.Add(Every)) {
		t.Error("a request starts a recorder that runs")
	}
	if !h.Request(start.Add(3 * Every)) {
		t.Error("a request does not start a recorder whose samples are old")
	}
	if end := start.Add(3*Every + Idle); !h.Active(end.Add(-1)) || h.Active(end) || len(h.Of("")) != 0 {
		t.Error("recording does not end, or keeps its samples")
	}
}
