package runtime

import (
	"context"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri"
)

// fake is a runtime with the objects that the test creates.
type fake struct {
	mu         sync.Mutex
	sandboxes  []*runtimeapi.PodSandboxStatus
	containers []*runtimeapi.ContainerStatus
	of         map[string]string // sandbox by container
	calls      []string
	err        map[string]error // by call; "" means all
	notReady   bool
	noNetwork  bool
	hides      string // the ID of a sandbox missing from all lists
	between    func() // runs before containers are listed
}

func newFake() *fake { return &fake{of: map[string]string{}, err: map[string]error{}} }

func away() error {
	return &cri.CallError{Call: "X", Err: status.Error(codes.Unavailable, "dial unix /x: connect: no such file or directory")}
}

func notFound() error {
	return &cri.CallError{Call: "X", Answered: true, Err: status.Error(codes.NotFound, "no such thing")}
}

// pod adds a sandbox, and containers written as "name0r" (see parse).
func (f *fake) pod(uid string, containers ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := parse(uid + "/s0+")
	s := h.Sandboxes[0]
	f.sandboxes = append(f.sandboxes, &runtimeapi.PodSandboxStatus{
		Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels,
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1"},
	})
	for _, c := range containers {
		l := parse(uid + "/s0/" + c).Containers[0]
		f.of[l.Id] = l.PodSandboxId
		f.containers = append(f.containers, &runtimeapi.ContainerStatus{
			Id: l.Id, Metadata: l.Metadata, State: l.State, CreatedAt: l.CreatedAt, Labels: l.Labels,
			Annotations: map[string]string{},
		})
	}
}

// set changes the state of a container.
func (f *fake) set(id string, s runtimeapi.ContainerState, code int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.containers {
		if c.Id == id {
			c.State, c.ExitCode = s, code
		}
	}
}

// drop removes all of a pod.
func (f *fake) drop(uid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sandboxes = slices.DeleteFunc(f.sandboxes,
		func(s *runtimeapi.PodSandboxStatus) bool { return s.Labels[cri.LabelPodUID] == uid })
	f.containers = slices.DeleteFunc(f.containers,
		func(c *runtimeapi.ContainerStatus) bool { return c.Labels[cri.LabelPodUID] == uid })
}

func (f *fake) fail(call string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err[call] = err
}

// took returns the calls since its last call, without those that check the runtime.
func (f *fake) took() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := strings.Join(f.calls, " ")
	f.calls = nil
	return out
}

func (f *fake) called(call, object string) error {
	if !slices.Contains([]string{"Version", "Status", "RuntimeConfig"}, call) {
		f.calls = append(f.calls, strings.TrimSuffix(call+":"+object, ":"))
	}
	if err := f.err[call]; err != nil {
		return err
	}
	return f.err[""]
}

func (f *fake) Version(context.Context) (*runtimeapi.VersionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &runtimeapi.VersionResponse{RuntimeName: "fake", RuntimeVersion: "1", RuntimeApiVersion: "v1"}, f.called("Version", "")
}

func (f *fake) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{
		CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS,
	}}, f.called("RuntimeConfig", "")
}

func (f *fake) UpdateRuntimeConfig(_ context.Context, podCIDR string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.called("UpdateRuntimeConfig", podCIDR)
}

func (f *fake) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: !f.notReady, Reason: "Sulking", Message: "it does not want to"},
			{Type: runtimeapi.NetworkReady, Status: !f.noNetwork, Reason: "NoCNI"},
		}},
		Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Name: "runc",
			Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}}},
	}, f.called("Status", "")
}

func (f *fake) ListPodSandbox(_ context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	uid := filter.GetLabelSelector()[cri.LabelPodUID]
	var out []*runtimeapi.PodSandbox
	for _, s := range f.sandboxes {
		if s.Id != f.hides && (uid == "" || s.Labels[cri.LabelPodUID] == uid) {
			out = append(out, &runtimeapi.PodSandbox{Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt,
				Labels: s.Labels})
		}
	}
	return out, f.called("sandboxes", uid)
}

func (f *fake) ListContainers(_ context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	if f.between != nil {
		f.between()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	uid := filter.GetLabelSelector()[cri.LabelPodUID]
	var out []*runtimeapi.Container
	for _, c := range f.containers {
		if uid == "" || c.Labels[cri.LabelPodUID] == uid {
			out = append(out, &runtimeapi.Container{
				Id: c.Id, PodSandboxId: f.of[c.Id], Metadata: c.Metadata, State: c.State, CreatedAt: c.CreatedAt,
				Labels: c.Labels,
			})
		}
	}
	return out, f.called("containers", uid)
}

func (f *fake) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("sandbox", id); err != nil {
		return nil, err
	}
	for _, s := range f.sandboxes {
		if s.Id == id {
			return &runtimeapi.PodSandboxStatusResponse{Status: s}, nil
		}
	}
	return nil, notFound()
}

func (f *fake) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("container", id); err != nil {
		return nil, err
	}
	for _, c := range f.containers {
		if c.Id == id {
			return &runtimeapi.ContainerStatusResponse{Status: c}, nil
		}
	}
	return nil, notFound()
}

func (f *fake) RemoveContainer(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("rm", id); err != nil {
		return err
	}
	f.containers = slices.DeleteFunc(f.containers, func(c *runtimeapi.ContainerStatus) bool { return c.Id == id })
	return nil
}

func (f *fake) StopPodSandbox(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.called("stopp", id)
}

func (f *fake) RemovePodSandbox(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("rmp", id); err != nil {
		return err
	}
	f.sandboxes = slices.DeleteFunc(f.sandboxes, func(s *runtimeapi.PodSandboxStatus) bool { return s.Id == id })
	return nil
}
