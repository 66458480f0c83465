// Package resources says what a container of a pod has of resources and what was allocated to it, while the one becomes the other
// (KEP-1287, KEP-5419). Resources of a container are here what it gets, the pod's limits where it has none of its own included.
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

// Given is what is known of what one attempt of a container was given. Its zero value is of one that was given nothing since it
// was made.
type Given struct {
	made     *v1.ResourceRequirements // what it was made with, which is read once; nil: that is not known
	read     bool
	since    bool                         // it may have been given something after it was made: then the rest counts
	has      *v1.ResourceRequirements     // nil: not known
	tries    *v1.ResourceRequirements     // what it may have by now, since that was begun and its outcome is not known
	reported *messages.ContainerResources // by the runtime, afterwards
}

// Gave notes what it was given, and what the runtime reported then.
func (g *Given) Gave(resources *v1.ResourceRequirements, reported *messages.ContainerResources) {
	g.since, g.has, g.tries, g.reported = true, resources, nil, reported
}

// Failed notes that it could not be given what was tried. Where that was sent, some of it may have been done.
func (g *Given) Failed(sent bool) {
	if g.tries = nil; sent {
		g.has = nil
	}
}

// Container is a container that runs.
type Container struct {
	*Given
	Pod  *v1.Pod
	Spec *v1.Container
	Fact *messages.ContainerFact
	Set  *settings.Settings
}

// Allocated is what was allocated to a container.
func Allocated(pod *v1.Pod, spec *v1.Container) v1.ResourceRequirements {
	return translate.EffectiveResources(pod.Spec.Resources, spec.Resources)
}

// Begin notes what it has when the pod's actor begins. Of one of a pod that was resized before that is not known.
func (c *Container) Begin(resized bool) {
	var has *v1.ResourceRequirements
	if !resized { // what a kubelet made carries nothing: pods has it from the status
		has = cmp.Or(c.madeWith(), c.gets())
	}
	c.Gave(has, c.Fact.Resources)
}

// Try notes that it is being given what was allocated to it, and reports whether it gets less of something.
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

// last is what it was given last; nil where that is not known.
func (c *Container) last() *v1.ResourceRequirements {
	if c.since {
		return c.has
	}
	return cmp.Or(c.madeWith(), c.gets())
}

// most is the most that it may have.
func (c *Container) most() v1.ResourceRequirements {
	out := c.Has()
	if c.tries != nil {
		out = widened(out, *c.tries)
	}
	return out
}

// Has is what it has: by the runtime's word, where it tells, or else by what it was given.
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

// Settled says that it is known to have what was allocated to it.
func (c *Container) Settled() bool {
	has := c.last()
	return has != nil && equality.Semantic.DeepEqual(has, c.gets()) && c.tries == nil
}

// Restarts says that the container has to be made anew for its resources, by its resizePolicy. What it was made with counts where
// it is not known what it was given since: such resources do not change while it runs.
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

// Lowers says that it gets less of something than it has, as far as is known.
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

// Own leaves the pod's limits out of what a container has: its status tells its own.
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

// Wide is the pod as its cgroup is to be while some of its containers have not got yet what was allocated to them: as wide as it
// was before (nil: that is not known) and as what it and they have together.
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

// compare says whether a has less (-1) or more (1) of a resource than b. Where there is none, it counts as 0.
func compare(a, b v1.ResourceList, name v1.ResourceName) int {
	x, y := a[name], b[name]
	return x.Cmp(y)
}

// widened is the wider of two: the larger requests, and the larger limits, where both have one.
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

// holding are the limits of a pod that a container of these limits fits in.
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

// OfCgroup are those that the cgroup of a pod was given.
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
		if q, ok := limits[name]; ok { // also where a container has none, as a kubelet reports it
			out.Limits[name] = q
		}
	}
	return out
}
