// Package resources compares the resources in effect of a container with its allocation, while a resize is in progress (KEP-1287,
// KEP-5419). Resources of a container are its effective ones: they include the pod's limits if it has none of its own.
package resources

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/pod/settings"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// AttemptState is the state of the resources of one attempt of a container. The zero value means no change since the creation.
type AttemptState struct {
	made     *v1.ResourceRequirements // at its creation, read once; nil: unknown
	read     bool
	since    bool                         // it may have been changed after its creation: then the other fields count
	has      *v1.ResourceRequirements     // nil: unknown
	tries    *v1.ResourceRequirements     // possibly in effect: a change in progress or without a known outcome
	reported *messages.ContainerResources // by the runtime, after the change
}

// Gave records a change and the runtime's report after it.
func (g *AttemptState) Gave(resources *v1.ResourceRequirements, reported *messages.ContainerResources) {
	g.since, g.has, g.tries, g.reported = true, resources, nil, reported
}

// Failed records that a change failed. If it was sent, a part may be in effect.
func (g *AttemptState) Failed(sent bool) {
	if g.tries = nil; sent {
		g.has = nil
	}
}

// Container is a running container.
type Container struct {
	*AttemptState
	Pod  *v1.Pod
	Spec *v1.Container
	Fact *messages.ContainerFact
	Set  *settings.Settings
}

// Allocated returns the allocation of a container.
func Allocated(pod *v1.Pod, spec *v1.Container) v1.ResourceRequirements {
	return translate.EffectiveResources(pod.Spec.Resources, spec.Resources)
}

// Begin records the resources in effect when the pod's actor begins. They are unknown after an earlier resize of the pod.
func (c *Container) Begin(resized bool) {
	var has *v1.ResourceRequirements
	if !resized { // a container of a kubelet carries nothing: pods has the values from the status
		has = cmp.Or(c.madeWith(), c.gets())
	}
	c.Gave(has, c.Fact.Resources)
}

// Try records that the allocation is being applied, and reports whether it lowers any resource.
func (c *Container) Try() (lowers bool) {
	most, lowers := widened(*c.gets(), c.most()), c.Lowers()
	if !c.since {
		c.Gave(c.last(), c.Fact.Resources)
	}
	c.tries = &most
	return lowers
}

func (c *Container) gets() *v1.ResourceRequirements { return new(Allocated(c.Pod, c.Spec)) }

func (c *Container) madeWith() *v1.ResourceRequirements {
	if !c.read {
		c.read, c.made = true, c.Set.Resources(c.Pod, *c.Fact)
	}
	return c.made
}

// last returns the last applied resources, or nil if unknown.
func (c *Container) last() *v1.ResourceRequirements {
	if c.since {
		return c.has
	}
	return cmp.Or(c.madeWith(), c.gets())
}

// most returns the maximum of the resources that may be in effect.
func (c *Container) most() v1.ResourceRequirements {
	out := c.Has()
	if c.tries != nil {
		out = widened(out, *c.tries)
	}
	return out
}

// Has returns the resources in effect: as reported by the runtime, or else as last applied.
func (c *Container) Has() v1.ResourceRequirements {
	has, reported := c.last(), c.Fact.Resources
	if c.since {
		reported = c.reported
	}
	if has == nil {
		if has = c.madeWith(); has == nil || reported != nil {
			has = c.gets()
		}
	}
	if reported == nil {
		return *has.DeepCopy()
	}
	spec := *c.Spec
	spec.Resources = *has
	return c.Set.Actual(c.Pod, &spec, *reported)
}

// Settled reports whether the allocation is known to be in effect.
func (c *Container) Settled() bool {
	has := c.last()
	return has != nil && equality.Semantic.DeepEqual(has, c.gets()) && c.tries == nil
}

// Restarts reports whether the container has to be restarted for its resources, by its resizePolicy. If the last change is
// unknown, the resources of its creation count: such resources do not change while it runs.
func (c *Container) Restarts() bool {
	has, gets := c.last(), c.gets()
	if has == nil {
		has = c.madeWith()
	}
	return has != nil && slices.ContainsFunc(c.Spec.ResizePolicy, func(p v1.ContainerResizePolicy) bool {
		return p.RestartPolicy == v1.RestartContainer && (compare(has.Requests, gets.Requests, p.ResourceName) != 0 ||
			compare(has.Limits, gets.Limits, p.ResourceName) != 0)
	})
}

