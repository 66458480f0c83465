package sim

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ExecSync runs a command according to Script.Exec. It fails with DeadlineExceeded after the request's timeout (seconds; 0 for
// none), and exits with 137 when its container ends.
func (s *runtimeService) ExecSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	r := s.r
	r.mu.Lock()
	c, exec := r.store.containers[req.GetContainerId()], r.opts.Script.Exec
	var err error
	switch {
	case c == nil:
		err = errNotFound("failed to exec in container: failed to find container %q in store", req.GetContainerId())
	case !c.running():
		err = errUnknown("failed to exec in container: container is in %s state", c.state)
	}
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	var result ExecResult
	if exec != nil {
		result = exec(ctx, callFrom(ctx).target(), req.GetCmd())
	}
	return r.execute(ctx, c, result, time.Duration(req.GetTimeout())*time.Second)
}

// execute waits for the duration of the command.
func (r *Runtime) execute(ctx context.Context, c *container, result ExecResult,
	timeout time.Duration) (*runtimeapi.ExecSyncResponse, error) {
	lasts := result.Takes
	overdue := timeout > 0 && lasts > timeout
	if overdue {
		lasts = timeout
	}
	killed, err := r.sleepUnless(ctx, lasts, c.stopped)
	switch {
	case err != nil:
		return nil, err
	case killed:
		return &runtimeapi.ExecSyncResponse{ExitCode: killedCode}, nil
	case overdue:
		return nil,
			status.Errorf(codes.DeadlineExceeded, "failed to exec in container: timeout %v exceeded: context deadline exceeded",
				timeout)
	case result.Err != nil:
		return nil, result.Err
	}
	return &runtimeapi.ExecSyncResponse{
		Stdout: []byte(result.Stdout), Stderr: []byte(result.Stderr), ExitCode: result.Code,
	}, nil
}
