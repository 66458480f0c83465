package sim

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// strikeBefore applies the faults that come before the work. done says that the call ends here.
func (r *Runtime) strikeBefore(ctx context.Context, c *call) (done bool, err error) {
	if c.fault == nil {
		return false, nil
	}
	switch c.fault.Kind {
	case Error:
		if err := r.sleep(ctx, c.fault.Delay); err != nil {
			return true, err
		}
		return true, c.fault.err()
	case Hang:
		select {
		case <-c.fault.released:
			return false, nil
		case <-ctx.Done():
			return true, status.FromContextError(ctx.Err()).Err()
		}
	case CrashBefore:
		r.crash()
		<-ctx.Done()
		return true, status.FromContextError(ctx.Err()).Err()
	default: // it comes after the work, or slows it
	}
	return false, nil
}

// strikeAfter applies the faults that come after the work.
func (r *Runtime) strikeAfter(ctx context.Context, c *call, resp any, err error) (any, error) {
	if c.fault == nil {
		return resp, err
	}
	switch c.fault.Kind {
	case Drop:
		return nil, status.Error(codes.Unavailable, "error reading from server: EOF")
	case Swallow:
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case CrashAfter:
		r.crash()
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case Wrong:
		if m, ok := resp.(proto.Message); ok && err == nil {
			m = proto.Clone(m)
			spoil(m)
			return m, nil
		}
	default: // it came before the work
	}
	return resp, err
}
