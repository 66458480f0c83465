package resources

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/reconcile"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Devices are the device plugins' devices; *devices.Manager implements it.
type Devices interface {
	// Retain releases the devices of pods that are not among the holders. It does not block.
	Retain(holds func(uid string) bool)
	// Allocate allocates a pod's devices. It blocks on plugins and the disk.
	Allocate(ctx context.Context, pod *v1.Pod) error
}

// allocateTimeout bounds a plugin's allocation for a pod.
const allocateTimeout = 2 * time.Minute

// allocation answers AllocateDevices. It is not a driver of the reconciler. A pod is admitted once, so a refusal is final and is
// not retried. Each request includes the holders of devices, so there is no sweep. The Manager keeps the allocations. A pod has
// one allocation in progress, in the process's table, because this actor may restart meanwhile.
type allocation struct {
	devices Devices
	ops     reconcile.Operations
}

type allocated struct {
	uid     string
	refused string
	pending bool // the result is not known yet
}

func (a allocation) receive(ctx supervisors.Context, msg any) bool {
	switch m := msg.(type) {
	case messages.AllocateDevices:
		a.allocate(ctx, m)
	case allocated:
		if !m.pending { // otherwise pods asks again, and joins
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
	if m.Heard { // here messages are ordered: an older set lacks no later pod
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
