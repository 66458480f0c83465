package cri

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// answered reports whether the runtime replied that it ended the command, as opposed to no reply.
func answered(err error) bool {
	e, ok := errors.AsType[*CallError](err)
	return ok && e.Answered
}

func TestExecSync(t *testing.T) {
	f := &fakeRuntime{}
	c := fakeClient(t, f, Options{RequestTimeout: time.Minute})
	f.execSync = func(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
		if deadline, _ := ctx.Deadline(); r.Timeout != 2 || time.Until(deadline) < time.Minute {
			t.Errorf("timeout %d, deadline in %s", r.Timeout, time.Until(deadline))
		}
		return &runtimeapi.ExecSyncResponse{Stdout: []byte("out"), Stderr: []byte("err"), ExitCode: 7}, nil
	}
	got, err := c.ExecSync(t.Context(), "id", []string{"x"}, 1500*time.Millisecond)
	if err != nil || string(got.Stdout) != "out" || string(got.Stderr) != "err" || got.ExitCode != 7 {
		t.Fatalf("%+v, %v", got, err)
	}
	f.execSync = func(context.Context, *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
		return nil, status.Error(codes.DeadlineExceeded, "timeout 2s exceeded")
	}
	if _, err := c.ExecSync(t.Context(), "id", nil, time.Second); !answered(err) || !IsTimeout(err) {
		t.Fatalf("a command's timeout: %v", err)
	}
	f.execSync = func(ctx context.Context, _ *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	f.execSync = func(ctx context.Context, _ *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.ExecSync(ctx, "id", nil, time.Second); !IsTimeout(err) || answered(err) {
		t.Fatalf("a runtime that does not answer: %v", err)
	}
}

// TestOurOwnDeadlineReportedBackIsNoAnswer lets the server notice the deadline, which gRPC sends along, before the client does.
func TestOurOwnDeadlineReportedBackIsNoAnswer(t *testing.T) {
	c := dial(t, Options{RuntimeEndpoint: "/none", RequestTimeout: time.Millisecond})
	invoke := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
		<-ctx.Done()
		for _, o := range opts {
			if trailer, ok := o.(grpc.TrailerCallOption); ok {
				*trailer.TrailerAddr = metadata.Pairs("content-type", "application/grpc")
			}
		}
		return status.Error(codes.DeadlineExceeded, "context deadline exceeded")
	}
	err := c.intercept(t.Context(), "/x/ExecSync", &runtimeapi.ExecSyncRequest{}, nil, nil, invoke)
	if !IsTimeout(err) || answered(err) {
		t.Errorf("%v", err)
	}
}

func TestEnded(t *testing.T) {
	past, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	future, cancelFuture := context.WithTimeout(t.Context(), time.Hour)
	if !ended(past) || ended(future) || ended(t.Context()) {
		t.Error("a deadline is misjudged")
	}
	cancelFuture()
	if !ended(future) {
		t.Error("a cancelled context has not ended")
	}
}

func TestContainerEvents(t *testing.T) {
	f := &fakeRuntime{}
	c := fakeClient(t, f, Options{})
	err := c.GetContainerEvents(t.Context(), func() {}, func(*runtimeapi.ContainerEventResponse) {})
	if !IsUnimplemented(err) || !IsPermanent(err) {
		t.Fatalf("a runtime without events: %v", err)
	}

	f.events = func(s grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
		if err := s.Send(&runtimeapi.ContainerEventResponse{ContainerId: "a"}); err != nil {
			return err
		}
		return s.Send(&runtimeapi.ContainerEventResponse{ContainerId: "b"})
	}
	var seen []string
	opened := 0
	err = c.GetContainerEvents(t.Context(), func() { opened++ }, func(e *runtimeapi.ContainerEventResponse) {
		seen = append(seen, e.ContainerId)
	})
	if !IsUnavailable(err) || opened != 1 || strings.Join(seen, "") != "ab" {
		t.Fatalf("a stream the runtime ended: %v, %d, %v", err, opened, seen)
	}

	f.events = func(s grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
		if err := s.Send(&runtimeapi.ContainerEventResponse{ContainerId: "a"}); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = c.GetContainerEvents(ctx, func() {}, func(*runtimeapi.ContainerEventResponse) { cancel() })
	if !errors.Is(err, context.Canceled) || IsUnavailable(err) {
		t.Fatalf("a stream its reader ended: %v", err)
	}
}

// A pre-stop hook spends its pod's grace period: it runs at once, regardless of the number of others.
func TestACallWithoutSlotWaitsForNone(t *testing.T) {
	const hooks = 5
	f := &fakeRuntime{}
	c := fakeClient(t, f, Options{Limits: Limits{ClassExec: 1}})
	running, end := make(chan struct{}, hooks), make(chan struct{})
	once := sync.OnceFunc(func() { close(end) })
	defer once()
	f.execSync = func(context.Context, *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
		running <- struct{}{}
		<-end
		return &runtimeapi.ExecSyncResponse{}, nil
	}
	ended := make(chan error, hooks)
	for range hooks {
		go func() {
			_, err := c.ExecSync(WithoutSlot(t.Context()), "id", nil, time.Minute)
			ended <- err
		}()
	}
	for range hooks { // all at the same time
		select {
		case <-running:
		case <-time.After(5 * time.Minute):
			t.Fatal("one waits for another to end")
		}
	}
	c.budget[ClassExec].idle(t)
	once()
	for range hooks {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
