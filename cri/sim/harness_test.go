package sim_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cri/sim"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var epoch = time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)

// harness is a runtime on its own clock, with a real client on its socket.
type harness struct {
	*sim.Runtime
	t     testing.TB
	clock *sim.ManualClock
	ctx   context.Context // ends long after any test should
	rt    runtimeapi.RuntimeServiceClient
	img   runtimeapi.ImageServiceClient
}

func start(t testing.TB, opts sim.Options) *harness {
	t.Helper()
	h := &harness{t: t, clock: sim.NewManualClock(epoch)}
	if opts.Clock == nil {
		opts.Clock = h.clock
	}
	if opts.Preload == nil {
		opts.Preload = []string{"app"}
	}
	opts.Socket = filepath.Join(t.TempDir(), "s")
	r, err := sim.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	h.Runtime = r
	t.Cleanup(r.Close)
	conn, err := grpc.NewClient(r.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	h.rt, h.img = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	h.ctx = ctx
	return h
}

// pod returns the sandbox configuration of a pod with the UID "uid-" and its name.
func pod(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name},
		Labels:   map[string]string{"io.kubernetes.pod.uid": "uid-" + name, "app": name},
	}
}

// containerOf returns the configuration of a container that runs the image "app".
func containerOf(pod *runtimeapi.PodSandboxConfig, name string, attempt uint32) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
		Image:    &runtimeapi.ImageSpec{Image: "app"},
		Labels:   map[string]string{"io.kubernetes.pod.uid": pod.Metadata.Uid, "io.kubernetes.container.name": name},
		LogPath:  name + "/0.log",
	}
}

func (h *harness) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) sandbox(config *runtimeapi.PodSandboxConfig) string {
	h.t.Helper()
	resp, err := h.rt.RunPodSandbox(h.ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	h.must(err)
	return resp.PodSandboxId
}

func (h *harness) create(sandbox string, pod *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) (string, error) {
	resp, err := h.rt.CreateContainer(h.ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox, Config: c, SandboxConfig: pod,
	})
	return resp.GetContainerId(), err
}

func (h *harness) start(id string) error {
	_, err := h.rt.StartContainer(h.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	return err
}

func (h *harness) stop(id string, seconds int64) error {
	_, err := h.rt.StopContainer(h.ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: seconds})
	return err
}

func (h *harness) remove(id string) error {
	_, err := h.rt.RemoveContainer(h.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return err
}

func (h *harness) stopSandbox(id string) error {
	_, err := h.rt.StopPodSandbox(h.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	return err
}

func (h *harness) removeSandbox(id string) error {
	_, err := h.rt.RemovePodSandbox(h.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

func (h *harness) status(id string) *runtimeapi.ContainerStatus {
	h.t.Helper()
	resp, err := h.rt.ContainerStatus(h.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	h.must(err)
	return resp.Status
}

func (h *harness) ready(id string) bool {
	h.t.Helper()
	resp, err := h.rt.PodSandboxStatus(h.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	h.must(err)
	return resp.Status.State == runtimeapi.PodSandboxState_SANDBOX_READY
}

// run starts a pod with one container, "main".
func (h *harness) run(name string) (sandbox, container string) {
	h.t.Helper()
	config := pod(name)
	sandbox = h.sandbox(config)
	container, err := h.create(sandbox, config, containerOf(config, "main", 0))
	h.must(err)
	h.must(h.start(container))
	return sandbox, container
}

// background runs a call in a goroutine and returns the channel of its error.
func background(call func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	return done
}

// begun waits until a call of that name is in progress.
func (h *harness) begun(name string) {
	h.t.Helper()
	_, err := h.WaitCall(h.ctx, func(e sim.Entry) bool { return e.Call == name && !e.Done() })
	h.must(err)
}

// state fails the test unless the container has that state, exit code and reason.
func (h *harness) state(id string, state runtimeapi.ContainerState, code int32, reason string) {
	h.t.Helper()
	st := h.status(id)
	if st.State != state || st.ExitCode != code || st.Reason != reason {
		h.t.Fatalf("container is %s, code %d, reason %q; want %s, %d, %q",
			st.State, st.ExitCode, st.Reason, state, code, reason)
	}
}

func (h *harness) running(id string) {
	h.t.Helper()
	h.state(id, runtimeapi.ContainerState_CONTAINER_RUNNING, 0, "")
}

func (h *harness) exited(id string, code int32, reason string) {
	h.t.Helper()
	h.state(id, runtimeapi.ContainerState_CONTAINER_EXITED, code, reason)
}

// fails checks an error's code and a part of its text.
func fails(t testing.TB, err error, code codes.Code, part string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), part) {
		t.Fatalf("got error %v; want code %s with %q", err, code, part)
	}
}

// broken checks that exactly these rules were broken so far, in this order.
func (h *harness) broken(rules ...string) {
	h.t.Helper()
	var got []string
	for _, v := range h.Violations() {
		rule, _, _ := strings.Cut(v, ":")
		got = append(got, rule)
	}
	if strings.Join(got, " ") != strings.Join(rules, " ") {
		h.t.Fatalf("violations %q, want rules %q", h.Violations(), rules)
	}
}