// Lowers reports whether the allocation may lower a resource in effect.
func (c *Container) Lowers() bool {
	if c.last() == nil {
		return true
	}
	has, gets := c.most(), c.gets()
	for _, name := range translate.ComputeResources {
		unlimited := compare(has.Limits, nil, name) == 0 && compare(gets.Limits, nil, name) != 0
		if unlimited || compare(gets.Limits, has.Limits, name) < 0 || compare(gets.Requests, has.Requests, name) < 0 {
			return true
		}
	}
	return false
}

// Own removes the pod's limits from the resources of a container: its status contains its own.
func Own(pod *v1.Pod, spec *v1.Container, has v1.ResourceRequirements) *v1.ResourceRequirements {
	if pod.Spec.Resources != nil {
		has.Limits = maps.Clone(has.Limits)
		for _, name := range translate.ComputeResources {
			if compare(spec.Resources.Limits, nil, name) == 0 {
				delete(has.Limits, name)
			}
		}
	}
	return &has
}

// Wide returns the pod in the size of its cgroup while some containers do not have their allocation yet: as wide as before (nil:
// unknown) and as the pod and these containers together.
func Wide(pod, was *v1.Pod, unsettled []Container) *v1.Pod {
	wide := pod.DeepCopy()
	wide.Status.QOSClass = translate.QOSClass(pod)
	own := ptr.Deref(wide.Spec.Resources, v1.ResourceRequirements{})
	var had map[string]v1.ResourceRequirements
	if was != nil {
		own = widened(own, ptr.Deref(was.Spec.Resources, v1.ResourceRequirements{}))
		had = podspec.AllocationOf(was).Containers
	}
	most := map[string]v1.ResourceRequirements{}
	for i := range unsettled {
		c := &unsettled[i]
		most[c.Spec.Name] = c.most()
		own = widened(own, v1.ResourceRequirements{Limits: holding(own.Limits, most[c.Spec.Name].Limits)})
	}
	for spec := range podspec.Sized(wide) {
		if most, ok := most[spec.Name]; ok {
			spec.Resources = widened(spec.Resources, most)
		}
		if was != nil {
			spec.Resources = widened(spec.Resources, had[spec.Name])
		}
	}
	if wide.Spec.Resources != nil {
		wide.Spec.Resources = &own
	}
	return wide
}

// compare reports whether a has less (-1) or more (1) of a resource than b. A missing resource counts as 0.
func compare(a, b v1.ResourceList, name v1.ResourceName) int {
	x, y := a[name], b[name]
	return x.Cmp(y)
}

// widened returns the wider of two: the larger requests, and the larger limits if both have one.
func widened(a, b v1.ResourceRequirements) v1.ResourceRequirements {
	out := *a.DeepCopy()
	for _, name := range translate.ComputeResources {
		if compare(out.Requests, b.Requests, name) < 0 {
			if out.Requests == nil {
				out.Requests = v1.ResourceList{}
			}
			out.Requests[name] = b.Requests[name]
		}
		if _, limited := b.Limits[name]; !limited {
			delete(out.Limits, name)
		} else if _, limited = out.Limits[name]; limited && compare(out.Limits, b.Limits, name) < 0 {
			out.Limits[name] = b.Limits[name]
		}
	}
	return out
}

// holding returns the limits of a pod that fits a container with these limits.
func holding(pod, container v1.ResourceList) v1.ResourceList {
	out := maps.Clone(pod)
	for _, name := range translate.ComputeResources {
		delete(out, name)
		if has, limited := container[name]; limited && compare(pod, nil, name) != 0 {
			out[name] = has
		}
	}
	return out
}

// OfCgroup returns the resources of a pod's cgroup.
func OfCgroup(pod *v1.Pod) *v1.ResourceRequirements {
	out := &v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
	if own := pod.Spec.Resources; own != nil {
		maps.Copy(out.Requests, own.Requests)
		maps.Copy(out.Limits, own.Limits)
	}
	requests, limits := translate.PodRequests(pod), translate.PodLimits(pod)
	for _, name := range translate.ComputeResources {
		if q, ok := requests[name]; ok {
			out.Requests[name] = q
		}
		if q, ok := limits[name]; ok { // even if a container has no limit, as a kubelet reports it
			out.Limits[name] = q
		}
	}
	return out
}
