package cri

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ExecResult is the output and the exit code of a command.
type ExecResult struct {
	Stdout, Stderr []byte
	ExitCode       int32
}

// ExecSync runs a command in the container and waits for its end, at most for timeout (rounded up to whole seconds; 0 means
// RequestTimeout). A command with an exit code other than 0 is a result, not an error. If the runtime ends it at the timeout, the
// error satisfies IsTimeout and is Answered. It holds a slot until it returns, unless WithoutSlot.
func (c *Client) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (ExecResult, error) {
	resp, err := c.runtime.ExecSync(ctx,
		&runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: wholeSeconds(timeout)})
	return ExecResult{Stdout: resp.GetStdout(), Stderr: resp.GetStderr(), ExitCode: resp.GetExitCode()}, err
}

// Exec returns the URL at which the runtime streams the command.
func (c *Client) Exec(ctx context.Context, req *runtimeapi.ExecRequest) (string, error) {
	resp, err := c.runtime.Exec(ctx, req)
	return resp.GetUrl(), err
}

// Attach returns the URL at which the runtime streams the container's terminal.
func (c *Client) Attach(ctx context.Context, req *runtimeapi.AttachRequest) (string, error) {
	resp, err := c.runtime.Attach(ctx, req)
	return resp.GetUrl(), err
}

// PortForward returns the URL at which the runtime streams the sandbox's ports.
func (c *Client) PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (string, error) {
	resp, err := c.runtime.PortForward(ctx, req)
	return resp.GetUrl(), err
}

// GetContainerEvents calls event for each container event until the stream ends or ctx does, and always returns an error: the
// context's own, or a CallError. If the runtime is too old (containerd 1.6), it satisfies IsUnimplemented. opened is called when
// the request has been sent: earlier changes must be read from lists after it, and even later events are hints that may be lost
// (a runtime drops them if they are not read). It holds no slot and has no deadline. Both functions are called from this
// goroutine; a slow one delays the next event.
func (c *Client) GetContainerEvents(
	ctx context.Context, opened func(), event func(*runtimeapi.ContainerEventResponse),
) error {
	const name = "GetContainerEvents"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return eventsEnded(ctx, newCallError(name, "", false, err))
	}
	opened()
	for {
		ev, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			err = status.Error(codes.Unavailable, "the runtime ended the stream of events")
		}
		if err != nil {
			header, headerErr := stream.Header()
			answered := headerErr == nil && len(header) > 0 || len(stream.Trailer()) > 0
			return eventsEnded(ctx, newCallError(name, "", answered, err))
		}
		event(ev)
	}
}

func eventsEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
