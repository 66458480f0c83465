package pod

import (
	"encoding/json"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/actors/pod/work"
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
	retry    restarts.Retry
	informed *v1.Pod   // the pod as the runtime was told last that it is as a whole
	since    time.Time // when this try at it began, or is to begin
	wide     *v1.Pod   // the pod with the old resources and the new ones, as its cgroup is to be meanwhile
}

// begins notes that the pod was allocated other resources than it had.
func (m *Machine) begins(was *v1.Pod) {
	if !objectset.OfAPIServer(m.pod) || !m.live() || podspec.AllocationOf(was).IsOf(m.pod) {
		return
	}
	m.resizing = resizing{active: true, since: m.now, wide: was, informed: was}
	m.record("", v1.EventTypeNormal, messages.EventResizeStarted, "Pod resize started: %s", m.resizeText())
}

func (m *Machine) resizeText() string {
	text, err := json.Marshal(struct {
		*podspec.Allocation
		Generation int64 `json:"generation,omitempty"`
	}{podspec.AllocationOf(m.pod), m.pod.Generation})
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// unsettled says that the container runs with other resources than were allocated to it, or that it is not known whether it does.
func (m *Machine) unsettled(c *container) bool {
	if !objectset.OfAPIServer(m.pod) || c.spec == nil || !c.running() {
		return false
	}
	has := m.has(c)
	return has == nil || !equality.Semantic.DeepEqual(*has, m.gets(c)) || m.trying(c) != nil
}

// restartsFor says that the container has to be made anew for its resources, by its resizePolicy, which is of regular containers
// and of sidecars. What it was made with counts where it is not known what it was given since: such resources do not change while
// it runs.
func (m *Machine) restartsFor(c *container) bool {
	has, gets := m.has(c), m.gets(c)
	if has == nil {
		has = m.made(c.newest())
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
		had = podspec.AllocationOf(was).Containers
	}
	for spec := range podspec.Sized(wide) {
		if c := m.container(spec.Name); c != nil && m.unsettled(c) {
			spec.Resources = widened(spec.Resources, m.may(c))
		}
		if was != nil {
			spec.Resources = widened(spec.Resources, had[spec.Name])
		}
	}
	if wide.Spec.Resources != nil {
		wide.Spec.Resources = &own
	}
	if was == nil || !podspec.AllocationOf(was).IsOf(wide) {
		m.resizing.wide = wide
	}
	return m.resizing.wide
}

// grouped says that the pod's cgroup is as it is to be, or cannot be made so by now: then the containers are what it waits for.
func (m *Machine) grouped() bool { return m.cgroup.ready || m.cgroup.reason != nil }

// resize carries the pod's allocated resources out, and notes when all of it is done. Containers that have to be made anew for it
// are stopped in their turn (ensure).
func (m *Machine) resize() {
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
	informed := !m.grouped() || m.informed()
	if settled && m.resizing.active && m.cgroup.ready && m.cgroup.of == m.pod && informed {
		m.emit(ResizeTried{Success: true, Took: max(0, m.now.Sub(m.resizing.since))})
		m.resizing = resizing{}
		m.record("", v1.EventTypeNormal, messages.EventResizeCompleted, "Pod resize completed: %s", m.resizeText())
	}
	if !m.grouped() || !informed || m.now.Before(m.resizing.retry.At) {
		return
	}
	for _, c := range live {
		if lowering && !m.lowers(c) || !m.due("resize", c.name, m.set.Work) {
			continue
		}
		most := widened(m.gets(c), m.may(c))
		f, lower := c.newest(), m.lowers(c)
		if f.given == nil {
			f.given = &given{resources: m.has(c), told: f.Resources}
		}
		f.given.trying = &most
		m.emit(work.ResizeContainer{Pod: m.pod, Spec: c.spec, ID: f.ID, Lower: lower})
	}
}

func (m *Machine) takeResized(v work.ContainerResized) {
	m.answered("resize", v.Name)
	c := m.container(v.Name)
	if c == nil || !c.running() || !c.is(v.ID) {
		return // it has ended meanwhile, and its next one is made with what is allocated
	}
	f := c.newest()
	if v.Failed == nil {
		f.given = &given{resources: v.Resources, told: v.Told}
		m.resizing.retry = restarts.Retry{}
		return
	}
	if f.given.trying = nil; v.Sent {
		f.given.resources = nil // some of it may have been done
	}
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

// inProgress is the reason and the message of a resize that is under way; both are empty where it goes well.
func (m *Machine) inProgress() (reason, message string) {
	why := m.resizing.retry.Failed
	if why == nil && !m.cgroup.ready {
		why = m.cgroup.reason
	}
	if why == nil {
		return "", ""
	}
	return v1.PodReasonError, why.Message
}

// In a resize the runtime is told what the pod has as a whole, too (UpdatePodSandboxResources): one that keeps pods in virtual
// machines sizes these by it, and its plugins may refuse. As with the kubelet, a resize that is refused does not go on; it is
// tried again. A runtime that does not know the call is not waited for.

// informed says that the runtime knows of the pod's cgroup as it is now, and tells it.
func (m *Machine) informed() bool {
	s := m.sandboxes.current()
	if s == nil || !m.resizing.active || !m.cgroup.ready || m.resizing.informed == m.cgroup.of {
		return true
	}
	if !m.now.Before(m.resizing.retry.At) && m.due("inform", "", m.set.Work) {
		m.emit(work.UpdateSandbox{Pod: m.cgroup.of, ID: s.ID})
	}
	return false
}

func (m *Machine) takeSandboxUpdated(v work.SandboxUpdated) {
	m.answered("inform", "")
	if s := m.sandboxes.current(); s == nil || s.ID != v.ID {
		return // the next one is made with what is allocated
	}
	if v.Failed != nil {
		m.retryResize(v.Failed)
		return
	}
	m.resizing.informed = v.Pod
	m.resizing.retry = restarts.Retry{}
}
