package cri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/playlet-dev/playlet/cri/stall"
)

// GraceSlack is the smallest difference at which one deadline counts as earlier than another.
const GraceSlack = time.Second

// ErrOperationsClosed is returned for an operation that is requested after Close.
var ErrOperationsClosed = errors.New("the agent is shutting down: no new operations are started")

// PanicError is the error of an operation that panicked. All of its callers get it.
type PanicError struct {
	Key   string
	Value any    // the argument of panic
	Stack []byte // of the goroutine that panicked
}

// Error implements error. It omits the stack, which is for the log.
func (e *PanicError) Error() string { return fmt.Sprintf("operation %s panicked: %v", e.Key, e.Value) }

// Operations is the table of work that changes the world, keyed by its object ("start/<container ID>"). Such work outlives the
// actor that requested it: a cancelled StartContainer would delete the task that it made, and a second StopContainer would wait
// for the whole grace period again. A restarted actor requests it again with the same key and joins. A process has one table. The
// zero value is not usable, see NewOperations. Safe for concurrent use.
type Operations struct {
	mu       sync.Mutex
	inFlight map[string]*operation
	watches  map[*map[string]bool]bool  // each collects the keys of operations
	stopped  map[string]map[string]bool // the IDs of stopped sandboxes, by the UID of their pod
	closed   bool
	clock    clock.WithDelayedExecution
	began    time.Time
}

type operation struct {
	key     string
	waiting int           // callers of Do, guarded by Operations.mu
	done    chan struct{} // closed after result and err are final
	ctx     *stall.Context
	cut     context.CancelFunc
	result  any
	err     error
}

// NewOperations returns an empty table.
func NewOperations() *Operations {
	return &Operations{
		inFlight: map[string]*operation{}, watches: map[*map[string]bool]bool{},
		stopped: map[string]map[string]bool{}, clock: clock.RealClock{}, began: time.Now(),
	}
}

// Deadline formats a deadline as a part of a key, in milliseconds since the start of the table. Deadlines that were computed
// from time.Now compare by the monotonic clock, whether the wall clock was set in between or not.
func (o *Operations) Deadline(t time.Time) string {
	return strconv.FormatInt(t.Sub(o.began).Milliseconds(), 10)
}

// ParseDeadline returns the deadline that Deadline formatted.
func (o *Operations) ParseDeadline(text string) (time.Time, error) {
	ms, err := strconv.ParseInt(text, 10, 64)
	return o.began.Add(time.Duration(ms) * time.Millisecond), err
}

// Do joins the operation in flight under key or, if there is none, starts fn in a goroutine of its own. fn gets the values of
// ctx but not its end: its context ends after timeout, which must be positive, or later if fn makes progress (stall.Progress).
// Do returns fn's result, which all callers share and must not change, or the end of ctx, which leaves the operation running.
// The key stays taken until fn returns. If fn panics, all callers get the same *PanicError.
func (o *Operations) Do(
	ctx context.Context, key string, timeout time.Duration, fn func(context.Context) (any, error),
) (any, error) {
	if timeout <= 0 {
		return nil, fmt.Errorf("operation %s: a timeout of %s is not positive", key, timeout)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("operation %s: %w", key, err)
	}
	op, err := o.joinOrBegin(ctx, key, timeout, fn)
	if err != nil {
		return nil, err
	}
	defer o.leave(op)
	select {
	case <-op.done:
		return op.result, op.err
	case <-ctx.Done():
		return nil, fmt.Errorf("operation %s goes on, but its caller stopped waiting: %w", key, ctx.Err())
	}
}

func (o *Operations) joinOrBegin(
	ctx context.Context, key string, timeout time.Duration, fn func(context.Context) (any, error),
) (*operation, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if op, ok := o.inFlight[key]; ok {
		op.waiting++
		return op, nil
	}
	if o.closed {
		return nil, fmt.Errorf("operation %s: %w", key, ErrOperationsClosed)
	}
	own, cancel := stall.New(context.WithoutCancel(ctx), o.clock, timeout)
	op := &operation{key: key, waiting: 1, done: make(chan struct{}), ctx: own, cut: cancel}
	o.inFlight[key] = op
	for seen := range o.watches {
		(*seen)[key] = true
	}
	go func() {
		defer cancel()
		defer o.finish(op)
		op.run(own, fn)
	}()
	return op, nil
}

