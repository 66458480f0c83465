package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/playlet-dev/playlet/supervisors"
)

// Driver does the work on one kind of objects. All its methods run outside the mailbox, may do I/O, and give up with
// ctx where they can. On one object, one of Ensure and Remove runs at a time in the process, whatever becomes of the
// actor.
type Driver[D, A any] interface {
	// Ensure makes the object as desired, and returns what is there then. It is idempotent, also after a crash at any
	// point in itself.
	Ensure(ctx context.Context, op Operation[D, A]) (A, error)
	// Remove removes the object. It has nothing to go by but the key and the world, and removing what is not there is success.
	Remove(ctx context.Context, key string) error
	// Inventory lists what is there, by key or, where the rules have one, by identity.
	Inventory(ctx context.Context) ([]string, error)
}

// Operations is the process-wide table of work that outlives the actor that asked for it; *cri.Operations has it. Do
// joins what is under way with the key or begins fn; when ctx ends it returns and leaves fn running, to at most the
// timeout.
type Operations interface {
	Do(ctx context.Context, key string, timeout time.Duration, fn func(context.Context) (any, error)) (any, error)
}

// Options are what a reconciler needs. Fields are required unless they say otherwise.
type Options[D, A any] struct {
	Rules[D, A]
	// Name is what one object is called in logs and in the names of work, e.g. "cgroup". Reconcilers of one actor have
	// different names.
	Name       string
	Driver     Driver[D, A]
	Operations Operations
	// Prefix begins the keys of operations in their table, e.g. "cgroups/"; OperationTimeout ends one that nobody awaits
	// any more.
	Prefix           string
	OperationTimeout time.Duration
	// Joins says that an operation under way does what mine is to do; nil: one that does the same to the same desired state.
	Joins func(underWay, mine Operation[D, A]) bool
	// Report tells clients how an operation ended. It runs on the mailbox.
	Report func(ctx supervisors.Context, r Report[D, A])
	// Pod is the UID of the pod that an object is of, for logs and the flight recorder; nil: the key is; empty: none.
	Pod func(key string) string
}

// Reconciler holds the desired state of the objects of one kind against their actual state, as a part of one actor.
// Its methods run on the actor's mailbox.
type Reconciler[D, A any] struct {
	opts    Options[D, A]
	machine *machine[D, A]
	timers  map[string]supervisors.Timer
}

// New makes a reconciler that knows no object. What is there it learns from those who ask, and from its first inventory.
func New[D, A any](opts Options[D, A]) *Reconciler[D, A] {
	if opts.Joins == nil {
		opts.Joins = func(a, b Operation[D, A]) bool {
			return a.Remove == b.Remove && (a.Remove || opts.Same(a.Desired, b.Desired))
		}
	}
	if opts.Pod == nil {
		opts.Pod = func(key string) string { return key }
	}
	return &Reconciler[D, A]{opts: opts, machine: newMachine(opts.Rules), timers: map[string]supervisors.Timer{}}
}

// Ensure says what is desired of an object. It is reported when it is so, and each time that it fails. Asking again
// for the same has what is there ensured once more, or the last failure reported again.
func (r *Reconciler[D, A]) Ensure(ctx supervisors.Context, key string, desired D) {
	r.carryOut(ctx, r.machine.ensure(ctx.Now(), key, desired))
}

// Remove says that an object is not to be there. What comes of it is reported once for each time that it was asked
// for; what fails is tried again.
func (r *Reconciler[D, A]) Remove(ctx supervisors.Context, key string) {
	r.carryOut(ctx, r.machine.discard(ctx.Now(), key, true))
}

// Touch says that what some objects are made of has changed: those that are there are ensured again.
func (r *Reconciler[D, A]) Touch(ctx supervisors.Context, keys ...string) {
	r.carryOut(ctx, r.machine.touch(ctx.Now(), keys...))
}

// Forget says that nobody desires anything of an object any more. It is not looked at again before somebody does, or
// a sweep finds it left behind. One that waits, or on which an operation is under way, stays.
func (r *Reconciler[D, A]) Forget(ctx supervisors.Context, key string) {
	r.carryOut(ctx, r.machine.drop(ctx.Now(), key))
}

// Sweep takes the whole set of objects that may be there. Complete says that everybody was heard for it: then the
// others are left behind, and are removed.
func (r *Reconciler[D, A]) Sweep(ctx supervisors.Context, wanted map[string]bool, complete bool) {
	r.carryOut(ctx, r.machine.whole(ctx.Now(), wanted, complete))
}

// SetPlaces changes how many operations a lane has at a time; 0 closes it, and a negative number is no bound.
func (r *Reconciler[D, A]) SetPlaces(ctx supervisors.Context, lane, places int) {
	r.carryOut(ctx, r.machine.setPlaces(ctx.Now(), lane, places))
}

// The messages that a reconciler sends its own actor. The reconciler says whose they are.
type (
	operationEnded struct {
		reconciler, pod, key string
		generation           uint64
		actual               any
		err                  error
	}
	timerFired struct {
		reconciler, pod, key string
		generation           uint64
	}
	inventoryEnded struct {
		reconciler string
		generation uint64
		found      []string
		err        error
	}
)

// PodUID implements messages.Subject.
func (m operationEnded) PodUID() string { return m.pod }

// PodUID implements messages.Subject.
func (m timerFired) PodUID() string { return m.pod }

