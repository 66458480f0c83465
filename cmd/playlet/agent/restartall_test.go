package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/supervisors"
)

// restartingAll is a node with a pod that restarts all its containers (KEP-5532) once its container "source" exits with 42. The
// other containers end slowly.
func restartingAll(t *testing.T, chaos supervisors.Interceptor) *clusterRig {
	t.Helper()
	slow := sim.Behaviour{Term: sim.Term{Delay: 50 * time.Millisecond, Code: 143}}
	r := newClusterRig(t, sim.Options{Script: sim.Script{ByContainer: map[string]sim.Sequence{
		"init": {sim.ExitAfter(0, 0)}, "sidecar": {slow}, "other": {slow}, "source": {sim.RunForever()},
	}}})
	text := manifest("api", "Never", []string{"init once", "sidecar forever"}, []string{"source forever", "other forever"})
	text = strings.Replace(text, "  - name: sidecar\n", "  - name: sidecar\n    restartPolicy: Always\n", 1)
	text = strings.Replace(text, "  - name: source\n", "  - name: source\n    restartPolicy: Never\n    restartPolicyRules: "+
		"[{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]\n", 1)
	r.binds(text)
	r.start(chaos)
	r.eventually("the pod is told to be ready", func() bool { return ready(r, 2) })
	return r
}

// endsSource ends the one that all go by.
func (r *clusterRig) endsSource() {
	r.t.Helper()
	if err := r.runtime.Exit(string(r.pod("api").UID), "source", 42, "Error"); err != nil {
		r.t.Fatal(err)
	}
}

// restartedAll waits until all are there in their n-th attempt, and no other.
func (r *clusterRig) restartedAll(n uint32) {
	r.t.Helper()
	r.eventually("all are restarted", func() bool {
		s, p := r.runtime.Snapshot(), r.pod("api")
		for _, name := range []string{"init", "sidecar", "source", "other"} {
			if c := s.Container("api", name); c == nil || c.Attempt != n || c.Running() == (name == "init") {
				return false
			}
		}
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if c.RestartCount != int32(n) || c.LastTerminationState.Terminated == nil {
				return false
			}
		}
		again := r.condition(v1.AllContainersRestarting)
		return ready(r, 2) && again != nil && again.Status == v1.ConditionFalse
	})
	if s := r.runtime.Snapshot(); len(s.Sandboxes) != 1 {
		r.t.Errorf("there are %d sandboxes", len(s.Sandboxes))
	}
	for _, v := range r.runtime.Violations() {
		r.t.Errorf("the runtime saw: %s", v)
	}
}

// An agent that stops at any moment leaves the rest to the next one, and no container is restarted twice.
func TestAllAreRestartedByTheNextAgent(t *testing.T) {
	r := restartingAll(t, nil)
	for n, moment := range []struct {
		name string
		is   func(sim.Snapshot) bool
	}{
		{"it has ended", func(s sim.Snapshot) bool { return !s.Container("api", "source").Running() }},
		{"another has", func(s sim.Snapshot) bool { return !s.Container("api", "other").Running() }},
		{"the sidecar has", func(s sim.Snapshot) bool { return !s.Container("api", "sidecar").Running() }},
		{"init runs again", func(s sim.Snapshot) bool { return s.Container("api", "init").Attempt == 4 }},
		{"the sidecar does", func(s sim.Snapshot) bool { return s.Container("api", "sidecar").Attempt == 5 }},
		{"it does", func(s sim.Snapshot) bool { return s.Container("api", "source").Attempt == 6 }},
	} {
		r.endsSource()
		r.await(moment.name, moment.is)
		r.stop()
		r.start(nil)
		r.restartedAll(uint32(n) + 1)
	}
	before := r.runtime.Snapshot()
	r.stop()
	r.start(nil)
	r.untilPrinted([]string{"pods"}, "api", "Running")
	for _, name := range []string{"init", "sidecar", "source", "other"} {
		if was, is := before.Container("api", name), r.runtime.Snapshot().Container("api", name); was.ID != is.ID {
			t.Errorf("the next agent made %s again", name)
		}
	}
	r.eventually("Events tell why", func() bool {
		for text := range r.events("api") {
			if strings.Contains(text, "Killing") && strings.Contains(text, "container source exited with code 42, all will be restarted") {
				return true
			}
		}
		return false
	})
}

// Whatever actor falls at whatever message, and whichever message is lost: all are restarted, and once.
func TestAllAreRestartedWhereActorsFall(t *testing.T) {
	t.Parallel()
	w := &watcher{seen: map[spot]int{}, losing: map[spot]bool{}, shared: map[*v1.Pod]*v1.Pod{}}
	day := func(t *testing.T, chaos supervisors.Interceptor) {
		gate := &later{Interceptor: chaos}
		r := restartingAll(t, gate)
		gate.open.Store(true)
		r.endsSource()
		r.restartedAll(1)
		r.stop()
	}
	if !t.Run("undisturbed", func(t *testing.T) { day(t, w) }) {
		return
	}
	strikes := w.strikes([]supervisors.Kind{"pods", "pod", "container"}, "before", "after", "lost")
	onDays(t, strikes, func(t *testing.T, strikes []strike) { day(t, newKiller(strikes)) })
}
