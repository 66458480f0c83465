package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
)

func value(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetCounter().GetValue() + out.GetGauge().GetValue()
}

func statusOf(name string, ended *v1.ContainerStateTerminated) *v1.PodStatus {
	return &v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{{Name: name, State: v1.ContainerState{Terminated: ended}}}}
}

// Each end is counted once, and none that was there before the agent.
func TestStatusChanged(t *testing.T) {
	t.Cleanup(terminated.Reset)
	count := func() float64 { return value(t, terminated.WithLabelValues("init_container", "3", "Test")) }
	running, ended := statusOf("c", nil), statusOf("c", &v1.ContainerStateTerminated{ExitCode: 3, Reason: "Test"})
	for i, c := range []struct {
		was, now *v1.PodStatus
		want     float64
	}{
		{nil, ended, 0}, {running, ended, 1}, {ended, ended, 1}, {ended, running, 1}, {&v1.PodStatus{}, ended, 2}, {ended, nil, 2},
	} {
		StatusChanged(c.was, c.now)
		if got := count(); got != c.want {
			t.Errorf("%d: %v ends, want %v", i, got, c.want)
		}
	}
}

func TestNotStarted_ContainerTypes(t *testing.T) {
	t.Cleanup(unstarted.Reset)
	pod := &v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "i"}}, Containers: []v1.Container{{Name: "c"}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e"}}}}}
	for name, kind := range map[string]string{"i": "init_container", "c": "container", "e": "ephemeral_container"} {
		NotStarted(pod, name, "Test")
		if got := value(t, unstarted.WithLabelValues(kind, "Test")); got != 1 {
			t.Errorf("%s: %v, want 1", kind, got)
		}
	}
}

// The startup times are set for a Node that this agent created. They stay zero for an existing Node.
func TestNodeStartup(t *testing.T) {
	t.Cleanup(func() {
		for _, g := range []prometheus.Gauge{startupAgent, startupAttempt, startupRegistered, startupReady, startupAll} {
			g.Set(0)
		}
	})
	at := func(seconds int) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(seconds) * time.Second) }
	ready := &v1.Node{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}}}
	var s NodeStartup
	s.Observed(ready, at(1))
	if got := value(t, startupReady); got != 0 {
		t.Errorf("a Node that was there: %v", got)
	}
	s.Attempted(at(2))
	s.Attempted(at(3))
	s.Registered(at(0), at(5))
	s.Registered(at(0), at(6))
	s.Observed(nil, at(7))
	s.Observed(&v1.Node{}, at(8))
	s.Observed(ready, at(9))
	s.Observed(ready, at(10))
	for name, c := range map[string]struct {
		g    prometheus.Gauge
		want float64
	}{"before the registration": {startupAttempt, 2}, "registration": {startupRegistered, 3}, "ready": {startupReady, 4}} {
		if got := value(t, c.g); got != c.want {
			t.Errorf("%s: %v s, want %v", name, got, c.want)
		}
	}
	if value(t, startupAll) <= 0 || value(t, startupAgent) <= 0 {
		t.Error("the machine's start is not known")
	}
}

func TestSetProviderConfig_ReplacesTheHash(t *testing.T) {
	t.Cleanup(providerConfig.Reset)
	SetProviderConfig("a")
	SetProviderConfig("b")
	metrics := make(chan prometheus.Metric, 9)
	providerConfig.Collect(metrics)
	if len(metrics) != 1 {
		t.Errorf("%d hashes, want 1", len(metrics))
	}
}
