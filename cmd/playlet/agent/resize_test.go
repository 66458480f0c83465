package agent

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/supervisors"
)

// resizing is a node with a pod of two containers: one is resized while it runs, the other is restarted for it.
func resizing(t *testing.T, chaos supervisors.Interceptor) *clusterRig {
	t.Helper()
	r := newClusterRig(t, sim.Options{})
	text := manifest("api", "Always", nil, []string{"live forever", "anew forever"})
	text = strings.Replace(text, "  - name: anew\n",
		"  - name: anew\n    resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]\n", 1)
	text = strings.ReplaceAll(text, "    image: forever\n", "    image: forever\n    resources: "+
		"{requests: {cpu: 10m, memory: 20Mi}, limits: {cpu: 200m, memory: 64Mi}}\n")
	r.binds(text)
	r.start(chaos)
	r.eventually("the pod is told to be ready", func() bool { return ready(r, 2) })
	return r
}

func ready(r *clusterRig, containers int) bool {
	n := 0
	for _, c := range r.pod("api").Status.ContainerStatuses {
		if c.Ready {
			n++
		}
	}
	return n == containers
}

// resizes has the containers ask for other resources, as a patch of the subresource resize does.
func (r *clusterRig) resizes(cpu, memory string) {
	r.t.Helper()
	r.edits("api", func(p *v1.Pod) {
		for i := range p.Spec.Containers {
			for _, list := range []v1.ResourceList{p.Spec.Containers[i].Resources.Limits, p.Spec.Containers[i].Resources.Requests} {
				list[v1.ResourceCPU], list[v1.ResourceMemory] = resource.MustParse(cpu), resource.MustParse(memory)
			}
		}
	})
}

// condition is the pod's of this type, as the API server has it; nil where there is none.
func (r *clusterRig) condition(t v1.PodConditionType) *v1.PodCondition {
	conditions := r.pod("api").Status.Conditions
	if i := slices.IndexFunc(conditions, func(c v1.PodCondition) bool { return c.Type == t }); i >= 0 {
		return &conditions[i]
	}
	return nil
}

// resized waits until the containers have that memory, and the API server has the status for this version of the pod.
func (r *clusterRig) resized(memory string) {
	r.t.Helper()
	want := resource.MustParse(memory)
	r.eventually("the resize is done", func() bool {
		s, p := r.runtime.Snapshot(), r.pod("api")
		for _, name := range []string{"live", "anew"} {
			c := s.Container("api", name)
			if c == nil || !c.Running() || c.Resources.GetMemoryLimitInBytes() != want.Value() {
				return false
			}
		}
		for _, c := range p.Status.ContainerStatuses {
			if c.Resources == nil || c.Resources.Limits.Memory().Cmp(want) != 0 || c.AllocatedResources.Memory().Cmp(want) != 0 {
				return false
			}
		}
		return ready(r, 2) && p.Status.ObservedGeneration == p.Generation && r.condition(v1.PodResizeInProgress) == nil &&
			r.condition(v1.PodResizePending) == nil
	})
	s := r.runtime.Snapshot()
	if live, anew := s.Container("api", "live"), s.Container("api", "anew"); live.Attempt != 0 || anew.Attempt == 0 {
		r.t.Errorf("the live one is attempt %d, the one that is made anew %d", live.Attempt, anew.Attempt)
	}
}

// A pod is resized up and down, also by an agent that finds it running. A request that exceeds the node is infeasible.
func TestAPodIsResized(t *testing.T) {
	r := resizing(t, nil)
	r.resizes("300m", "96Mi")
	r.resized("96Mi")
	if c := r.runtime.Snapshot().Container("api", "live"); c.Resources.GetCpuQuota() != 30000 || c.Resources.GetCpuShares() != 307 {
		t.Errorf("it has %v", c.Resources)
	}
	if len(r.runtime.Calls("UpdatePodSandboxResources")) == 0 {
		t.Error("the runtime was not told of the pod as a whole")
	}
	r.resizes("400k", "96Mi")
	r.eventually("it is told infeasible", func() bool {
		c := r.condition(v1.PodResizePending)
		return c != nil && c.Reason == v1.PodReasonInfeasible && c.ObservedGeneration == r.pod("api").Generation
	})
	r.stop()
	r.resizes("100m", "32Mi")
	r.start(nil)
	r.resized("32Mi")
	if attempt := r.runtime.Snapshot().Container("api", "anew").Attempt; attempt != 2 {
		t.Errorf("it was made anew %d times, wanted are two", attempt)
	}
	checkViolations(t, r.rig)
}

// A memory limit is never set below the usage: the resize is reported as pending, and done once the usage is lower.
func TestNoLimitBelowWhatIsUsed(t *testing.T) {
	r := resizing(t, nil)
	r.resizes("200m", "900Ki") // the simulated ones use 1 MiB
	r.eventually("the error is told", func() bool {
		c := r.condition(v1.PodResizeInProgress)
		return c != nil && c.Reason == v1.PodReasonError && strings.Contains(c.Message, "below current usage (1048576)")
	})
	if c := r.runtime.Snapshot().Container("api", "live"); c.Resources.GetMemoryLimitInBytes() != 64<<20 {
		t.Errorf("its limit is %d", c.Resources.GetMemoryLimitInBytes())
	}
	r.resizes("200m", "48Mi")
	r.resized("48Mi")
}

// Any actor panics, or the agent is killed, or a message is lost, at any message of a resize. The resize completes, and only the
// container that needs a restart is restarted.
func TestAResizeWhereActorsFall(t *testing.T) {
	t.Parallel()
	w := &watcher{seen: map[spot]int{}, losing: map[spot]bool{}, shared: map[*v1.Pod]*v1.Pod{}}
	day := func(t *testing.T, chaos supervisors.Interceptor) {
		gate := &later{Interceptor: chaos}
		r := resizing(t, gate)
		if k, kills := chaos.(*killer); kills {
			k.whole = r.fallsWhole()
		}
		gate.open.Store(true)
		r.resizes("300m", "96Mi")
		r.resized("96Mi")
		r.resizes("100m", "32Mi")
		r.resized("32Mi")
		r.stop()
		checkViolations(t, r.rig)
	}
	if !t.Run("undisturbed", func(t *testing.T) { day(t, w) }) {
		return
	}
	w.checkShared(t)
	strikes := w.strikes([]supervisors.Kind{"pods", "pod", "container", "resources"}, "before", "after", "lost", "all")
	onDays(t, strikes, func(t *testing.T, strikes []strike) { day(t, newKiller(strikes)) })
}

// later lets an interceptor act from when it is opened on.
type later struct {
	supervisors.Interceptor
	open atomic.Bool
}

func (l *later) Before(d supervisors.Delivery) supervisors.Verdict {
	if !l.open.Load() {
		return supervisors.Verdict{}
	}
	return l.Interceptor.Before(d)
}

func (l *later) After(d supervisors.Delivery) supervisors.Verdict {
	if !l.open.Load() {
		return supervisors.Verdict{}
	}
	return l.Interceptor.After(d)
}
