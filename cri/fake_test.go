package cri

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fakeRuntime is a CRI server with calls that a test sets. The embedded Unimplemented servers answer the others.
type fakeRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	runSandbox    func(context.Context, *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error)
	stopContainer func(context.Context, *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error)
	start         func(context.Context, *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error)
	execSync      func(context.Context, *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error)
	pull          func(context.Context, *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error)
	updateSandbox func(*runtimeapi.UpdatePodSandboxResourcesRequest) error
	version       func(context.Context) (*runtimeapi.VersionResponse, error)
	events        func(grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error
	listed        []*runtimeapi.Container
	status        *runtimeapi.ContainerStatusResponse
}

func (f *fakeRuntime) RunPodSandbox(ctx context.Context, r *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse,
	error) {
	if f.runSandbox == nil {
		return f.UnimplementedRuntimeServiceServer.RunPodSandbox(ctx, r)
	}
	return f.runSandbox(ctx, r)
}

func (f *fakeRuntime) UpdatePodSandboxResources(_ context.Context,
	r *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, f.updateSandbox(r)
}

func (f *fakeRuntime) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse,
	error) {
	return f.stopContainer(ctx, r)
}

func (f *fakeRuntime) StartContainer(ctx context.Context,
	r *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	return f.start(ctx, r)
}

func (f *fakeRuntime) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	return f.execSync(ctx, r)
}

func (f *fakeRuntime) PullImage(ctx context.Context, r *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	return f.pull(ctx, r)
}

func (f *fakeRuntime) Version(ctx context.Context, r *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	if f.version == nil {
		return &runtimeapi.VersionResponse{RuntimeName: "fake", RuntimeVersion: "1", RuntimeApiVersion: "v1"}, nil
	}
	return f.version(ctx)
}

func (f *fakeRuntime) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse,
	error) {
	return &runtimeapi.ListContainersResponse{Containers: f.listed}, nil
}

func (f *fakeRuntime) ContainerStatus(context.Context, *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse,
	error) {
	return f.status, nil
}

func (f *fakeRuntime) GetContainerEvents(_ *runtimeapi.GetEventsRequest,
	s grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	if f.events == nil {
		return f.UnimplementedRuntimeServiceServer.GetContainerEvents(nil, s)
	}
	return f.events(s)
}

// serve starts the fake on a socket and returns a function to kill it.
func serve(t *testing.T, f *fakeRuntime, socket string) (stop func()) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessageSize), grpc.MaxSendMsgSize(maxMessageSize))
	runtimeapi.RegisterRuntimeServiceServer(server, f)
	runtimeapi.RegisterImageServiceServer(server, f)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	return func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("the fake runtime: %v", err)
		}
	}
}

// socketPath returns a path short enough for a socket regardless of the test's name.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "s")
}

func dial(t *testing.T, opts Options) *Client {
	t.Helper()
	c, err := Dial(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// fakeClient returns a client of a fake runtime that lives as long as the test.
func fakeClient(t *testing.T, f *fakeRuntime, opts Options) *Client {
	t.Helper()
	opts.RuntimeEndpoint = socketPath(t)
	t.Cleanup(serve(t, f, opts.RuntimeEndpoint))
	return dial(t, opts)
}
