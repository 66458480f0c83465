package cri

import (
	"cmp"
	"context"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Class is a share of the runtime's capacity. A call only waits for calls of its own class, so that a storm of pod starts cannot
// hold up a stop, nor a slow pull a probe.
type Class int

const (
	// ClassRead covers read-only calls and the small node-wide settings (ReopenContainerLog, UpdateRuntimeConfig).
	ClassRead Class = iota
	// ClassStart covers calls that fork, mount or run CNI plugins.
	ClassStart
	// ClassStop covers stops, and removals of images. A StopContainer with a grace period holds its slot only until its container
	// has exited, or signalHold is over.
	ClassStop
	// ClassRemove covers removals of dead containers and sandboxes. They are not urgent: while a start or a stop has a slot, they
	// wait, for up to patience, and then use a third of the slots.
	ClassRemove
	// ClassPull is PullImage.
	ClassPull
	// ClassExec covers commands and streams. A pre-stop hook is an ExecSync WithoutSlot.
	ClassExec

	classCount
)

// classes maps each call to its class. Calls that are not listed are ClassRead.
var classes = map[string]Class{
	"RunPodSandbox": ClassStart, "CreateContainer": ClassStart, "StartContainer": ClassStart, "CheckpointContainer": ClassStart,
	"UpdateContainerResources": ClassStart, "UpdatePodSandboxResources": ClassStart,
	"StopPodSandbox": ClassStop, "StopContainer": ClassStop, "RemoveImage": ClassStop,
	"RemovePodSandbox": ClassRemove, "RemoveContainer": ClassRemove,
	"PullImage": ClassPull,
	"ExecSync":  ClassExec, "Exec": ClassExec, "Attach": ClassExec, "PortForward": ClassExec,
}

// Limits is the maximum number of concurrent calls per class. A zero selects the default.
type Limits [classCount]int

// withDefaults sets the missing limits for this machine. Starting and stopping are bounded by processors: on two cores ninety
// pods started all at once took 11.2 s with a median of 10.0 s, four at a time 8.8 s and 4.2 s. Three calls per core keep the
// cores busy while pods are between two calls; four at a time did not. Exec is wide because nearly all of its time is the
// command's own. Pull is only the outer bound: the image puller applies serializeImagePulls and maxParallelImagePulls.
func (l Limits) withDefaults() Limits {
	work := max(3*runtime.NumCPU(), 4)
	defaults := Limits{ClassStart: work, ClassStop: work, ClassRemove: work, ClassPull: 8, ClassExec: 32, ClassRead: 2 * work}
	for class, fallback := range defaults {
		l[class] = cmp.Or(l[class], fallback)
	}
	return l
}

type priorityKey struct{}

// NodePriority is the priority of a context without one: calls made for the node and not for a pod (Status, Version, lists). They
// are few and quick, and every pod waits for their answers, so they go before all pods.
const NodePriority int64 = math.MinInt64

// WithPriority assigns the calls made with the returned context to the pod with start order n: its creation time in nanoseconds,
// or a counter. Lower goes first; equal priorities are served in order of arrival. All calls of a pod carry the same n, so a pod
// that has already started (its sandbox is up, a container is to be created) overtakes every younger pod still waiting for its
// sandbox.
func WithPriority(ctx context.Context, n int64) context.Context {
	return context.WithValue(ctx, priorityKey{}, n)
}

// Priority returns the value set by WithPriority, else NodePriority.
func Priority(ctx context.Context) int64 {
	if n, ok := ctx.Value(priorityKey{}).(int64); ok {
		return n
	}
	return NodePriority
}

// priorityIn returns the priority of a call of a class. Stops and removals for the node (dead containers, unused images) can be
// many, and no pod waits for them: they go after all pods.
func priorityIn(ctx context.Context, class Class) int64 {
	n := Priority(ctx)
	if n == NodePriority && (class == ClassStop || class == ClassRemove) {
		return math.MaxInt64
	}
	return n
}

type startingKey struct{}

// PartOfStart marks the calls made with the returned context as part of a start. A removal that a start waits for takes a slot of
// the starts, because the removals yield to them. Such removals have a third of these slots: hung ones block no other start.
func PartOfStart(ctx context.Context) context.Context {
	return context.WithValue(ctx, startingKey{}, true)
}

// queuesOf returns the class of a call, and the queues of which it takes a slot, in this order.
func (c *Client) queuesOf(ctx context.Context, name string) (Class, []*slotQueue) {
	class := classes[name]
	if class == ClassRemove && ctx.Value(startingKey{}) != nil {
		return ClassStart, []*slotQueue{c.startRemovals, c.budget[ClassStart]}
	}
	return class, []*slotQueue{c.budget[class]}
}

type slotlessKey struct{}

// WithoutSlot marks the calls made with the returned context as part of a grace period. A pre-stop hook, for example, waits for
// the application, and its time would run out in the queue. Such calls take no slot and wait for none.
func WithoutSlot(ctx context.Context) context.Context {
	return context.WithValue(ctx, slotlessKey{}, true)
}

// signalHold is the longest time for which a StopContainer with a grace period holds its slot. Containers that exit at their
// signal thus do so a few at a time, in the order of their pods: if a runtime ends ninety at once, all of them end late.
// Containers that use their grace period delay the signals of others by a known time: with six slots, by a twelfth of a second
// each.
const signalHold = 500 * time.Millisecond

func hasGrace(req any) bool {
	stop, ok := req.(*runtimeapi.StopContainerRequest)
	return ok && stop.Timeout > 0
}

// Crowded reports whether starts or stops of pods wait for a slot.
func (c *Client) Crowded() bool {
	return slices.ContainsFunc([]*slotQueue{c.budget[ClassStart], c.budget[ClassStop]}, func(q *slotQueue) bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.waiters) > 0
	})
}

