package shutdown

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/board"
)

func pod(name string, priority *int32, grace int64) board.Pod {
	return board.Pod{Phase: "running", Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: v1.PodSpec{Priority: priority, TerminationGracePeriodSeconds: &grace}}}
}

func TestGroups(t *testing.T) {
	by := func(pairs ...int) (out []kubeletconfig.ShutdownGracePeriodByPodPriority) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, kubeletconfig.ShutdownGracePeriodByPodPriority{Priority: int32(pairs[i]),
				ShutdownGracePeriodSeconds: int64(pairs[i+1])})
		}
		return out
	}
	for name, c := range map[string]struct {
		whole, critical time.Duration
		by              []kubeletconfig.ShutdownGracePeriodByPodPriority
		want            []Group
		total           time.Duration
	}{
		"off":          {want: []Group{}},
		"two":          {whole: 30 * time.Second, critical: 10 * time.Second, want: []Group{{0, 20 * time.Second}, {critical, 10 * time.Second}}, total: 30 * time.Second},
		"all critical": {whole: 10 * time.Second, critical: 10 * time.Second, want: []Group{{0, 0}, {critical, 10 * time.Second}}, total: 10 * time.Second},
		"by priority":  {by: by(100, 5, 0, 60, 2000, 1), want: []Group{{0, time.Minute}, {100, 5 * time.Second}, {2000, time.Second}}, total: 66 * time.Second},
	} {
		if got := Groups(c.whole, c.critical, c.by); !slices.Equal(got, c.want) || total(got) != c.total {
			t.Errorf("%s: %v, %v", name, got, total(got))
		}
	}
}

func TestWhoEndsWithWhichGroup(t *testing.T) {
	groups := []Group{{0, 20 * time.Second}, {100, 10 * time.Second}, {critical, 5 * time.Second}, {critical + 1000, 2 * time.Second}}
	static, apiserver := pod("static", nil, 15), pod("kube-apiserver", ptr.To[int32](critical+1000), 30)
	proxy, dns := pod("kube-proxy", nil, 30), pod("dns", nil, 30) // no API server has resolved their classes
	proxy.Pod.Spec.PriorityClassName, dns.Pod.Spec.PriorityClassName = "system-node-critical", "system-cluster-critical"
	for _, p := range []board.Pod{static, apiserver, proxy, dns} { // critical for admission, and by its spec alone here
		p.Pod.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	}
	over, waits := pod("over", nil, 30), pod("waits", nil, 30)
	over.Phase, waits.Phase = "finished", "held"
	pods := []board.Pod{pod("plain", nil, 30), pod("negative", ptr.To[int32](-5), 1), pod("high", ptr.To[int32](100), 30),
		pod("higher", ptr.To[int32](1000), 3), pod("system", ptr.To[int32](critical), 30), static, apiserver, proxy, dns,
		over, waits}
	for i, want := range []string{"plain:20 negative:1 static:15", "high:10 higher:3", "system:5 dns:5",
		"kube-apiserver:2 kube-proxy:2"} {
		var got []string
		for _, p := range members(groups, i, pods) {
			f := failure(groups[i], p)
			got = append(got, fmt.Sprintf("%s:%d", p.Name, *f.Grace))
			if f.Reason != "Terminated" || f.Message != "Pod was terminated in response to imminent node shutdown." || f.Disruption != f.Message {
				t.Errorf("%+v", f)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("group %d: %v, want %s", i, got, want)
		}
	}
}
