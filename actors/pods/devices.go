package pods

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// allocateAgain is when a request for devices is repeated: the answer may be lost.
const allocateAgain = 10 * time.Second

// devices is the state of an entry's devices while it is held.
type devices struct {
	asked  time.Time // zero: not yet
	answer *messages.DevicesAllocated
}

type devicesDue struct{}

// allocate requests a pod's devices, the last step before admission, and returns a reason to wait or a refusal. A pod of a
// manifest needs none: its source refuses it.
func (a *actor) allocate(ctx supervisors.Context, e *entry) (*messages.Reason, admission.Refusal) {
	if !asksForDevices(e.want.pod) {
		return nil, admission.Refusal{}
	}
	d := &e.devices
	if now := ctx.Now(); d.answer == nil && (d.asked.IsZero() || now.Sub(d.asked) >= allocateAgain) {
		d.asked = now
		ctx.Tell(messages.Resources, messages.AllocateDevices{UID: e.uid, Pod: e.want.pod, Holding: a.holding(),
			Heard: a.phase == complete})
		ctx.After(allocateAgain, devicesDue{})
	}
	switch {
	case d.answer == nil:
		return &messages.Reason{Code: messages.ReasonAllocating, Message: "its device plugins are to allocate its devices"},
			admission.Refusal{}
	case d.answer.Refused == "":
		return nil, admission.Refusal{}
	}
	return nil, admission.Refusal{Reason: admission.ReasonUnexpected,
		Message: "Allocate failed due to " + d.answer.Refused + ", which is unexpected"}
}

// readmit continues with a pod that was admitted before. If none of its containers runs, e.g. after a restart of the machine, its
// devices may have changed. As with the kubelet, it fails if they are not available any more, or not yet.
func (a *actor) readmit(ctx supervisors.Context, e *entry) {
	ended := e.record.Final != nil || e.record.Fail != nil || final(&e.want.pod.Status)
	if !ended && (e.found == nil || !e.found.Alive()) {
		switch wait, refusal := a.allocate(ctx, e); {
		case wait != nil:
			a.undecided.some = true
			a.hold(ctx, e, *wait, true)
			return
		case refusal.Refused():
			a.refuse(ctx, e, refusal)
			return
		}
	}
	a.admit(ctx, e)
}

// asksForDevices reports whether a container may request a device. resources knows which resources belong to plugins.
func asksForDevices(pod *v1.Pod) bool {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for name := range c.Resources.Limits {
			if admission.Extended(name) {
				return true
			}
		}
	}
	return false
}

// holding returns the pods that hold their devices: pods that should run, and pods that may still run, whatever their status at
// the API server.
func (a *actor) holding() map[string]bool {
	out := make(map[string]bool, len(a.entries))
	for uid, e := range a.entries {
		switch {
		case e.lingers, e.found != nil && e.found.Alive():
			out[uid] = true
		case e.state == unclaimed && e.found == nil, e.state == leaving, e.state == over, e.record.Final != nil, final(e.status):
		default:
			out[uid] = true
		}
	}
	return out
}
