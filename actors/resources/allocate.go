package resources

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/actors/internal/cpus"
	"github.com/playlet-dev/playlet/actors/internal/reconcile"
	"github.com/playlet-dev/playlet/actors/internal/topology"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// allocateTimeout bounds an allocation for a pod, which may ask device plugins.
const allocateTimeout = 2 * time.Minute

// allocation answers AllocateResources. It is not a driver of the reconciler. A pod is admitted once, so a refusal is final and
// is not retried here. Each request includes the holders, so there is no sweep. The providers keep the allocations. A pod has one
// allocation in progress, in the process's table, because this actor may restart meanwhile. After a refusal all
// providers release what the pod has, because a held static pod asks again and would keep it meanwhile.
type allocation struct {
	providers []Provider
	alignment Alignment
	ops       reconcile.Operations
}

type allotment struct {
	pod     *v1.Pod
	answer  messages.ResourcesAllocated
	pending bool // the result is not known yet
}

func (a allocation) receive(ctx supervisors.Context, msg any) bool {
	switch m := msg.(type) {
	case messages.AllocateResources:
		a.allocate(ctx, m)
	case messages.ResourcesHeld:
		a.retain(m.Holding)
	case allotment:
		if !m.pending { // otherwise pods asks again, and joins
			ctx.Tell(messages.Pods, m.answer)
		}
	default:
		return false
	}
	return true
}

func (a allocation) retain(holders map[string]string) {
	for _, p := range a.providers {
		p.Retain(holders)
	}
}

func (a allocation) allocate(ctx supervisors.Context, m messages.AllocateResources) {
	if len(a.providers) == 0 {
		ctx.Tell(messages.Pods, messages.ResourcesAllocated{UID: m.UID, Pod: m.Pod})
		return
	}
	if m.Heard { // here messages are ordered: an older set lacks no later pod
		a.retain(m.Holding)
	}
	ctx.Do(supervisors.Work{Name: "allocate resources", Timeout: timeout, Pod: m.UID, Run: func(ctx context.Context) any {
		// A pod that was withdrawn and listed again is another object: its resources may have been released in between.
		same := func(other allotment) bool { return other.pod == m.Pod }
		done, err := reconcile.Join(ctx, a.ops, "allocation/"+m.UID, allocateTimeout, same, func(ctx context.Context) allotment {
			return allotment{pod: m.Pod, answer: a.give(ctx, m)}
		})
		if err != nil {
			return allotment{pod: m.Pod, pending: true}
		}
		return done
	}})
}

// give allocates the resources of a pod.
func (a allocation) give(ctx context.Context, m messages.AllocateResources) messages.ResourcesAllocated {
	out := messages.ResourcesAllocated{UID: m.UID, Pod: m.Pod}
	err := a.admit(ctx, admission.Unclaimed(m.Pod))
	if err == nil {
		return out
	}
	out.Refused = err.Error()
	refusal, ofCPUs := errors.AsType[cpus.Refusal](err)
	affinity, ofAffinity := errors.AsType[topology.Refusal](err)
	switch _, caused := errors.AsType[messages.CauseError](err); {
	case ofAffinity:
		out.Reason = topology.ReasonAffinity
		out.Cause = messages.Cause{Code: messages.CauseNoAffinity, Name: affinity.Resource, Detail: affinity.Detail}
	case caused || ofCPUs:
		out.Reason, out.Cause = refusal.Reason, messages.CauseOf(err)
	}
	return out
}
