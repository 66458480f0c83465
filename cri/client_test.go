package cri

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"
)

func TestDialNamesABadEndpoint(t *testing.T) {
	long := "/" + strings.Repeat("x", maxSocketPath)
	for _, endpoint := range []string{"", "run/x.sock", "tcp://127.0.0.1:1", "unix://run/x", "npipe:////./pipe/x", long} {
		if _, err := Dial(Options{RuntimeEndpoint: endpoint}); err == nil || !strings.Contains(err.Error(), endpoint) {
			t.Errorf("endpoint %q: error %v does not name it", endpoint, err)
		}
		if endpoint == "" {
			continue
		}
		if _, err := Dial(Options{RuntimeEndpoint: "/ok", ImageEndpoint: endpoint}); err == nil || !strings.Contains(err.Error(), "image service endpoint") {
			t.Errorf("image endpoint %q: error %v", endpoint, err)
		}
	}
	if _, err := Dial(Options{RuntimeEndpoint: "/ok", Limits: Limits{Exec: -1}}); err == nil || !strings.Contains(err.Error(), "exec") {
		t.Errorf("a negative limit: %v", err)
	}
}

func TestSocketPath(t *testing.T) {
	for _, endpoint := range []string{"unix:///run/containerd/containerd.sock", "/run/containerd/containerd.sock"} {
		if got, err := SocketPath(endpoint); err != nil || got != "/run/containerd/containerd.sock" {
			t.Errorf("%s: %q, %v", endpoint, got, err)
		}
	}
}

// TestRuntimeComesGoesAndReturns follows one client through a runtime's absence,
// arrival, death and return.
func TestRuntimeComesGoesAndReturns(t *testing.T) {
	socket := socketPath(t)
	c := dial(t, Options{RuntimeEndpoint: "unix://" + socket})
	ctx, cancel := context.WithCancel(t.Context())

	if _, err := c.Version(ctx); !IsUnavailable(err) || IsTimeout(err) || !strings.Contains(err.Error(), socket) {
		t.Fatalf("absent runtime: %v", err)
	}
	changes := make(chan bool)
	watched := make(chan error, 1)
	go func() { watched <- c.WatchConnection(ctx, func(up bool) { changes <- up }) }()
	if <-changes {
		t.Fatal("connected to nothing")
	}
	stop := serve(t, &fakeRuntime{}, socket)
	for range 2 {
		if !<-changes {
			t.Fatal("the runtime's return was not seen")
		}
		if v, err := c.Version(ctx); err != nil || v.RuntimeName != "fake" {
			t.Fatalf("version: %v, %v", v, err)
		}
		stop()
		if <-changes {
			t.Fatal("the runtime's death was not seen")
		}
		if _, err := c.Version(ctx); !IsUnavailable(err) {
			t.Fatalf("dead runtime: %v", err)
		}
		stop = serve(t, &fakeRuntime{}, socket)
	}
	if !<-changes {
		t.Fatal("the runtime's second return was not seen")
	}
	cancel()
	if err := <-watched; !errors.Is(err, context.Canceled) {
		t.Fatalf("watch ended with %v", err)
	}
	stop()
}

func TestTwoEndpoints(t *testing.T) {
	images := socketPath(t)
	t.Cleanup(serve(t, &fakeRuntime{pull: func(context.Context, *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
		return &runtimeapi.PullImageResponse{ImageRef: "from the image service"}, nil
	}}, images))
	c := fakeClient(t, &fakeRuntime{}, Options{ImageEndpoint: images})
	ref, err := c.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "a"}, nil, nil)
	if err != nil || ref != "from the image service" {
		t.Fatalf("%q, %v", ref, err)
	}
}

func TestAnswersAboveGRPCsDefaultSize(t *testing.T) {
	big := &runtimeapi.Container{Id: "a", Annotations: map[string]string{"k": strings.Repeat("v", 6<<20)}}
	c := fakeClient(t, &fakeRuntime{listed: []*runtimeapi.Container{big}}, Options{})
	if got, err := c.ListContainers(t.Context(), nil); err != nil || len(got) != 1 {
		t.Fatalf("%d containers, %v", len(got), err)
	}
}

