// Package work is the work of a pod's actor at the runtime: it creates and stops sandboxes, changes resources, and removes all
// parts of a pod. (Containers are created and stopped by their own actors.) Each piece of work is a value, created by the pod's
// machine and executed by the actor outside its mailbox; each has one result. Work is idempotent: it joins the same work in
// progress, and adopts existing objects.
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
	// call returns the runtime's name of the call, and the maximum number of calls in sequence.
	call() (name string, calls int)
	// run executes it and returns its result.
	run(ctx context.Context, h *host.Host) any
}

// Of returns a piece of work for the supervisor, with the pod's place in the queue for the runtime.
func Of(p Piece, h *host.Host, order int64) supervisors.Work {
	name, calls := p.call()
	return supervisors.Work{
		Name: name, Timeout: h.Reap(calls) + 5*time.Second,
		Run: func(ctx context.Context) any { return p.run(cri.WithPriority(ctx, order), h) },
	}
}

// RemovePod removes all parts of the pod from the runtime, and its logs.
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
