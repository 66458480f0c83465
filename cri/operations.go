package cri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/playlet-dev/playlet/cri/stall"
)

// GraceSlack is by how much a deadline must be earlier than another to count as earlier.
const GraceSlack = time.Second

// ErrOperationsClosed is the answer to an operation asked for after Close.
var ErrOperationsClosed = errors.New("the agent is shutting down: no new operation is begun")

// PanicError is what everyone waiting for an operation gets when it panicked.
type PanicError struct {
	Key   string
	Value any    // what was given to panic
	Stack []byte // of the goroutine that panicked
}

// Error implements error. The stack is left out: it is for the log.
func (e *PanicError) Error() string { return fmt.Sprintf("operation %s panicked: %v", e.Key, e.Value) }

// Operations holds the work that changes the world, keyed by what it changes
// ("start/<container ID>"). Such work outlives the actor that asked for it: a
// cancelled StartContainer would delete the task it made, a second StopContainer
// would wait the whole grace period again. An actor that comes back asks again
// with the same key and joins. There is one table in a process; the zero value
// is not usable, see NewOperations. Safe for concurrent use.
type Operations struct {
	mu       sync.Mutex
	inFlight map[string]*operation
	watches  map[*map[string]bool]bool // each collects the keys that something runs under
	closed   bool
	clock    clock.WithDelayedExecution
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
	return &Operations{inFlight: map[string]*operation{}, watches: map[*map[string]bool]bool{}, clock: clock.RealClock{}}
}

// Do joins the operation in flight under key or, if there is none, begins fn in
// a goroutine of its own. fn gets the values of ctx but not its end: its context
// ends after timeout, which must be positive, or later where fn makes progress
// (stall.Progress). Do returns fn's result, shared by
// all who joined (so it must not be changed), or the end of ctx, which leaves
// the operation running. The key stays taken until fn returns. When fn panics,
// everyone gets the same *PanicError.
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

// run calls fn and keeps its panic. runtime.Goexit inside fn runs the deferred
// function with nothing to recover; the waiters must not take that for success.
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

// finish frees the key before anyone can see the result: who acts on it and
// asks again begins a new operation.
func (o *Operations) finish(op *operation) {
	o.mu.Lock()
	delete(o.inFlight, op.key)
	o.mu.Unlock()
	close(op.done)
}

// InFlight returns the keys with the prefix under which something runs, sorted.
func (o *Operations) InFlight(prefix string) []string {
	var keys []string
	for _, op := range o.matching(prefix) {
		keys = append(keys, op.key)
	}
	slices.Sort(keys)
	return keys
}

// Watch collects the keys under which something runs from now on, be it for a moment only, until the function that it
// returns is called, which gives them in no order. What is read between the two calls may show any of it half done.
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

// Progress returns the last note on the progress of the operation in flight under
// key (stall.Progress), nil where there is none.
func (o *Operations) Progress(key string) any {
	o.mu.Lock()
	defer o.mu.Unlock()
	if op, ok := o.inFlight[key]; ok {
		return op.ctx.Note()
	}
	return nil
}

// Waiting returns how many callers wait for the operation in flight under key,
// 0 when they all left or there is none.
func (o *Operations) Waiting(key string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if op, ok := o.inFlight[key]; ok {
		return op.waiting
	}
	return 0
}

// CutOff ends the context of what runs under key, if anything does, and waits for nothing. It is for work that is of no use
// any more and may be left half done, such as the hook of a container that has ended, or the pull of an image that no pod
// needs; never for another change in the runtime.
func (o *Operations) CutOff(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if op, ok := o.inFlight[key]; ok {
		op.cut()
	}
}

// Settle waits until nothing runs under any key with the prefix, or returns the
// end of ctx, naming what still does. Operations begun meanwhile are waited for
// too; the caller sees to it that none are.
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

// Close refuses new operations from now on and waits for those in flight, or
// returns the end of ctx, naming them. Joining remains possible. It may be
// called again to wait longer.
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

// Run is Operations.Do for a function with a typed result. Two callers that use
// one key for different types is a mistake, and an error.
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
