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
	// Ensure brings the object to its desired state, and returns the actual state. It is idempotent, also after a crash at
	// any point.
	Ensure(ctx context.Context, op Operation[D, A]) (A, error)
	// Remove removes the object, by its key alone. Removing an absent object succeeds.
	Remove(ctx context.Context, key string) error
	// Inventory lists the present objects, by key or, where the rules have one, by identity.
	Inventory(ctx context.Context) ([]string, error)
}

// Operations is the process-wide table of work that outlives its actor, such as *cri.Operations. Do joins the operation with
// the key, or runs fn. When ctx ends, Do returns and fn goes on, for timeout at most.
type Operations interface {
	Do(ctx context.Context, key string, timeout time.Duration, fn func(context.Context) (any, error)) (any, error)
}

// Options configure a reconciler. Fields are required unless noted.
type Options[D, A any] struct {
	Rules[D, A]
	// Name is the kind of object in logs and names of work, e.g. "cgroup". Reconcilers of one actor have different names.
	Name       string
	Driver     Driver[D, A]
	Operations Operations
	// Prefix begins the keys of operations in their table, e.g. "cgroups/". OperationTimeout ends an operation that has lost
	// its waiters.
	Prefix           string
	OperationTimeout time.Duration
	// Joins reports whether the running operation has the result that mine needs. By default, both have the same kind and the
	// same desired state.
	Joins func(underWay, mine Operation[D, A]) bool
	// Report reports the result of an operation to clients. It runs on the mailbox.
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

// New returns a reconciler without objects. It learns of them from clients and from its first inventory.
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

// Ensure sets the desired state of an object. Success and each failure are reported. Repeating it ensures the object once
// more, or reports the last failure again.
func (r *Reconciler[D, A]) Ensure(ctx supervisors.Context, key string, desired D) {
	r.carryOut(ctx, r.machine.ensure(ctx.Now(), key, desired))
}

// Remove removes an object. Each call leads to one report; failures are retried.
func (r *Reconciler[D, A]) Remove(ctx supervisors.Context, key string) {
	r.carryOut(ctx, r.machine.discard(ctx.Now(), key, true))
}

// Touch ensures present objects again after a change of their inputs.
func (r *Reconciler[D, A]) Touch(ctx supervisors.Context, keys ...string) {
	r.carryOut(ctx, r.machine.touch(ctx.Now(), keys...))
}

// Forget forgets an object that has no client left, until a client or a sweep finds it again. An object with a pending or
// running operation stays.
func (r *Reconciler[D, A]) Forget(ctx supervisors.Context, key string) {
	r.carryOut(ctx, r.machine.drop(ctx.Now(), key))
}

// Sweep sets the whole set of desired objects. If it is complete, meaning that every source has reported, all others are
// orphans and are removed.
func (r *Reconciler[D, A]) Sweep(ctx supervisors.Context, wanted map[string]bool, complete bool) {
	r.carryOut(ctx, r.machine.setDesired(ctx.Now(), wanted, complete))
}

// SetPlaces changes how many operations a lane has at a time; 0 closes it, and a negative number is no bound.
func (r *Reconciler[D, A]) SetPlaces(ctx supervisors.Context, lane, places int) {
	r.carryOut(ctx, r.machine.setPlaces(ctx.Now(), lane, places))
}

// The messages of a reconciler to its own actor carry the reconciler's name.
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
		keys       []string
		err        error
	}
)

// PodUID implements messages.Subject.
func (m operationEnded) PodUID() string { return m.pod }

// PodUID implements messages.Subject.
func (m timerFired) PodUID() string { return m.pod }

// Receive handles the reconciler's own messages, and returns whether msg was one.
func (r *Reconciler[D, A]) Receive(ctx supervisors.Context, msg any) bool {
	switch m := msg.(type) {
	case operationEnded:
		if m.reconciler == r.opts.Name {
			actual, _ := m.actual.(A) // it is one, or the nil of an interface
			r.carryOut(ctx, r.machine.handleEnd(ctx.Now(), m.key, m.generation, actual, m.err))
			return true
		}
	case timerFired:
		if m.reconciler == r.opts.Name {
			r.carryOut(ctx, r.machine.timeout(ctx.Now(), m.key, m.generation))
			return true
		}
	case inventoryEnded:
		if m.reconciler == r.opts.Name {
			effects, news := r.machine.listed(ctx.Now(), m.generation, m.keys, m.err)
			if news {
				ctx.Log().Warn(r.opts.Name+" inventory failed; leftovers are not removed", "error", m.err)
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
	// Reports come last: a report may call Ensure for its key, and an older timer effect must not cancel the new timer.
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

// outcome is the result of an operation in the table, for those that joined it.
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

// inventory lists the present objects. Its key in the table differs from all objects' keys, so that no operation waits for
// it.
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

// Join runs fn as the only operation with the key. It joins an operation in progress if the result fits, and otherwise waits
// for its end. The error is the end of ctx, or a panic: an operation has no actor that could fail with it.
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
