package pods

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/actors/internal/cpus"
	"github.com/playlet-dev/playlet/actors/internal/numamemory"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/pods/found"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// allocateAgain is when a request for CPUs and devices is repeated: the answer may be lost, or refuse a static pod.
const allocateAgain = 10 * time.Second

// allocationState is the state of an entry's CPUs and devices while it is held.
type allocationState struct {
	question *v1.Pod   // the pod of the last request; nil: none was sent
	asked    time.Time // zero: not yet
	absent   bool      // not asked, because a device plugin is absent
	answer   *messages.ResourcesAllocated
}

// receive records the answer to the last request. Answers about an earlier life or another manifest of the pod are dropped, and
// the request is repeated at its time.
func (d *allocationState) receive(m messages.ResourcesAllocated) bool {
	if d.question == nil || m.Pod != d.question {
		return false
	}
	d.answer = &m
	return true
}

// observe drops the request and its answer if the pod has other requests by now.
func (d *allocationState) observe(pod *v1.Pod) {
	if d.question != nil && !sameParts(d.question, pod) {
		*d = allocationState{}
	}
}

// sameParts reports whether two versions of a pod have the same containers with the same resources.
func sameParts(a, b *v1.Pod) bool {
	same := func(x, y v1.Container) bool {
		return x.Name == y.Name && translate.RestartsAlways(&x) == translate.RestartsAlways(&y) &&
			equality.Semantic.DeepEqual(x.Resources, y.Resources)
	}
	return equality.Semantic.DeepEqual(a.Spec.Resources, b.Spec.Resources) &&
		slices.EqualFunc(a.Spec.InitContainers, b.Spec.InitContainers, same) &&
		slices.EqualFunc(a.Spec.Containers, b.Spec.Containers, same)
}

type allocateDue struct{}

// allocate requests a pod's exclusive CPUs and devices, the last step before admission. It returns a reason to wait or a refusal.
// A static pod waits with a refusal, and the request is repeated.
func (a *actor) allocate(ctx supervisors.Context, e *entry) (*messages.Reason, admission.Refusal) {
	if !a.asksForParts(e.wanted.pod) {
		return nil, admission.Refusal{}
	}
	d := &e.allocating
	d.observe(e.starts())
	absent := a.lacksPlugin(e.wanted.pod)
	d.absent = absent != nil
	refused := d.answer != nil && d.answer.Refused != ""
	if now := ctx.Now(); (d.answer == nil || refused) && (d.asked.IsZero() || now.Sub(d.asked) >= allocateAgain) {
		d.asked = now
		if absent == nil {
			if d.question == nil {
				d.question = new(*e.starts()) // another one in each life of the pod
			}
			ctx.Tell(messages.Resources, messages.AllocateResources{UID: e.uid, Pod: d.question, Holding: a.holding(),
				Heard: a.settled()})
		}
		ctx.After(allocateAgain, allocateDue{})
	}
	switch {
	case absent != nil:
		return absent, admission.Refusal{}
	case d.answer == nil:
		return &messages.Reason{Code: messages.ReasonAllocating,
			Message: "the CPUs, memory and devices that it has to itself are being allocated"}, admission.Refusal{}
	case !refused:
		return nil, admission.Refusal{}
	}
	refusal := admission.Refusal{Reason: d.answer.Reason, Message: d.answer.Refused, Cause: d.answer.Cause}
	if refusal.Reason == "" {
		refusal.Reason, refusal.Message = admission.ReasonUnexpected,
			"Allocate failed due to "+d.answer.Refused+", which is unexpected"
	}
	if translate.IsStatic(e.wanted.pod) {
		return &messages.Reason{Code: refusal.Reason, Message: refusal.Message, Cause: refusal.Cause}, admission.Refusal{}
	}
	return nil, refusal
}

// starts returns the pod that a held entry starts: with the resources allocated to it, if it was resized.
func (e *entry) starts() *v1.Pod {
	if e.wanted.source != messages.APIServer {
		return e.wanted.pod
	}
	return e.lastAllocation().In(e.wanted.pod)
}

// lastAllocation returns the allocation of the earlier life of a held pod of the API server; nil: its request.
func (e *entry) lastAllocation() *podspec.Allocation {
	if e.record.Allocated != nil {
		return e.record.Allocated
	}
	return found.Allocation(e.wanted.pod, e.audited)
}

