// Package work is what a pod's actor has the runtime do by itself: its sandboxes are made and stopped, its resources are changed,
// and all that the runtime has of it is removed. (Containers are made and stopped by their own actors.) Each piece of work is a
// value, which the pod's machine makes and the actor carries out outside its mailbox; each has one result. Work is idempotent: it
// joins what is under way of the same, and adopts what was made before.
package work

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Piece is one piece of work.
type Piece interface {
	// call is the runtime's name of the call, and how many calls may follow one another.
	call() (name string, calls int)
	// run carries it out and returns its result.
	run(ctx context.Context, h *host.Host) any
}

// Of is a piece of work as the layer takes it, with the pod's place in the queue for the runtime.
func Of(p Piece, h *host.Host, order int64) supervisors.Work {
	name, calls := p.call()
	return supervisors.Work{
		Name: name, Timeout: h.Reap(calls) + 5*time.Second,
		Run: func(ctx context.Context) any { return p.run(cri.WithPriority(ctx, order), h) },
	}
}

// RemovePod removes all that the runtime has of the pod, and its logs.
type RemovePod struct{ Pod *v1.Pod }

// PodRemoved is the result of RemovePod.
type PodRemoved struct{ Failed *messages.Reason }

func (RemovePod) call() (name string, calls int) { return "RemovePodSandbox", 10 }

func (e RemovePod) run(ctx context.Context, h *host.Host) any {
	if err := h.RemovePod(ctx, e.Pod); err != nil {
		return PodRemoved{Failed: failed(messages.ReasonFailedRemove, err)}
	}
	return PodRemoved{}
}

func failed(code string, err error) *messages.Reason {
	return &messages.Reason{Code: code, Message: err.Error(), Cause: messages.CauseOf(err)}
}
