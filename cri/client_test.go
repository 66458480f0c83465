package cri

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
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
		if _, err := Dial(Options{RuntimeEndpoint: "/ok", ImageEndpoint: endpoint}); err == nil ||
			!strings.Contains(err.Error(), "image service endpoint") {
			t.Errorf("image endpoint %q: error %v", endpoint, err)
		}
	}
}

func TestSocketPath(t *testing.T) {
	for _, endpoint := range []string{"unix:///run/containerd/containerd.sock", "/run/containerd/containerd.sock"} {
		if got, err := SocketPath(endpoint); err != nil || got != "/run/containerd/containerd.sock" {
			t.Errorf("%s: %q, %v", endpoint, got, err)
		}
	}
}

// TestRuntimeComesGoesAndReturns uses one client through a runtime's absence, arrival, death and return.
func TestRuntimeComesGoesAndReturns(t *testing.T) {
	socket := socketPath(t)
	c := dial(t, Options{RuntimeEndpoint: "unix://" + socket})
	if _, err := c.Version(t.Context()); !IsUnavailable(err) || IsTimeout(err) || !strings.Contains(err.Error(), socket) {
		t.Fatalf("absent runtime: %v", err)
	}
	for range 3 {
		stop := serve(t, &fakeRuntime{}, socket)
		v, err := c.Version(t.Context())
		for ; IsUnavailable(err); v, err = c.Version(t.Context()) { // within the reconnect back-off of one second
			time.Sleep(10 * time.Millisecond)
		}
		if err != nil || v.RuntimeName != "fake" {
			t.Fatalf("version: %v, %v", v, err)
		}
		stop()
		if _, err := c.Version(t.Context()); !IsUnavailable(err) {
			t.Fatalf("dead runtime: %v", err)
		}
	}
}

func TestTwoEndpoints(t *testing.T) {
	images := socketPath(t)
	t.Cleanup(serve(t, &fakeRuntime{pull: func(context.Context, *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse,
		error) {
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

// TestHungRuntime expects a call to end by the client's own deadline.
func TestHungRuntime(t *testing.T) {
	f := &fakeRuntime{start: func(ctx context.Context, _ *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse,
		error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	c := fakeClient(t, f, Options{RequestTimeout: 20 * time.Millisecond})
	err := c.StartContainer(t.Context(), "0123456789abcdef")
	if !IsTimeout(err) || IsNotSent(err) || IsUnavailable(err) ||
		!strings.HasPrefix(err.Error(), "StartContainer 0123456789abc: ") {
		t.Fatalf("%v", err)
	}
}

func TestStopContainerAddsTheGraceToItsDeadline(t *testing.T) {
	var left time.Duration
	var seconds int64
	f := &fakeRuntime{stopContainer: func(ctx context.Context,
		r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
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

// A stop with a grace period frees its slot long before the container ends.
func TestStopContainer_FreesItsSlot(t *testing.T) {
	const stops = 5
	entered, leave := make(chan struct{}), make(chan struct{})
	f := &fakeRuntime{stopContainer: func(_ context.Context,
		r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
		if r.Timeout > 0 {
			entered <- struct{}{}
			<-leave
		}
		return &runtimeapi.StopContainerResponse{}, nil
	}}
	c := fakeClient(t, f, Options{Limits: Limits{ClassStop: 1}})
	done := make(chan error, stops)
	for range stops {
		go func() { done <- c.StopContainer(t.Context(), "id", time.Minute) }()
	}
	for range stops {
		<-entered
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
		{"registry by name", status.Error(codes.Unknown, "RegistryUnavailable: pull QPS exceeded"),
			crierrors.ErrRegistryUnavailable, false},
		{"registry by code", status.Error(codes.Unavailable, "503 from the registry"), crierrors.ErrRegistryUnavailable, false},
		{"signature", status.Error(codes.Unknown, "SignatureValidationFailed: no key"), crierrors.ErrSignatureValidationFailed,
			false},
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

// A sandbox has twice the time of other calls, as in the kubelet.
func TestTimeLimits(t *testing.T) {
	c := dial(t, Options{RuntimeEndpoint: "unix://" + socketPath(t), RequestTimeout: time.Minute})
	for request, want := range map[any]time.Duration{
		&runtimeapi.RunPodSandboxRequest{}: 2 * time.Minute, &runtimeapi.CreateContainerRequest{}: time.Minute,
		&runtimeapi.StopContainerRequest{Timeout: 30}: 90 * time.Second, &runtimeapi.PullImageRequest{}: 0, // none: a pull in progress is not interrupted
	} {
		if got := c.limit(request); got != want {
			t.Errorf("%T: %s, want %s", request, got, want)
		}
	}
}