// Receive takes a message that is the reconciler's own, and says whether it was.
func (r *Reconciler[D, A]) Receive(ctx supervisors.Context, msg any) bool {
	switch m := msg.(type) {
	case operationEnded:
		if m.reconciler == r.opts.Name {
			actual, _ := m.actual.(A) // it is one, or the nil of an interface
			r.carryOut(ctx, r.machine.ended(ctx.Now(), m.key, m.generation, actual, m.err))
			return true
		}
	case timerFired:
		if m.reconciler == r.opts.Name {
			r.carryOut(ctx, r.machine.timeout(ctx.Now(), m.key, m.generation))
			return true
		}
	case inventoryEnded:
		if m.reconciler == r.opts.Name {
			effects, news := r.machine.listed(ctx.Now(), m.generation, m.found, m.err)
			if news {
				ctx.Log().Warn(r.opts.Name+" inventory failed: what is left behind stays", "error", m.err)
			}
			r.carryOut(ctx, effects)
			return true
		}
	}
	return false
}

func (r *Reconciler[D, A]) carryOut(ctx supervisors.Context, out effects[D, A]) {
	for _, t := range out.transitions {
		r.log(ctx, t.key).Debug(r.opts.Name+" phase transition", "key", t.key, "from", t.from, "to", t.to)
	}
	for _, t := range out.timers {
		if old := r.timers[t.key]; old != nil {
			old.Cancel()
			delete(r.timers, t.key)
		}
		if !t.at.IsZero() {
			r.timers[t.key] = ctx.After(max(t.at.Sub(ctx.Now()), 0),
				timerFired{r.opts.Name, r.opts.Pod(t.key), t.key, t.generation})
		}
	}
	for _, op := range out.begin {
		verb, timeout := "ensure ", r.opts.Timeout
		if op.Remove {
			verb, timeout = "remove ", r.opts.RemoveTimeout
		}
		name, pod := verb+r.opts.Name+" "+op.Key, r.opts.Pod(op.Key)
		ctx.Do(supervisors.Work{Name: name, Pod: pod, Timeout: timeout, Run: func(ctx context.Context) any {
			actual, err := r.run(ctx, op)
			return operationEnded{r.opts.Name, pod, op.Key, op.Generation, actual, err}
		}})
	}
	if out.list != 0 {
		ctx.Do(supervisors.Work{Name: "list " + r.opts.Name, Timeout: r.opts.Timeout, Run: func(ctx context.Context) any {
			found, err := r.inventory(ctx)
			return inventoryEnded{r.opts.Name, out.list, found, err}
		}})
	}
	// Last, since a report may ask for more of the same key, whose timer must not be cancelled by an older one's.
	for _, report := range out.reports {
		if report.News {
			r.log(ctx, report.Key).Warn(r.opts.Name+" operation failed",
				"key", report.Key, "remove", report.Remove, "error", report.Err, "retryAt", report.RetryAt)
		}
		r.opts.Report(ctx, report)
	}
}

func (r *Reconciler[D, A]) log(ctx supervisors.Context, key string) *slog.Logger {
	if pod := r.opts.Pod(key); pod != "" {
		return ctx.Log().With("pod", pod)
	}
	return ctx.Log()
}

// outcome is what an operation leaves in the table for those who joined it.
type outcome[D, A any] struct {
	op     Operation[D, A]
	actual A
	err    error
}

func (r *Reconciler[D, A]) run(ctx context.Context, op Operation[D, A]) (A, error) {
	joins := func(o outcome[D, A]) bool { return r.opts.Joins(o.op, op) }
	key, timeout := r.opts.Prefix+op.Key, r.opts.OperationTimeout
	out, err := Join(ctx, r.opts.Operations, key, timeout, joins, func(ctx context.Context) outcome[D, A] {
		if op.Remove {
			return outcome[D, A]{op: op, err: r.opts.Driver.Remove(ctx, op.Key)}
		}
		actual, err := r.opts.Driver.Ensure(ctx, op)
		return outcome[D, A]{op, actual, err}
	})
	if err != nil {
		return op.Actual, err
	}
	return out.actual, out.err
}

// inventory lists what is there. Its key in the table is below no object's, so that no operation waits for it.
func (r *Reconciler[D, A]) inventory(ctx context.Context) ([]string, error) {
	type listing struct {
		found []string
		err   error
	}
	key, timeout, all := "inventory/"+r.opts.Prefix, r.opts.OperationTimeout, func(listing) bool { return true }
	out, err := Join(ctx, r.opts.Operations, key, timeout, all, func(ctx context.Context) listing {
		found, err := r.opts.Driver.Inventory(ctx)
		return listing{found, err}
	})
	if err != nil {
		return nil, err
	}
	return out.found, out.err
}

// Join runs fn as the one operation with the key. One that is under way is joined when its result fits, and otherwise
// awaited. The error is the end of the wait, or a panic: an operation belongs to no actor that could fail of it.
func Join[T any](
	ctx context.Context, ops Operations, key string, timeout time.Duration, fits func(T) bool, fn func(context.Context) T,
) (T, error) {
	for {
		own := false
		result, err := ops.Do(ctx, key, timeout, func(ctx context.Context) (result any, err error) {
			defer func() {
				if p := recover(); p != nil {
					supervisors.LogOf(ctx).Error("panic in an operation",
						"operation", key, "reason", fmt.Sprint(p), "stack", string(debug.Stack()))
					err = fmt.Errorf("a bug in the agent, whose log has the stack: %v", p)
				}
			}()
			own = true
			return fn(ctx), nil
		})
		if mine, ok := result.(T); err != nil || ok && (own || fits(mine)) {
			return mine, err
		}
	}
}
