package pod

import (
	"cmp"
	"maps"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// given is what a container was given after it was made.
type given struct {
	resources *v1.ResourceRequirements     // nil: not known
	trying    *v1.ResourceRequirements     // what it may have by now, since that was begun and its outcome is not known
	told      *messages.ContainerResources // by the runtime, afterwards
}

// takeResources notes, of the containers that run when the actor begins, what they have.
func (m *Machine) takeResources() {
	for _, c := range m.containers {
		f := c.newest()
		if f == nil || c.spec == nil {
			continue
		}
		f.given = &given{told: f.Resources}
		if !m.desired.Resized { // what a kubelet made carries nothing: pods has it from the status
			f.given.resources = cmp.Or(m.made(f), new(m.gets(c)))
		}
	}
	m.resizing.since = m.now
	if last := m.desired.Last; last != nil {
		m.resizing.active = m.desired.Resized && objectset.OfAPIServer(m.pod) && last.ObservedGeneration < m.pod.Generation
		for i := range last.Conditions {
			m.resizing.active = m.resizing.active || last.Conditions[i].Type == v1.PodResizeInProgress
		}
	}
}

// gets is what was allocated to a container.
func (m *Machine) gets(c *container) v1.ResourceRequirements {
	return translate.EffectiveResources(m.pod.Spec.Resources, c.spec.Resources)
}

// has is what the container that runs was given last; nil where that is not known.
func (m *Machine) has(c *container) *v1.ResourceRequirements {
	f := c.newest()
	if f.given != nil {
		return f.given.resources
	}
	return cmp.Or(m.made(f), new(m.gets(c)))
}

// made is what a container was made with; nil where that is not known. It is read once.
func (m *Machine) made(f *attempt) *v1.ResourceRequirements {
	if !f.madeRead {
		f.madeRead, f.made = true, m.set.Resources(m.pod, f.ContainerFact)
	}
	return f.made
}

// trying is what the container that runs may have by now.
func (m *Machine) trying(c *container) *v1.ResourceRequirements {
	if g := c.newest().given; g != nil {
		return g.trying
	}
	return nil
}

// compare says whether a has less (-1) or more (1) of a resource than b. Where there is none, it counts as 0.
func compare(a, b v1.ResourceList, name v1.ResourceName) int {
	x, y := a[name], b[name]
	return x.Cmp(y)
}

// lowers says that the container gets less of something than it has, as far as is known.
func (m *Machine) lowers(c *container) bool {
	if m.has(c) == nil {
		return true
	}
	has, gets := m.may(c), m.gets(c)
	for _, name := range translate.ComputeResources {
		unlimited := compare(has.Limits, nil, name) == 0 && compare(gets.Limits, nil, name) != 0
		if unlimited || compare(gets.Limits, has.Limits, name) < 0 || compare(gets.Requests, has.Requests, name) < 0 {
			return true
		}
	}
	return false
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

// may is the most that the container that runs may have.
func (m *Machine) may(c *container) v1.ResourceRequirements {
	out := m.actual(c)
	if trying := m.trying(c); trying != nil {
		out = widened(out, *trying)
	}
	return out
}

// actual is what the container that runs has: by the runtime's word, where it tells, or else by what it was given.
func (m *Machine) actual(c *container) v1.ResourceRequirements {
	f, has := c.newest(), m.has(c)
	told := f.Resources
	if f.given != nil {
		told = f.given.told
	}
	if has == nil {
		if has = m.made(f); has == nil || told != nil {
			has = new(m.gets(c))
		}
	}
	if told == nil {
		return *has.DeepCopy()
	}
	spec := *c.spec
	spec.Resources = *has
	return m.set.Actual(m.pod, &spec, *told)
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
