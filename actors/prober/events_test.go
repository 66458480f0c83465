package prober

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

func recorded(k *supervisortest.Kit) (out []string) {
	for _, m := range k.Take() {
		if e, ok := m.Msg.(messages.RecordEvent); ok {
			out = append(out, e.Object.Name+" "+e.Object.FieldPath+" "+e.Type+" "+e.Reason+": "+e.Message)
		}
	}
	return out
}

func podOf(c *v1.Container) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"},
		Spec: v1.PodSpec{Containers: []v1.Container{*c}}}
}

// Each failing run has an Event, as in the kubelet, whether or not it reaches the threshold.
func TestEachFailureIsAnEvent(t *testing.T) {
	for _, on := range []bool{true, false} {
		r := newRuntime()
		k := newKit(t, folder(t), r, func(o *Options) { o.Events = on })
		spec := container("c", map[messages.ProbeKind]*v1.Probe{messages.Liveness: command()})
		w := watchOf(k, 1, spec, "id", messages.Liveness)
		w.Pod = podOf(spec)
		k.Send("pods/u1", w)
		k.RunWork()
		step(k, 21)
		if got := recorded(k); got != nil {
			t.Errorf("a probe that succeeds: %q", got)
		}
		r.codes["id"] = 1
		step(k, 20)
		const one = "web spec.containers{c} Warning Unhealthy: Liveness probe failed: command ended with code 1"
		want := []string{one, one}
		if !on {
			want = nil
		}
		if got := recorded(k); !slices.Equal(got, want) {
			t.Errorf("events %v: %q", on, got)
		}
	}
}

// A probe that cannot run has one Event, without the container's ID in the runtime's message.
func TestUnrunnableProbe_IsAnEvent(t *testing.T) {
	s := newState([pools]int{}, func() float64 { return 0 })
	spec := container("c", map[messages.ProbeKind]*v1.Probe{messages.Readiness: command()})
	p := &probe{pod: &podState{uid: "u1", desired: messages.WatchProbes{Pod: podOf(spec)}},
		container: &containerState{spec: spec, id: "0123"}, kind: messages.Readiness, spec: spec.ReadinessProbe}
	p.pod.containers = map[string]*containerState{"c": p.container}
	var got []string
	for _, o := range []outcome{
		{result: unknown, message: "container 0123 is gone"}, {result: unknown, message: "container 0123 is gone"},
		{result: warning, message: "Probe terminated redirects"}, {result: success},
	} {
		for _, e := range s.count(time.Unix(1, 0), p, o) {
			if n, ok := e.(podEvent); ok {
				got = append(got, n.reason+": "+n.message)
			}
		}
	}
	want := []string{
		"Unhealthy: Readiness probe errored and resulted in unknown state: container c is gone",
		"ProbeWarning: Readiness probe warning: Probe terminated redirects",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if p.container.results.Readiness != messages.ProbeSucceeded {
		t.Error("a warning is no success")
	}
}