// readmit continues with a pod that was admitted before. If none of its containers runs, e.g. after a restart of the machine, its
// CPUs and devices may have changed. As with the kubelet, it fails if they are not available any more, or not yet.
func (a *actor) readmit(ctx supervisors.Context, e *entry) {
	ended := e.record.Final != nil || e.record.Fail != nil || final(&e.wanted.pod.Status)
	if !ended && (e.audited == nil || !e.audited.Alive()) {
		switch wait, refusal := a.allocate(ctx, e); {
		case wait != nil:
			a.waiting.some = true
			a.hold(ctx, e, *wait, wait.Code == messages.ReasonAllocating)
			return
		case refusal.Refused():
			a.refuse(ctx, e, refusal)
			return
		}
	}
	a.admit(ctx, e)
}

// asksForParts reports whether a container may request CPUs, memory of chosen NUMA nodes, or devices. resources knows which
// extended resources belong to plugins.
func (a *actor) asksForParts(pod *v1.Pod) bool {
	if node := a.opts.LocalNode.Node; node.StaticCPUs && cpus.Asks(pod) || node.StaticMemory && numamemory.Asks(pod) {
		return true
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for name := range c.Resources.Limits {
			if admission.Extended(name) {
				return true
			}
		}
	}
	return false
}

// lacksPlugin returns the reason to wait of a static pod that requests a resource which no device plugin provides yet and no
// operator has set on the Node. A kubelet starts such a pod without the device: at the start of a machine, before the plugin.
func (a *actor) lacksPlugin(pod *v1.Pod) *messages.Reason {
	here := a.opts.LocalNode
	if !translate.IsStatic(pod) || here.IsDevice == nil {
		return nil
	}
	counted := v1.ResourceList{}
	if a.node.object != nil {
		counted = a.node.object.Status.Allocatable
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, name := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
			quantity := c.Resources.Limits[name]
			if _, has := counted[name]; has || !admission.Extended(name) || here.IsDevice(name) || quantity.Sign() <= 0 {
				continue
			}
			cause := messages.Cause{Code: messages.CauseNoDevicePlugin, Name: string(name)}
			return &messages.Reason{Code: admission.ReasonUnexpected, Cause: cause,
				Message: "no device plugin has registered " + string(name) + " on this node"}
		}
	}
	return nil
}

// askAgain has static pods that were refused, or lacked a device plugin, request their CPUs and devices at once.
func (a *actor) askAgain(ctx supervisors.Context) {
	for _, e := range a.entries {
		if d := &e.allocating; e.state == held && (d.absent || d.answer != nil && d.answer.Refused != "") {
			d.asked = time.Time{}
		}
	}
	a.reconsider(ctx)
}

// settled reports whether a pod that is not among the entries holds nothing: the running pods are known, and every source has
// reported that ever does.
func (a *actor) settled() bool {
	return a.phase == complete || a.phase == hearing && a.opts.Unheard && a.sources.synced()
}

// holding returns the pods that hold their CPUs and devices: pods that should run, and pods that may still run, whatever their
// status at the API server.
func (a *actor) holding() map[string]string {
	out := make(map[string]string, len(a.entries))
	for uid, e := range a.entries {
		switch {
		case e.lingers, e.audited != nil && e.audited.Alive():
			out[uid] = e.name
		case e.state == unclaimed && e.audited == nil, e.state == leaving, e.state == over, e.record.Final != nil,
			final(e.status):
		default:
			out[uid] = e.name
		}
	}
	return out
}

// sendHolding sends the pods that hold CPUs and devices. Unless again is set, it is sent only after one has ceased to hold them:
// then static pods that were refused ask again. Without exclusive CPUs nothing waits for it, since devices are released with the
// next request for some.
func (a *actor) sendHolding(ctx supervisors.Context, again bool) {
	if node := a.opts.LocalNode.Node; !node.StaticCPUs && !node.StaticMemory || !a.settled() {
		return
	}
	now, less := a.holding(), false
	for uid := range a.held {
		if _, holds := now[uid]; !holds {
			less = true
		}
	}
	if a.held = now; !less && !again {
		return
	}
	ctx.Tell(messages.Resources, messages.ResourcesHeld{Holding: now})
	for _, e := range a.entries {
		if less && e.state == held && e.allocating.answer != nil {
			e.allocating.asked = time.Time{}
		}
	}
}