// TestHungRuntime has a call end by the client's own deadline.
func TestHungRuntime(t *testing.T) {
	f := &fakeRuntime{start: func(ctx context.Context, _ *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	c := fakeClient(t, f, Options{RequestTimeout: 20 * time.Millisecond})
	err := c.StartContainer(t.Context(), "0123456789abcdef")
	if !IsTimeout(err) || IsNotSent(err) || IsUnavailable(err) || !strings.HasPrefix(err.Error(), "StartContainer 0123456789abc: ") {
		t.Fatalf("%v", err)
	}
}

func TestStopContainerAddsTheGraceToItsDeadline(t *testing.T) {
	var left time.Duration
	var seconds int64
	f := &fakeRuntime{stopContainer: func(ctx context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
		deadline, _ := ctx.Deadline()
		left, seconds = time.Until(deadline), r.Timeout
		return &runtimeapi.StopContainerResponse{}, nil
	}}
	c := fakeClient(t, f, Options{RequestTimeout: time.Hour})
	for _, tc := range []struct {
		grace   time.Duration
		seconds int64
	}{{-time.Second, 0}, {0, 0}, {time.Millisecond, 1}, {30 * time.Hour, 30 * 3600}} {
		if err := c.StopContainer(t.Context(), "id", tc.grace); err != nil {
			t.Fatal(err)
		}
		whole := time.Hour + time.Duration(tc.seconds)*time.Second
		if seconds != tc.seconds || left > whole || left < whole-30*time.Minute {
			t.Errorf("grace %s: sent %d s with %s left", tc.grace, seconds, left)
		}
	}
}

// TestWaitingForAGracePeriodHoldsNoSlot fills the stop class with nothing but
// graceful stops and finds it empty.
func TestWaitingForAGracePeriodHoldsNoSlot(t *testing.T) {
	const stops = 5
	entered, leave := make(chan struct{}), make(chan struct{})
	f := &fakeRuntime{stopContainer: func(_ context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
		if r.Timeout > 0 {
			entered <- struct{}{}
			<-leave
		}
		return &runtimeapi.StopContainerResponse{}, nil
	}}
	c := fakeClient(t, f, Options{Limits: Limits{Stop: 1}})
	done := make(chan error, stops)
	for range stops {
		go func() { done <- c.StopContainer(t.Context(), "id", time.Minute) }()
	}
	for range stops {
		<-entered
	}
	if u := c.Usage()[ClassStop]; u.InUse != 0 || u.Waiting != 0 || u.Limit != 1 {
		t.Errorf("usage while graces are waited out: %+v", u)
	}
	if err := c.StopContainer(t.Context(), "other", 0); err != nil {
		t.Error(err)
	}
	close(leave)
	for range stops {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestPullErrors(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want error
		down bool
	}{
		{"registry by name", status.Error(codes.Unknown, "RegistryUnavailable: pull QPS exceeded"), crierrors.ErrRegistryUnavailable, false},
		{"registry by code", status.Error(codes.Unavailable, "503 from the registry"), crierrors.ErrRegistryUnavailable, false},
		{"signature", status.Error(codes.Unknown, "SignatureValidationFailed: no key"), crierrors.ErrSignatureValidationFailed, false},
		{"runtime still starting", status.Error(codes.Unavailable, "server is not initialized yet"), nil, true},
		{"anything else", status.Error(codes.Unknown, "no such host"), nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &fakeRuntime{pull: func(context.Context, *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
				return nil, tc.err
			}}
			c := fakeClient(t, f, Options{})
			_, err := c.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "example.org/a:1"}, nil, nil)
			var call *CallError
			if !errors.As(err, &call) || !call.Answered || call.Object != "example.org/a:1" {
				t.Fatalf("%#v", err)
			}
			if call.Reason != tc.want || IsUnavailable(err) != tc.down || IsPermanent(err) {
				t.Errorf("reason %v, unavailable %t: %v", call.Reason, IsUnavailable(err), err)
			}
			if tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("errors.Is does not find %v", tc.want)
			}
			if Message(err) != status.Convert(tc.err).Message() {
				t.Errorf("message %q", Message(err))
			}
		})
	}
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
	if _, err := c.ExecSync(t.Context(), "id", nil, time.Second); !IsCommandTimeout(err) || !IsTimeout(err) {
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
	if _, err := c.ExecSync(ctx, "id", nil, time.Second); !IsTimeout(err) || IsCommandTimeout(err) {
		t.Fatalf("a runtime that does not answer: %v", err)
	}
}

// TestOurOwnDeadlineReportedBackIsNoAnswer has a server see the deadline pass,
// which gRPC told it, before the client does.
func TestOurOwnDeadlineReportedBackIsNoAnswer(t *testing.T) {
	c := dial(t, Options{RuntimeEndpoint: "/none", RequestTimeout: time.Millisecond})
	method := func(ctx context.Context, _ int, opts ...grpc.CallOption) (int, error) {
		<-ctx.Done()
		for _, o := range opts {
			if trailer, ok := o.(grpc.TrailerCallOption); ok {
				*trailer.TrailerAddr = metadata.Pairs("content-type", "application/grpc")
			}
		}
		return 0, status.Error(codes.DeadlineExceeded, "context deadline exceeded")
	}
	_, err := invoke(t.Context(), c, call{name: "ExecSync", class: ClassExec}, method, 0)
	if !IsTimeout(err) || IsCommandTimeout(err) {
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

func TestMalformedAnswersAreErrors(t *testing.T) {
	f := &fakeRuntime{status: &runtimeapi.ContainerStatusResponse{}}
	c := fakeClient(t, f, Options{})
	if _, err := c.ContainerStatus(t.Context(), "id", false); err == nil {
		t.Error("a status without content was accepted")
	}
	f.version = func(context.Context) (*runtimeapi.VersionResponse, error) { return &runtimeapi.VersionResponse{}, nil }
	if _, err := c.Version(t.Context()); err == nil {
		t.Error("a version without content was accepted")
	}
	f.version = func(context.Context) (*runtimeapi.VersionResponse, error) {
		return nil, status.Error(codes.Unimplemented, "unknown service runtime.v1.RuntimeService")
	}
	if _, err := c.Version(t.Context()); !IsPermanent(err) || !strings.Contains(err.Error(), "does not offer CRI v1") {
		t.Errorf("a runtime without CRI v1: %v", err)
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
