package pod

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// The resources of a pod of the API server may change while it runs, those of its containers (KEP-1287) and its own (KEP-5419).
// What pods sends is allocated; here it is carried out, and what was carried out is derived after a restart: a container carries
// what it was made with, and one of a pod that was resized before is given its resources once more, which changes nothing where
// it has them. Resources of a container are here what it gets, the pod's limits where it has none of its own included.
//
// The pod's cgroup is never smaller than what the containers have that are known: it is made as wide as the old and the new
// resources together, then the containers are changed, those that get less before those that get more, and then it is made as
// wide as the new ones.

// resizing is what the pod knows of a change of its resources.
type resizing struct {
	active   bool // it is under way, as the API server is told
	failed   *messages.Reason
	tries    int // failures in a row
	retry    time.Time
	informed *v1.Pod   // the pod as the runtime was told last that it is as a whole
	since    time.Time // when this try at it began, or is to begin
	wide     *v1.Pod   // the pod with the old resources and the new ones, as its cgroup is to be meanwhile
}

// applied is what a container was given after it was made.
type applied struct {
	id        string
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
		c.applied = applied{id: f.ID, resources: m.made(c), told: f.Resources}
		switch {
		case m.desired.Resized:
			c.applied.resources = nil
		case c.applied.resources == nil: // a kubelet made it: pods has it from the status
			c.applied.resources = new(m.gets(c))
		}
	}
	m.resizing.since = m.now
	if last := m.desired.Last; last != nil {
		m.resizing.active = m.desired.Resized && fromAPI(m.pod) && last.ObservedGeneration < m.pod.Generation
		for i := range last.Conditions {
			m.resizing.active = m.resizing.active || last.Conditions[i].Type == v1.PodResizeInProgress
		}
	}
}

// begins notes that the pod was allocated other resources than it had.
func (m *Machine) begins(was *v1.Pod) {
	if !fromAPI(m.pod) || !m.live() || equality.Semantic.DeepEqual(allotted(was), allotted(m.pod)) {
		return
	}
	m.resizing = resizing{active: true, since: m.now, wide: was, informed: was}
	m.record("", v1.EventTypeNormal, messages.EventResizeStarted, "Pod resize started: %s", m.resizeText())
}

// lists are the containers of a pod that have resources.
func lists(p *v1.Pod) [][]v1.Container {
	return [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers}
}

// allotment is what a pod and its containers have by its spec.
type allotment struct {
	Pod        *v1.ResourceRequirements           `json:"pod,omitempty"`
	Containers map[string]v1.ResourceRequirements `json:"containers"` // by name
	Generation int64                              `json:"generation,omitempty"`
}

func allotted(p *v1.Pod) allotment {
	out := allotment{Pod: p.Spec.Resources, Containers: map[string]v1.ResourceRequirements{}}
	for _, list := range lists(p) {
		for i := range list {
			out.Containers[list[i].Name] = list[i].Resources
		}
	}
	return out
}

