package volumes

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// Operations is the process-wide table of work that outlives the actor that asked for it.
type Operations interface {
	// Do joins what is under way with the key or begins fn; when ctx ends it returns and leaves fn running, to at most the
	// timeout.
	Do(ctx context.Context, key string, timeout time.Duration, fn func(context.Context) (any, error)) (any, error)
	// Settle waits until nothing is under way with a key that begins so, or for the end of ctx: that error names what is.
	Settle(ctx context.Context, prefix string) error
}

const operationsPrefix = "volumes/"

// operationTimeout ends an operation that nobody waits for any more, as far as the kernel lets it be ended. A large
// emptyDir on a slow disk takes minutes to remove.
const operationTimeout = 10 * time.Minute

// exclusive runs fn as the one operation of this pod, or of one of its volumes, so that it outlives the actor. What another incarnation of the
// actor began is joined when its result fits, and otherwise awaited. The error is the end of the wait, not of the work.
func exclusive[T any](ctx context.Context, d disk, key string, fits func(T) bool, fn func(context.Context) T) (T, error) {
	for {
		result, err := d.ops.Do(ctx, operationsPrefix+key, operationTimeout, func(ctx context.Context) (result any, err error) {
			defer d.catch(key, &err)
			return fn(ctx), nil
		})
		if err != nil {
			var none T
			return none, err
		}
		if mine, ok := result.(T); ok && fits(mine) {
			return mine, nil
		}
	}
}

// look reads something from the disk, for at most as long as ctx: a disk that hangs keeps the reader, not the actor.
func look[T any](ctx context.Context, d disk, what string, fn func() (T, error)) (T, error) {
	result, err := d.ops.Do(ctx, "volumes-look/"+what, lookPatience, func(context.Context) (result any, err error) {
		defer d.catch(what, &err)
		return fn()
	})
	found, _ := result.(T)
	return found, err
}

// catch turns a panic of an operation, which belongs to no actor, into its error.
func (d disk) catch(what string, err *error) {
	if r := recover(); r != nil {
		d.log.Error("panic in an operation on volumes", "of", what, "reason", fmt.Sprint(r), "stack", string(debug.Stack()))
		*err = fmt.Errorf("a bug in the agent, told in its log: %v", r)
	}
}
