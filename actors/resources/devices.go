package resources

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/reconcile"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Devices are what device plugins offer; *devices.Manager has them.
type Devices interface {
	// Retain takes devices back of the pods that do not hold theirs. It does not wait.
	Retain(holds func(uid string) bool)
	// Allocate gives a pod its devices. It waits for plugins and the disk.
	Allocate(ctx context.Context, pod *v1.Pod) error
}

// allocateTimeout is how long a plugin may take to allocate a pod's devices.
const allocateTimeout = 2 * time.Minute

// allocation answers AllocateDevices. It is no driver of the reconciler: a pod is admitted once, so that a refusal is final and
// nothing is tried again; who holds devices comes with each question, so that nothing is swept; and what is allocated is the
// Manager's to know. One allocation for a pod is under way, in the process's table: this actor may restart meanwhile.
type allocation struct {
	devices Devices
	ops     reconcile.Operations
}

type allocated struct {
	uid     string
	refused string
	pending bool // it is not known yet
}

func (a allocation) receive(ctx supervisors.Context, msg any) bool {
	switch m := msg.(type) {
	case messages.AllocateDevices:
		a.allocate(ctx, m)
	case allocated:
		if !m.pending { // else pods asks again, which joins
			ctx.Tell(messages.Pods, messages.DevicesAllocated{UID: m.uid, Refused: m.refused})
		}
	default:
		return false
	}
	return true
}

func (a allocation) allocate(ctx supervisors.Context, m messages.AllocateDevices) {
	if a.devices == nil {
		ctx.Tell(messages.Pods, messages.DevicesAllocated{UID: m.UID})
		return
	}
	if m.Heard { // here, where messages have an order: a pod that came later is in no older set
		a.devices.Retain(func(uid string) bool { return m.Holding[uid] })
	}
	ctx.Do(supervisors.Work{Name: "allocate devices", Timeout: timeout, Pod: m.UID, Run: func(ctx context.Context) any {
		refusal, err := reconcile.Join(ctx, a.ops, "devices/"+m.UID, allocateTimeout, func(allocated) bool { return true },
			func(ctx context.Context) allocated {
				if err := a.devices.Allocate(ctx, m.Pod); err != nil {
					return allocated{uid: m.UID, refused: err.Error()}
				}
				return allocated{uid: m.UID}
			})
		if err != nil {
			return allocated{uid: m.UID, pending: true}
		}
		return refusal
	}})
}
