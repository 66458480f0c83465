// Package guard keeps a panic in a goroutine that belongs to the process, and to no actor, from ending the process.
package guard

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// Call calls do and logs its panic with the stack. The panic comes back as an error: the caller calls again after the back-off
// that it has for errors.
func Call(log *slog.Logger, what string, do func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			log.Error("panic in a goroutine of the process; restarting it", "in", what, "reason", fmt.Sprint(r),
				"stack", string(debug.Stack()))
			err = fmt.Errorf("%s: panic: %v", what, r)
		}
	}()
	return do()
}

// afterPanic is the pause before a restart after a panic.
const afterPanic = time.Second

// GoOn runs something that lasts until ctx ends, and again after a panic, which is logged.
func GoOn(ctx context.Context, log *slog.Logger, what string, run func(context.Context)) {
	for Call(log, what, func() error { run(ctx); return nil }) != nil {
		select {
		case <-time.After(afterPanic):
		case <-ctx.Done():
			return
		}
	}
}