// slotQueue is a counting semaphore. It serves waiters by priority, lower first,
// and by arrival within one priority. Every agedTurn-th handover goes to the
// longest wait instead, so that older pods with many calls cannot shut out a
// younger one. A free slot and a waiter exist together only while the queue
// yields to others, which look again when they are idle.
type slotQueue struct {
	mu       sync.Mutex
	limit    int
	yieldsTo []*slotQueue // while one of these has a slot in use, this one waits, for up to patience
	yielding []*slotQueue // the queues that yield to this one
	since    time.Time    // the first call that had to wait for the others; zero: they were idle since
	inUse    int
	arrivals uint64
	handed   uint64
	waiters  []*waiter // in the order of service
}

// agedTurn is the number of handovers per handover to the longest wait.
const agedTurn = 8

// patience is how long the calls of a queue that yields wait for the others to be idle. After that they use a third of their
// slots until the others are idle. A burst of 90 deletions on two cores is stopped in about this time, which is also how long a
// signal waits for its slot.
const patience = 10 * time.Second

type waiter struct {
	priority int64
	arrival  uint64
	granted  chan struct{}
}

// take takes a slot for a call and returns the function that releases it. With signal, the call is a StopContainer with a grace
// period: it keeps the slot for signalHold at most, and goes on without one after patience, since calls that hang in the runtime
// must not keep a signal from other containers.
func (q *slotQueue) take(ctx context.Context, priority int64, signal bool) (release func(), err error) {
	if !signal {
		return q.release, q.acquire(ctx, priority)
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := q.acquire(wait, priority); err != nil {
		return func() {}, ctx.Err()
	}
	free := sync.OnceFunc(q.release)
	timer := time.AfterFunc(signalHold, free)
	return func() { timer.Stop(); free() }, nil
}

// acquire takes a slot or returns the context's error. A context that has ended gets no slot even when one is free. After a nil
// error the caller must call release once.
func (q *slotQueue) acquire(ctx context.Context, priority int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	q.mu.Lock()
	if len(q.waiters) == 0 && q.inUse < q.usable() {
		q.inUse++
		q.mu.Unlock()
		return nil
	}
	q.arrivals++
	w := &waiter{priority, q.arrivals, make(chan struct{})}
	at, _ := slices.BinarySearchFunc(q.waiters, priority, func(other *waiter, priority int64) int {
		return cmp.Or(cmp.Compare(other.priority, priority), -1) // after waiters of the same priority
	})
	q.waiters = slices.Insert(q.waiters, at, w)
	q.grant()
	q.mu.Unlock()

	var impatient <-chan time.Time
	if len(q.yieldsTo) > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		impatient = timer.C
	}
	for waiting := true; waiting; {
		select {
		case <-w.granted:
			return nil
		case <-impatient:
			q.mu.Lock()
			q.grant()
			q.mu.Unlock()
		case <-ctx.Done():
			waiting = false
		}
	}
	q.mu.Lock()
	at = slices.Index(q.waiters, w)
	if at >= 0 {
		q.waiters = slices.Delete(q.waiters, at, at+1)
	}
	q.mu.Unlock()
	if at < 0 {
		// Granted at the same moment: pass the slot on.
		q.release()
	}
	return ctx.Err()
}

// release hands the slot to the next waiter, or frees it.
func (q *slotQueue) release() {
	q.mu.Lock()
	q.inUse--
	q.grant()
	idle := q.inUse == 0
	q.mu.Unlock()
	if idle { // without the lock: an acquire of the others takes it while it holds theirs
		for _, other := range q.yielding {
			other.mu.Lock()
			other.grant()
			other.mu.Unlock()
		}
	}
}

// yieldTo makes q wait while another queue has a slot in use. It is called before the first acquire.
func (q *slotQueue) yieldTo(others ...*slotQueue) {
	q.yieldsTo = others
	for _, other := range others {
		other.yielding = append(other.yielding, q)
	}
}

// usable returns the number of slots for now. A single hung call does not block the others for longer than patience.
func (q *slotQueue) usable() int {
	switch {
	case !slices.ContainsFunc(q.yieldsTo, (*slotQueue).busy):
		q.since = time.Time{}
		return q.limit
	case q.since.IsZero():
		q.since = time.Now()
		return 0
	case time.Since(q.since) < patience:
		return 0
	default:
		return third(q.limit)
	}
}

// third returns a third of a limit, and at least one.
func third(limit int) int { return max(1, limit/3) }

func (q *slotQueue) busy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inUse > 0
}

// grant gives the free slots to waiters.
func (q *slotQueue) grant() {
	for len(q.waiters) > 0 && q.inUse < q.usable() {
		next := 0
		if q.handed++; q.handed%agedTurn == 0 {
			for i, w := range q.waiters {
				if w.arrival < q.waiters[next].arrival {
					next = i
				}
			}
		}
		q.inUse++
		close(q.waiters[next].granted)
		q.waiters = slices.Delete(q.waiters, next, next+1)
	}
}
