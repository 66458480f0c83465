package cri

import (
	"context"
	"math"
	"runtime"
)

// Class names a share of the runtime's attention. Calls of one class wait for
// each other and never for calls of another, so that a storm of pod starts
// cannot hold up a stop, nor a slow pull a probe.
type Class int

const (
	// ClassStart is RunPodSandbox, CreateContainer, StartContainer,
	// UpdateContainerResources and UpdatePodSandboxResources: what forks, mounts and calls CNI plugins.
	ClassStart Class = iota
	// ClassStop is StopPodSandbox, RemovePodSandbox, RemoveContainer,
	// RemoveImage, and StopContainer with no grace period. A StopContainer that
	// has a grace period takes no slot at all: nearly all of its time is spent
	// waiting, and the signal has to reach every container of a node at once
	// when the node is drained, not four at a time.
	ClassStop
	// ClassPull is PullImage.
	ClassPull
	// ClassExec is ExecSync, Exec, Attach and PortForward. A pre-stop hook is an
	// ExecSync WithoutSlot.
	ClassExec
	// ClassRead is everything that only asks, and the small node-wide settings
	// (ReopenContainerLog, UpdateRuntimeConfig).
	ClassRead

	classCount
)

// String returns the lower-case name used in inspections, logs and errors.
func (c Class) String() string {
	switch c {
	case ClassStart:
		return "start"
	case ClassStop:
		return "stop"
	case ClassPull:
		return "pull"
	case ClassExec:
		return "exec"
	case ClassRead:
		return "read"
	}
	return "unknown"
}

// Limits is the number of calls under way at once for each class. A zero takes
// the default of DefaultLimits; a negative number is an error of Dial.
type Limits struct {
	Start, Stop, Pull, Exec, Read int
}

// DefaultLimits returns the limits for this machine. Starting and stopping are
// bounded by processors: on two cores ninety pods started all at once took
// 11.2 s with a median of 10.0 s, four at a time 8.8 s and 4.2 s. With three
// calls a core both cores stay busy while pods are between two calls, which
// four at a time did not do. Exec is wide,
// because nearly all of its time is the command's own. Pull is only the outer
// bound: the image puller applies serializeImagePulls and maxParallelImagePulls.
func DefaultLimits() Limits {
	work := max(3*runtime.NumCPU(), 4)
	return Limits{Start: work, Stop: work, Pull: 8, Exec: 32, Read: 2 * work}
}

func (l Limits) of(c Class) int {
	return [classCount]int{l.Start, l.Stop, l.Pull, l.Exec, l.Read}[c]
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	pick := func(n, fallback int) int {
		if n == 0 {
			return fallback
		}
		return n
	}
	return Limits{
		Start: pick(l.Start, d.Start),
		Stop:  pick(l.Stop, d.Stop),
		Pull:  pick(l.Pull, d.Pull),
		Exec:  pick(l.Exec, d.Exec),
		Read:  pick(l.Read, d.Read),
	}
}

// Usage is one class of the budget at one moment.
type Usage struct {
	Class   Class
	Limit   int // slots
	InUse   int // calls holding a slot
	Waiting int // calls queued for one
}

type priorityKey struct{}

// NodePriority is the priority of a context that was given none: calls made for
// the node and not for a pod (Status, Version, lists). They are few and quick
// and every pod waits for their answers, so they go before all pods.
const NodePriority int64 = math.MinInt64

// WithPriority marks the calls made with the returned context as belonging to
// the pod that started at order n: its creation time in nanoseconds, or a
// counter. Lower goes first, equal goes in order of asking. All calls of a pod
// carry the same n, so a pod already under way (its sandbox is up, a container
// is to be created) overtakes every younger pod still waiting for its sandbox.
func WithPriority(ctx context.Context, n int64) context.Context {
	return context.WithValue(ctx, priorityKey{}, n)
}

// Priority returns what WithPriority put into the context, else NodePriority.
func Priority(ctx context.Context) int64 {
	if n, ok := ctx.Value(priorityKey{}).(int64); ok {
		return n
	}
	return NodePriority
}

type slotlessKey struct{}

// WithoutSlot marks the calls made with the returned context as ones that spend
// a grace period: a pre-stop hook, which waits for what the application does and
// whose time runs out while it queues. They take no slot and wait for none.
func WithoutSlot(ctx context.Context) context.Context {
	return context.WithValue(ctx, slotlessKey{}, true)
}

func slotless(ctx context.Context) bool { return ctx.Value(slotlessKey{}) != nil }

type budget struct {
	queues [classCount]*slotQueue
}

func newBudget(l Limits) *budget {
	b := &budget{}
	for c := range classCount {
		b.queues[c] = newSlotQueue(l.of(c))
	}
	return b
}

// acquire blocks until the class has a slot for the context's priority or the
// context ends. A nil error obliges the caller to call release once.
func (b *budget) acquire(ctx context.Context, c Class) (release func(), err error) {
	q := b.queues[c]
	if err := q.acquire(ctx, Priority(ctx)); err != nil {
		return nil, err
	}
	return q.release, nil
}

func (b *budget) usage() []Usage {
	out := make([]Usage, 0, classCount)
	for c, q := range b.queues {
		u := q.usage()
		u.Class = Class(c)
		out = append(out, u)
	}
	return out
}
