package pod

import (
	"fmt"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/pod/settings"
	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// resizeState is the world's state of the resources of containers.
type resizeState struct {
	carries    bool // containers carry the resources of their creation
	resized    bool
	refuses    int       // number of next changes of resources that fail
	refusesPod int       // number of next updates of the pod as a whole that are refused
	informed   []*v1.Pod // as sent to the runtime
	resizes    []string  // changed containers
	tried      []ResizeTried
	limit      int64 // of memory, of the pod's cgroup by its containers'
	own        int64 // of memory, of the pod itself; 0: none
}

// carry makes containers carry the resources of their creation, like real ones, and the runtime report those in effect.
func (w *world) carry() {
	w.carries, w.set.Resources = true, settings.Default(&Host{}, backoff.Policy{}, nil).Resources
	w.set.Actual = func(_ *v1.Pod, _ *v1.Container, reported messages.ContainerResources) v1.ResourceRequirements {
		return limitedTo(reported.MemoryLimit)
	}
	w.machine = NewMachine(string(w.pod.UID), w.set)
}

func limitedTo(bytes int64) v1.ResourceRequirements {
	list := v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(bytes, resource.BinarySI)}
	return v1.ResourceRequirements{Limits: list, Requests: list.DeepCopy()}
}

func toldOf(r v1.ResourceRequirements) *messages.ContainerResources {
	return &messages.ContainerResources{MemoryLimit: r.Limits.Memory().Value()}
}

// resizeContainer changes the resources of a container at once; the report of it comes later.
func (w *world) resizeContainer(e work.ResizeContainer) {
	gets := translate.EffectiveResources(e.Pod.Spec.Resources, e.Spec.Resources)
	out := work.ContainerResized{Name: e.Spec.Name, ID: e.ID, Resources: &gets, Sent: true}
	w.resizes = append(w.resizes, e.Spec.Name)
	i := slices.IndexFunc(w.containers, func(c messages.ContainerFact) bool { return c.ID == e.ID })
	switch {
	case w.refuses > 0:
		w.refuses--
		out.Failed = &messages.Reason{Code: "ResizeError", Message: "it does not want to"}
	case i < 0 || w.containers[i].State != messages.ContainerRunning:
		out.Failed = &messages.Reason{Code: "ResizeError", Message: "it does not run"}
	default:
		if now := toldOf(gets); now.MemoryLimit < w.containers[i].Resources.MemoryLimit && !e.Lower {
			w.fault("%s is lowered from %d to %d, and nobody looks at what it uses", e.ID, w.containers[i].Resources.MemoryLimit,
				now.MemoryLimit)
		}
		w.containers[i].Resources = toldOf(gets)
		out.Reported = toldOf(gets)
		w.checkLimits("after " + e.Spec.Name + " was changed")
	}
	w.send(out)
}

// checkGroup records the limit of the pod's cgroup.
func (w *world) checkGroup(pod *v1.Pod) {
	w.limit, w.own = 0, 0
	if r := pod.Spec.Resources; r != nil {
		w.own = r.Limits.Memory().Value()
	}
	for i := range pod.Spec.Containers {
		w.limit += pod.Spec.Containers[i].Resources.Limits.Memory().Value()
	}
	for i := range pod.Spec.InitContainers {
		w.limit += pod.Spec.InitContainers[i].Resources.Limits.Memory().Value()
	}
	if !translate.LimitsPod(pod, v1.ResourceMemory) {
		w.limit = math.MaxInt64
	}
	w.checkLimits("after its cgroup was changed")
}

// checkLimits: the pod's cgroup is never smaller than its containers. checkLimits adds up the containers that the pod knows. A
// container with an unreported start may have more than the pod's present allocation: its cgroup is widened when the report
// arrives.
func (w *world) checkLimits(when string) {
	sum, most := int64(0), int64(0)
	for _, c := range w.containers {
		known := w.machine.Container(c.Name)
		if c.State == messages.ContainerRunning && c.Resources != nil && known != nil && known.Running() && known.Newest().ID == c.ID {
			sum, most = sum+c.Resources.MemoryLimit, max(most, c.Resources.MemoryLimit)
		}
	}
	switch {
	case w.own == 0 && sum > w.limit:
		w.fault("%s its containers have %d, and its cgroup %d", when, sum, w.limit)
	case w.own != 0 && most > w.own:
		w.fault("%s a container has %d, and the pod %d", when, most, w.own)
	}
}

// unlike describes the difference between a running container's resources and its allocation, or returns "".
func (w *world) unlike(spec v1.Container, f messages.ContainerFact) string {
	if f.Name != spec.Name || f.State != messages.ContainerRunning || f.Resources == nil {
		return ""
	}
	if want := toldOf(translate.EffectiveResources(w.pod.Spec.Resources, spec.Resources)); *want != *f.Resources {
		return fmt.Sprintf("%s has %d, allocated is %d", f.ID, f.Resources.MemoryLimit, want.MemoryLimit)
	}
	if is := podspec.AllocationOf(w.groups[len(w.groups)-1]); w.machine.resizing.active || !is.IsOf(w.pod) {
		return fmt.Sprintf("its resize goes on: %+v, its cgroup is for %+v", w.machine.resizing, is)
	}
	return ""
}

// drawOwn gives the pod its own memory, more than a container has, so that containers without limits have the pod's.
func drawOwn(t *rapid.T) *v1.ResourceRequirements {
	return new(limitedTo(int64(rapid.IntRange(10, 19).Draw(t, "the pod's memory")) << 20))
}

// drawMemory returns the memory of a container: sometimes none of its own, if the pod has some.
func drawMemory(t *rapid.T, s *v1.PodSpec) v1.ResourceRequirements {
	if s.Resources != nil && rapid.Bool().Draw(t, "has the pod's") {
		return v1.ResourceRequirements{}
	}
	return limitedTo(int64(rapid.IntRange(1, 9).Draw(t, "memory")) << 20)
}

// drawResources gives containers memory, and some a policy that requires a restart for it.
func drawResources(t *rapid.T, pod *v1.Pod) {
	if rapid.IntRange(0, 2).Draw(t, "pod-level") == 0 {
		pod.Spec.Resources = drawOwn(t)
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			list[i].Resources = drawMemory(t, &pod.Spec)
			if rapid.IntRange(0, 3).Draw(t, "restarts") == 0 {
				list[i].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
			}
		}
	}
}

// resizeStorm allocates other resources to a pod of the API server: to sidecars, but not to other init containers.
func resizeStorm(t *rapid.T, w *world) {
	if !objectset.OfAPIServer(w.pod) || w.ending != nil || w.final != nil {
		return
	}
	w.resized = true
	w.edit(func(s *v1.PodSpec) {
		if s.Resources != nil {
			s.Resources = drawOwn(t)
		}
		for _, list := range [][]v1.Container{s.InitContainers, s.Containers} {
			for i := range list {
				if list[i].Name[0] == 'c' || w.sidecarNamed(list[i].Name) {
					list[i].Resources = drawMemory(t, s)
				}
			}
		}
	})
}

// updateSandbox sends the pod as a whole to the runtime, which may refuse.
func (w *world) updateSandbox(e work.UpdateSandbox) {
	if e.Pod != w.machine.cgroup.has {
		w.fault("the runtime is told of another pod than its cgroup is made for")
	}
	w.informed = append(w.informed, e.Pod)
	out := work.SandboxUpdated{ID: e.ID, Pod: e.Pod}
	if w.refusesPod > 0 {
		w.refusesPod--
		out.Failed = &messages.Reason{Code: "ResizeError", Message: "a plugin does not want it"}
	}
	w.send(out)
}
