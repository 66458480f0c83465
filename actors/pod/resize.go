package pod

import (
	"encoding/json"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/actors/pod/resources"
	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/messages"
)

// The resources of a pod of the API server may change while it runs, those of its containers (KEP-1287) and its own (KEP-5419).
// What pods sends is allocated; here it is carried out, and what was carried out is derived after a restart: a container carries
// what it was made with, and one of a pod that was resized before is given its resources once more, which changes nothing where
// it has them.
//
// The pod's cgroup is never smaller than what the containers have that are known: it is made as wide as the old and the new
// resources together, then the containers are changed, those that get less before those that get more, and then it is made as
// wide as the new ones.

// resizing is what the pod knows of a change of its resources.
type resizing struct {
	active   bool // it is under way, as the API server is told
	retry    restarts.Retry
	informed *v1.Pod   // the pod as the runtime was told last that it is as a whole
	since    time.Time // when this try at it began, or is to begin
	wide     *v1.Pod   // the pod with the old resources and the new ones, as its cgroup is to be meanwhile
}

// takeResources notes, of the containers that run when the actor begins, what they have.
func (m *Machine) takeResources() {
	for _, c := range m.Containers {
		if c.Newest() != nil && c.Spec != nil {
			m.Sized(c).Begin(m.Wanted.Resized)
		}
	}
	m.resizing.since = m.now
	if last := m.Wanted.Last; last != nil {
		m.resizing.active = m.Wanted.Resized && objectset.OfAPIServer(m.Pod) && last.ObservedGeneration < m.Pod.Generation
		for i := range last.Conditions {
			m.resizing.active = m.resizing.active || last.Conditions[i].Type == v1.PodResizeInProgress
		}
	}
}

// begins notes that the pod was allocated other resources than it had.
func (m *Machine) begins(was *v1.Pod) {
	if !objectset.OfAPIServer(m.Pod) || !m.live() || podspec.AllocationOf(was).IsOf(m.Pod) {
		return
	}
	m.resizing = resizing{active: true, since: m.now, wide: was, informed: was}
	m.record("", v1.EventTypeNormal, messages.EventResizeStarted, "Pod resize started: %s", m.resizeText())
}

func (m *Machine) resizeText() string {
	text, err := json.Marshal(struct {
		*podspec.Allocation
		Generation int64 `json:"generation,omitempty"`
	}{podspec.AllocationOf(m.Pod), m.Pod.Generation})
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// group is the pod as its cgroup is to be now. While a resize goes on it stays as wide as it was at its beginning.
func (m *Machine) group() *v1.Pod {
	var unsettled []resources.Container
	for _, c := range m.Containers {
		if m.Unsettled(c) {
			unsettled = append(unsettled, *m.Sized(c))
		}
	}
	was := m.resizing.wide
	if len(unsettled) == 0 {
		m.resizing.wide = nil
		return m.Pod
	}
	if wide := resources.Wide(m.Pod, was, unsettled); was == nil || !podspec.AllocationOf(was).IsOf(wide) {
		m.resizing.wide = wide
	}
	return m.resizing.wide
}

// grouped says that the pod's cgroup is as it is to be, or cannot be made so by now: then the containers are what it waits for.
func (m *Machine) grouped() bool { return m.cgroup.ready || m.cgroup.reason != nil }

// resize carries the pod's allocated resources out, and notes when all of it is done. Containers that have to be made anew for it
// are stopped in their turn (ensure).
func (m *Machine) resize() {
	var live []*known.Container
	lowering, settled := false, true
	for _, c := range m.Containers {
		if !m.Unsettled(c) {
			continue
		}
		settled = false
		if c.Stage() == messages.StageRunning && !m.RestartsFor(c) {
			live = append(live, c)
			lowering = lowering || m.Sized(c).Lowers()
		}
	}
	informed := !m.grouped() || m.informed()
	if settled && m.resizing.active && m.cgroup.ready && m.cgroup.of == m.Pod && informed {
		m.emit(ResizeTried{Success: true, Took: max(0, m.now.Sub(m.resizing.since))})
		m.resizing = resizing{}
		m.record("", v1.EventTypeNormal, messages.EventResizeCompleted, "Pod resize completed: %s", m.resizeText())
	}
	if !m.grouped() || !informed || m.now.Before(m.resizing.retry.At) {
		return
	}
	for _, c := range live {
		if lowering && !m.Sized(c).Lowers() || !m.due("resize", c.Name, m.Set.Work) {
			continue
		}
		m.emit(work.ResizeContainer{Pod: m.Pod, Spec: c.Spec, ID: c.Newest().ID, Lower: m.Sized(c).Try()})
	}
}

func (m *Machine) takeResized(v work.ContainerResized) {
	m.answered("resize", v.Name)
	c := m.Container(v.Name)
	if c == nil || !c.Running() || !c.Is(v.ID) {
		return // it has ended meanwhile, and its next one is made with what is allocated
	}
	f := c.Newest()
	if v.Failed == nil {
		f.Given.Gave(v.Resources, v.Reported)
		m.resizing.retry = restarts.Retry{}
		return
	}
	f.Given.Failed(v.Sent)
	m.retryResize(v.Failed)
	m.emit(Tell{messages.Runtime, messages.ReadPod{UID: m.uid}}) // it may have ended, and the news of that be lost
}

// retryResize notes a failure; the next try comes after a back-off.
func (m *Machine) retryResize(why *messages.Reason) {
	r := &m.resizing
	if r.retry.Failed == nil || r.retry.Failed.Message != why.Message {
		m.record("", v1.EventTypeWarning, messages.EventResizeError, "Pod resize error: %s", why.Message)
	}
	r.retry.Fails(m.now, *why)
	r.active = true
	m.resizeFailed(r.retry.At)
}

// resizeFailed has one try counted; the next one begins then.
func (m *Machine) resizeFailed(next time.Time) {
	m.emit(ResizeTried{Took: max(0, m.now.Sub(m.resizing.since))})
	m.resizing.since = next
}

// inProgress is how far a resize is that is under way: an empty Reason where it goes well.
func (m *Machine) inProgress() *messages.Reason {
	why := m.resizing.retry.Failed
	if why == nil && !m.cgroup.ready {
		why = m.cgroup.reason
	}
	if why == nil {
		return &messages.Reason{}
	}
	return &messages.Reason{Code: v1.PodReasonError, Message: why.Message}
}

// In a resize the runtime is told what the pod has as a whole, too (UpdatePodSandboxResources): one that keeps pods in virtual
// machines sizes these by it, and its plugins may refuse. As with the kubelet, a resize that is refused does not go on; it is
// tried again. A runtime that does not know the call is not waited for.

// informed says that the runtime knows of the pod's cgroup as it is now, and tells it.
func (m *Machine) informed() bool {
	s := m.Current()
	if s == nil || !m.resizing.active || !m.cgroup.ready || m.resizing.informed == m.cgroup.of {
		return true
	}
	if !m.now.Before(m.resizing.retry.At) && m.due("inform", "", m.Set.Work) {
		m.emit(work.UpdateSandbox{Pod: m.cgroup.of, ID: s.ID})
	}
	return false
}

func (m *Machine) takeSandboxUpdated(v work.SandboxUpdated) {
	m.answered("inform", "")
	if s := m.Current(); s == nil || s.ID != v.ID {
		return // the next one is made with what is allocated
	}
	if v.Failed != nil {
		m.retryResize(v.Failed)
		return
	}
	m.resizing.informed = v.Pod
	m.resizing.retry = restarts.Retry{}
}
