package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// resizable is a world with a pod of the API server that runs, whose containers carry what they were made with.
func resizable(t *testing.T) *world {
	t.Helper()
	pod := cloudPod(v1.RestartPolicyAlways, 0, 2)
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Resources = limited("1Gi")
	}
	w := newWorld(pod)
	w.set.Resources = madeWith
	w.restart()
	w.settle()
	for i := range w.containers {
		w.containers[i].Annotations = carrying(t, &pod.Spec.Containers[i], limited("1Gi")).Annotations
	}
	w.step(w.observed())
	return w
}

func (w *world) resize(container int, memory string) {
	w.edit(func(s *v1.PodSpec) { s.Containers[container].Resources = limited(memory) })
	w.pod.Generation++
	w.settle()
}

// Nothing changes for a pod that is resized in place: neither its cgroup, nor what its containers run with, nor what one that is
// started again gets, also for an actor that begins anew. The pod says so, until the resize is taken back.
func TestAResizeStaysPending(t *testing.T) {
	for name, restart := range map[string]bool{"the actor lives on": false, "the actor begins anew": true} {
		t.Run(name, func(t *testing.T) {
			w := resizable(t)
			w.groups = nil
			w.resize(0, "512Mi")
			if restart {
				w.restart()
				w.settle()
			}
			w.exit = func(name string, attempt uint32) (int32, bool) { return 1, name == "c0" && attempt == 0 }
			w.settle()
			check(t, w)
			for _, p := range w.groups {
				if got := p.Spec.Containers[0].Resources.Limits.Memory().String(); got != "1Gi" {
					t.Errorf("its cgroup was made for %s", got)
				}
			}
			if c := w.machine.container("c0"); len(w.groups) == 0 || c.newest().Attempt != 1 ||
				c.spec.Resources.Limits.Memory().String() != "1Gi" {
				t.Errorf("%d cgroups; attempt %d has %v", len(w.groups), c.newest().Attempt, c.spec.Resources)
			}
			s := w.status
			pending := conditionOf(s, v1.PodResizePending)
			if pending == nil || pending.Status != v1.ConditionTrue || pending.Reason != v1.PodReasonInfeasible ||
				pending.Message == "" ||
				pending.ObservedGeneration != w.pod.Generation || s.ObservedGeneration != w.pod.Generation {
				t.Errorf("it says %+v, generation %d", pending, s.ObservedGeneration)
			}
			for _, c := range s.ContainerStatuses {
				if c.Resources.Limits.Memory().String() != "1Gi" || c.AllocatedResources.Memory().String() != "1Gi" {
					t.Errorf("%s has %+v, %v", c.Name, c.Resources, c.AllocatedResources)
				}
			}
			w.resize(0, "1Gi")
			if check(t, w); conditionOf(w.status, v1.PodResizePending) != nil {
				t.Error("a resize that was taken back is pending")
			}
		})
	}
}

func conditionOf(s *v1.PodStatus, t v1.PodConditionType) *v1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// A kubelet's containers carry no resources: what it allocated stands in the status.
func TestAResizeOfAKubeletsPodStaysPending(t *testing.T) {
	pod := cloudPod(v1.RestartPolicyAlways, 0, 1)
	pod.Spec.Containers[0].Resources = limited("512Mi")
	m := NewMachine("u1", newWorld(pod).set)
	was := limited("1Gi")
	m.desired = &messages.PodWanted{Pod: pod, Last: &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
		{Name: "c0", Resources: &was, AllocatedResources: was.Requests},
	}}}
	if got := m.allocate(pod); !m.resized || got.Spec.Containers[0].Resources.Limits.Memory().String() != "1Gi" {
		t.Errorf("resized %v: %+v", m.resized, got.Spec.Containers[0].Resources)
	}
	if pod.Spec.Containers[0].Resources.Limits.Memory().String() != "512Mi" {
		t.Error("an object that is shared was changed")
	}
}
