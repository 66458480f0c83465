package cri

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// call is one CRI request as the budget and the errors see it.
type call struct {
	name   string
	object string
	class  Class
	// extra is how long the call may wait beyond RequestTimeout: a grace period,
	// a command's run. total, if set, replaces both.
	extra, total time.Duration
	// slotless calls take no slot, because they do nothing but wait.
	slotless bool
}

type unary[Q, R any] func(context.Context, Q, ...grpc.CallOption) (R, error)

// invoke waits for a slot, makes the call with its deadline and gives a failure
// its type. The deadline begins when the slot is taken, so that a full queue
// does not eat the time of those in it; waiting is bounded by ctx alone.
func invoke[Q, R any](ctx context.Context, c *Client, k call, method unary[Q, R], req Q) (R, error) {
	var none R
	asked := time.Now()
	if !k.slotless && !slotless(ctx) {
		release, err := c.budget.acquire(ctx, k.class)
		if err != nil {
			return none, &CallError{Call: k.name, Object: k.object, NotSent: true, Err: err}
		}
		defer release()
	}
	limit := k.total
	if limit == 0 {
		limit = c.opts.RequestTimeout + k.extra
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// gRPC makes up a status when the connection or the deadline fails. Only one
	// that came over the wire brings headers or trailers.
	var header, trailer metadata.MD
	began := time.Now()
	resp, err := method(ctx, req, grpc.Header(&header), grpc.Trailer(&trailer))
	if c.opts.Observe != nil {
		c.opts.Observe(ctx, Observation{k.name, k.object, req, asked, began, time.Since(began), err})
	}
	if err != nil {
		answered := len(header)+len(trailer) > 0 && !ended(ctx)
		return none, newCallError(k.name, k.object, answered, err)
	}
	return resp, nil
}

// ended reports whether the call's time is up. The runtime knows the deadline too
// (gRPC sends it along) and may be first to say that it has passed; that is no
// answer. The clock is asked, as the context's timer may be late.
func ended(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// shortID is what people know of an ID: its first 13 characters, as crictl.
func shortID(id string) string {
	if len(id) > 13 {
		return id[:13]
	}
	return id
}
