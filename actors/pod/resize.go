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

// The resources of a pod of the API server may change while it runs, per container (KEP-1287) and per pod (KEP-5419). pods sends
// the allocation, and this actor applies it. The applied resources are derived after a restart: a container carries the resources
// of its creation. After an earlier resize of the pod they are applied once more, which changes nothing if they are in effect.
//
// The pod's cgroup is never smaller than the sum of its known containers. It is first made as wide as the old and the new
// resources together. Then the containers are changed, first those that shrink. Finally the cgroup gets the new size.

// resizeProgress is the state of a resize of the pod.
type resizeProgress struct {
	active   bool // in progress, as reported to the API server
	retry    restarts.Retry
	informed *v1.Pod   // the last pod sent to the runtime as a whole
	since    time.Time // begin of this try, which may be in the future
	wide     *v1.Pod   // the pod with the old and the new resources, the size of its cgroup until the end
}

// takeResources records the resources of the containers that run when the actor begins.
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

// begins starts a resize if the pod's allocation has changed.
func (m *Machine) begins(was *v1.Pod) {
	if !objectset.OfAPIServer(m.Pod) || !m.live() || podspec.AllocationOf(was).IsOf(m.Pod) {
		return
	}
	m.resizing = resizeProgress{active: true, since: m.now, wide: was, informed: was}
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

// group returns the pod in the present size of its cgroup. During a resize it stays as wide as at the beginning.
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

// grouped reports whether the pod's cgroup has its size, or failed to get it: in that case it waits for the containers.
func (m *Machine) grouped() bool { return m.cgroup.ready || m.cgroup.reason != nil }

// resize applies the pod's allocated resources, and records the end of the resize. Containers that have to be restarted for it
// are stopped by ensure.
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
		m.resizing = resizeProgress{}
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
		return // it has ended meanwhile, and its successor is created with the allocation
	}
	f := c.Newest()
	if v.Failed == nil {
		f.Given.Gave(v.Resources, v.Reported)
		m.resizing.retry = restarts.Retry{}
		return
	}
	f.Given.Failed(v.Sent)
	m.retryResize(v.Failed)
	m.emit(Tell{messages.Runtime, messages.ReadPod{UID: m.uid}}) // it may have ended, and the report of that may be lost
}

// retryResize records a failure; the next try comes after a back-off.
func (m *Machine) retryResize(why *messages.Reason) {
	r := &m.resizing
	if r.retry.Failed == nil || r.retry.Failed.Message != why.Message {
		m.record("", v1.EventTypeWarning, messages.EventResizeError, "Pod resize error: %s", why.Message)
	}
	r.retry.Fails(m.now, *why)
	r.active = true
	m.resizeFailed(r.retry.At)
}

// resizeFailed counts one try; the next one begins at the given time.
func (m *Machine) resizeFailed(next time.Time) {
	m.emit(ResizeTried{Took: max(0, m.now.Sub(m.resizing.since))})
	m.resizing.since = next
}

// inProgress returns the state of a resize in progress, with an empty Reason if nothing failed.
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

// In a resize the runtime also receives the resources of the pod as a whole (UpdatePodSandboxResources): a runtime that keeps
// pods in virtual machines sizes these by them, and its plugins may refuse. As with the kubelet, a refused resize does not
// continue; it is retried. A runtime without the call is not waited for.

// informed reports whether the runtime has the pod's cgroup as it is now, and sends it otherwise.
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
		return // its successor is created with the allocation
	}
	if v.Failed != nil {
		m.retryResize(v.Failed)
		return
	}
	m.resizing.informed = v.Pod
	m.resizing.retry = restarts.Retry{}
}