func (m *Machine) resizeText() string {
	all := allotted(m.pod)
	all.Generation = m.pod.Generation
	text, err := json.Marshal(all)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// gets is what was allocated to a container.
func (m *Machine) gets(c *container) v1.ResourceRequirements {
	return translate.EffectiveResources(m.pod.Spec.Resources, c.spec.Resources)
}

// has is what the container that runs was given last; nil where that is not known.
func (m *Machine) has(c *container) *v1.ResourceRequirements {
	f := c.newest()
	if c.applied.id == f.ID {
		return c.applied.resources
	}
	if was := m.made(c); was != nil {
		return was
	}
	return new(m.gets(c))
}

// made is what the newest container was made with; nil where that is not known. It is read once.
func (m *Machine) made(c *container) *v1.ResourceRequirements {
	if f := c.newest(); c.made.id != f.ID {
		c.made.id, c.made.resources = f.ID, m.set.Resources(m.pod, *f)
	}
	return c.made.resources
}

// unsettled says that the container runs with other resources than were allocated to it, or that it is not known whether it does.
func (m *Machine) unsettled(c *container) bool {
	if !fromAPI(m.pod) || c.spec == nil || !c.running() {
		return false
	}
	has := m.has(c)
	return has == nil || !equality.Semantic.DeepEqual(*has, m.gets(c)) || m.trying(c) != nil
}

// trying is what the container that runs may have by now.
func (m *Machine) trying(c *container) *v1.ResourceRequirements {
	if c.applied.id != c.newest().ID {
		return nil
	}
	return c.applied.trying
}

// restartsFor says that the container has to be made anew for its resources, by its resizePolicy, which is of regular containers
// and of sidecars. What it was made with counts where it is not known what it was given since: such resources do not change while
// it runs.
func (m *Machine) restartsFor(c *container) bool {
	has, gets := m.has(c), m.gets(c)
	if has == nil {
		has = m.made(c)
	}
	for _, p := range c.spec.ResizePolicy {
		if !c.regular() && !c.sidecar() {
			return false
		}
		if has != nil && p.RestartPolicy == v1.RestartContainer &&
			(compare(has.Requests, gets.Requests, p.ResourceName) != 0 || compare(has.Limits, gets.Limits, p.ResourceName) != 0) {
			return true
		}
	}
	return false
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
	if c.applied.id == f.ID {
		told = c.applied.told
	}
	if has == nil {
		if has = m.made(c); has == nil || told != nil {
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

// group is the pod as its cgroup is to be now. While a resize goes on it stays as wide as it was at its beginning.
func (m *Machine) group() *v1.Pod {
	was := m.resizing.wide
	if !slices.ContainsFunc(m.containers, m.unsettled) {
		m.resizing.wide = nil
		return m.pod
	}
	wide := m.pod.DeepCopy()
	wide.Status.QOSClass = translate.QOSClass(m.pod)
	own := ptr.Deref(wide.Spec.Resources, v1.ResourceRequirements{})
	if was != nil {
		own = widened(own, ptr.Deref(was.Spec.Resources, v1.ResourceRequirements{}))
	}
	for _, c := range m.containers {
		if m.unsettled(c) {
			own = widened(own, v1.ResourceRequirements{Limits: holding(own.Limits, m.may(c).Limits)})
		}
	}
	var had map[string]v1.ResourceRequirements
	if was != nil {
		had = allotted(was).Containers
	}
	for _, list := range lists(wide) {
		for i := range list {
			r := &list[i].Resources
			if c := m.container(list[i].Name); c != nil && m.unsettled(c) {
				*r = widened(*r, m.may(c))
			}
			if was != nil {
				*r = widened(*r, had[list[i].Name])
			}
		}
	}
	if wide.Spec.Resources != nil {
		wide.Spec.Resources = &own
	}
	if was == nil || !equality.Semantic.DeepEqual(allotted(was), allotted(wide)) {
		m.resizing.wide = wide
	}
	return m.resizing.wide
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

// grouped says that the pod's cgroup is as it is to be, or cannot be made so by now: then the containers are what it waits for.
func (m *Machine) grouped() bool { return m.cgroup.ready || m.cgroup.reason != nil }

// resize carries the pod's allocated resources out, and notes when all of it is done. Containers that have to be made anew for it
// are stopped in their turn (ensure).
func (m *Machine) resize(now time.Time) {
	var live []*container
	lowering, settled := false, true
	for _, c := range m.containers {
		if !m.unsettled(c) {
			continue
		}
		settled = false
		if c.stage == messages.StageRunning && !m.restartsFor(c) {
			live = append(live, c)
			lowering = lowering || m.lowers(c)
		}
	}
	informed := !m.grouped() || m.informed(now)
	if settled && m.resizing.active && m.cgroup.ready && m.cgroup.of == m.pod && informed {
		m.emit(ResizeTried{Success: true, Took: max(0, now.Sub(m.resizing.since))})
		m.resizing = resizing{}
		m.record("", v1.EventTypeNormal, messages.EventResizeCompleted, "Pod resize completed: %s", m.resizeText())
	}
	if !m.grouped() || !informed || now.Before(m.resizing.retry) {
		return
	}
	for _, c := range live {
		if lowering && !m.lowers(c) || !m.due(now, "resize", c.name, m.set.Work) {
			continue
		}
		most := widened(m.gets(c), m.may(c))
		f, lower := c.newest(), m.lowers(c)
		if c.applied.id != f.ID {
			c.applied = applied{id: f.ID, resources: m.has(c), told: f.Resources}
		}
		c.applied.trying = &most
		m.emit(ResizeContainer{Pod: m.pod, Spec: c.spec, ID: f.ID, Lower: lower})
	}
}

// takeResized notes what came of it for one container.
func (m *Machine) takeResized(now time.Time, v ContainerResized) {
	m.answered("resize", v.Name)
	c := m.container(v.Name)
	if c == nil || !c.running() || c.newest().ID != v.ID {
		return // it has ended meanwhile, and its next one is made with what is allocated
	}
	if v.Failed == nil {
		c.applied = applied{id: v.ID, resources: v.Resources, told: v.Told}
		m.resizing.failed, m.resizing.tries, m.resizing.retry = nil, 0, time.Time{}
		return
	}
	if c.applied.trying = nil; v.Sent {
		c.applied.resources = nil // some of it may have been done
	}
	m.retryResize(now, v.Failed)
	m.emit(Tell{messages.Runtime, messages.ReadPod{UID: m.uid}}) // it may have ended, and the news of that be lost
}

// retryResize notes a failure; the next try comes after a back-off.
func (m *Machine) retryResize(now time.Time, why *messages.Reason) {
	r := &m.resizing
	if r.failed == nil || r.failed.Message != why.Message {
		m.record("", v1.EventTypeWarning, messages.EventResizeError, "Pod resize error: %s", why.Message)
	}
	r.tries++
	r.failed, r.retry, r.active = why, now.Add(retryDelay(r.tries)), true
	m.resizeFailed(r.retry)
}

// resizeFailed has one try counted; the next one begins then.
func (m *Machine) resizeFailed(next time.Time) {
	m.emit(ResizeTried{Took: max(0, m.now.Sub(m.resizing.since))})
	m.resizing.since = next
}

// inProgress is the reason and the message of a resize that is under way; both are empty where it goes well.
func (m *Machine) inProgress() (reason, message string) {
	why := m.resizing.failed
	if why == nil && !m.cgroup.ready {
		why = m.cgroup.reason
	}
	if why == nil {
		return "", ""
	}
	return v1.PodReasonError, why.Message
}
