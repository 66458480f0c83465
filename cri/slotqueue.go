package cri

import (
	"container/heap"
	"context"
	"sync"
)

// slotQueue is a counting semaphore whose waiters are served by priority, lower
// first, and first come first served within one priority. A free slot and a
// waiter never exist together: a released slot is handed over under the lock,
// so nobody can barge in between.
type slotQueue struct {
	mu      sync.Mutex
	limit   int
	inUse   int
	arrived uint64
	waiters waiterHeap
}

type waiter struct {
	priority int64
	arrived  uint64
	index    int // place in the heap, -1 once it has left it
	granted  chan struct{}
}

func newSlotQueue(limit int) *slotQueue { return &slotQueue{limit: limit} }

// acquire takes a slot or returns the context's error. A context that has ended
// gets no slot even when one is free.
func (q *slotQueue) acquire(ctx context.Context, priority int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	q.mu.Lock()
	if q.inUse < q.limit {
		q.inUse++
		q.mu.Unlock()
		return nil
	}
	q.arrived++
	w := &waiter{priority: priority, arrived: q.arrived, granted: make(chan struct{})}
	heap.Push(&q.waiters, w)
	q.mu.Unlock()

	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	left := w.index >= 0
	if left {
		heap.Remove(&q.waiters, w.index)
	}
	q.mu.Unlock()
	if !left {
		// Granted in the same moment: the slot is ours and goes to the next.
		q.release()
	}
	return ctx.Err()
}

// release hands the slot to the first waiter, or back.
func (q *slotQueue) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.releaseLocked()
}

func (q *slotQueue) releaseLocked() {
	if len(q.waiters) == 0 {
		q.inUse--
		return
	}
	next, ok := heap.Pop(&q.waiters).(*waiter)
	if !ok {
		panic("cri: a slot queue holds something that is no waiter")
	}
	close(next.granted)
}

func (q *slotQueue) usage() Usage {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Usage{Limit: q.limit, InUse: q.inUse, Waiting: len(q.waiters)}
}

// waiterHeap implements heap.Interface.
type waiterHeap []*waiter

func (h waiterHeap) Len() int { return len(h) }

func (h waiterHeap) Less(i, j int) bool {
	if h[i].priority != h[j].priority {
		return h[i].priority < h[j].priority
	}
	return h[i].arrived < h[j].arrived
}

func (h waiterHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *waiterHeap) Push(x any) {
	w, ok := x.(*waiter)
	if !ok {
		panic("cri: a slot queue was given something that is no waiter")
	}
	w.index = len(*h)
	*h = append(*h, w)
}

func (h *waiterHeap) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	w.index = -1
	return w
}