func (o *Operations) leave(op *operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	op.waiting--
}

// run calls fn and keeps its panic. After runtime.Goexit inside fn, the deferred function has nothing to recover. The callers
// must not take that for success.
func (op *operation) run(ctx context.Context, fn func(context.Context) (any, error)) {
	returned := false
	defer func() {
		if returned {
			return
		}
		value := recover()
		if value == nil {
			value = "it left its goroutine"
		}
		op.err = &PanicError{Key: op.key, Value: value, Stack: debug.Stack()}
	}()
	op.result, op.err = fn(ctx)
	returned = true
}

// finish frees the key before a caller can see the result, so that a caller that acts on it and requests the key again begins a
// new operation.
func (o *Operations) finish(op *operation) {
	o.mu.Lock()
	delete(o.inFlight, op.key)
	o.mu.Unlock()
	close(op.done)
}

// InFlight returns the keys with the prefix that have an operation in flight, sorted.
func (o *Operations) InFlight(prefix string) []string {
	var keys []string
	for _, op := range o.matching(prefix) {
		keys = append(keys, op.key)
	}
	slices.Sort(keys)
	return keys
}

// Watch collects the keys of all operations in flight until end is called, which returns them in no order. A reading between the
// two calls may show any of these operations half done.
func (o *Operations) Watch() (end func() []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := map[string]bool{}
	for key := range o.inFlight {
		seen[key] = true
	}
	o.watches[&seen] = true
	return func() []string {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.watches, &seen)
		return slices.Collect(maps.Keys(seen))
	}
}

// Progress returns the last note on the progress of the operation in flight under key (stall.Progress); nil: there is none.
func (o *Operations) Progress(key string) any {
	o.mu.Lock()
	defer o.mu.Unlock()
	if op, ok := o.inFlight[key]; ok {
		return op.ctx.Note()
	}
	return nil
}

// Waiting returns the number of callers that wait for the operation in flight under key. It is 0 if there is no operation.
func (o *Operations) Waiting(key string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if op, ok := o.inFlight[key]; ok {
		return op.waiting
	}
	return 0
}

// CutOff ends the context of the operation in flight under key, if there is one, and does not wait. It is for work that has
// become useless and may be left half done, such as the hook of a container that has ended, or the pull of an image that no pod
// needs. It must not be used for any other change in the runtime.
func (o *Operations) CutOff(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if op, ok := o.inFlight[key]; ok {
		op.cut()
	}
}

// Settle waits until no operation is in flight under any key with the prefix. If ctx ends first, the error names the remaining
// ones. Settle also waits for operations that begin meanwhile; the caller has to prevent them.
func (o *Operations) Settle(ctx context.Context, prefix string) error {
	for {
		ops := o.matching(prefix)
		if len(ops) == 0 {
			return nil
		}
		for _, op := range ops {
			select {
			case <-op.done:
			case <-ctx.Done():
				return fmt.Errorf("still running: %s: %w", strings.Join(o.InFlight(prefix), ", "), ctx.Err())
			}
		}
	}
}

// Close refuses new operations from now on and waits for those in flight. If ctx ends first, the error names them. Callers can
// still join operations in flight. Close may be called again to wait longer.
func (o *Operations) Close(ctx context.Context) error {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	return o.Settle(ctx, "")
}

func (o *Operations) matching(prefix string) []*operation {
	o.mu.Lock()
	defer o.mu.Unlock()
	var ops []*operation
	for key, op := range o.inFlight {
		if strings.HasPrefix(key, prefix) {
			ops = append(ops, op)
		}
	}
	return ops
}

// Run is Operations.Do for a function with a typed result. It returns an error if another caller uses the key for another type.
func Run[T any](
	ctx context.Context, o *Operations, key string, timeout time.Duration, fn func(context.Context) (T, error),
) (T, error) {
	var none T
	result, err := o.Do(ctx, key, timeout, func(ctx context.Context) (any, error) { return fn(ctx) })
	if err != nil || result == nil {
		return none, err
	}
	typed, ok := result.(T)
	if !ok {
		return none, fmt.Errorf("operation %s gave a %T where a %T is awaited", key, result, none)
	}
	return typed, nil
}
