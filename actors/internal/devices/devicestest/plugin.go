// Package devicestest has a device plugin for tests, behind the real gRPC interface.
package devicestest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Plugin offers devices of one resource. Safe for concurrent use.
type Plugin struct {
	// Answer returns the allocation for devices, and Prefer the preferred devices; nil means an empty answer.
	Answer func(ids []string) (*pluginapi.ContainerAllocateResponse, error)
	Prefer func(r *pluginapi.ContainerPreferredAllocationRequest) []string
	// PreStart requests a call before each start of a container.
	PreStart bool
	// Versions are the supported versions, as told to the watcher of plugins_registry; nil means the current one.
	Versions []string

	dir, resource string
	pluginapi.UnimplementedDevicePluginServer
	registration.UnsafeRegistrationServer

	mu      sync.Mutex
	server  *grpc.Server
	devices []*pluginapi.Device
	changed chan struct{} // closed at the next change
	sent    bool          // the present devices
	asked   [][]string    // IDs, by Allocate
	started [][]string    // IDs, by PreStartContainer
	status  *registration.RegistrationStatus
}

// New makes one in the folder where the kubelet's socket is; ids are its devices, all healthy.
func New(dir, resource string, ids ...string) *Plugin {
	p := &Plugin{dir: dir, resource: resource, changed: make(chan struct{})}
	for _, id := range ids {
		p.devices = append(p.devices, &pluginapi.Device{ID: id, Health: pluginapi.Healthy})
	}
	return p
}

// On places a device on a NUMA node. Call it before Start.
func (p *Plugin) On(id string, node int64) {
	for _, d := range p.devices {
		if d.ID == id {
			d.Topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: node}}}
		}
	}
}

func (p *Plugin) endpoint() string { return filepath.Base(p.resource) + ".sock" }

// Start has it listen and register.
func (p *Plugin) Start(ctx context.Context) error {
	if err := p.listen(p.dir); err != nil {
		return err
	}
	return p.Register(ctx, pluginapi.Version, p.resource, p.endpoint())
}

// StartRegistry has it listen in the folder plugins_registry, and wait to be asked for its registration.
func (p *Plugin) StartRegistry(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { // as plugins do
		return err
	}
	p.mu.Lock()
	p.status = nil
	p.mu.Unlock()
	return p.listen(dir)
}

func (p *Plugin) listen(dir string) error {
	path := filepath.Join(dir, p.endpoint())
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(s, p)
	registration.RegisterRegistrationServer(s, p)
	p.mu.Lock()
	p.server = s
	p.mu.Unlock()
	go func() { _ = s.Serve(l) }()
	return nil
}

// Registered returns the status that the watcher of plugins_registry sent; nil: none yet.
func (p *Plugin) Registered() *registration.RegistrationStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// GetInfo implements registration.RegistrationServer.
func (p *Plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	versions := p.Versions
	if versions == nil {
		versions = []string{pluginapi.Version}
	}
	return &registration.PluginInfo{Type: registration.DevicePlugin, Name: p.resource, SupportedVersions: versions}, nil
}

// NotifyRegistrationStatus implements registration.RegistrationServer.
func (p *Plugin) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (
	*registration.RegistrationStatusResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = s
	return &registration.RegistrationStatusResponse{}, nil
}

// Register registers a plugin with the agent, even one that does not listen.
func (p *Plugin) Register(ctx context.Context, version, resource, endpoint string) error {
	conn, err := grpc.NewClient("unix:"+filepath.Join(p.dir, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{Version: version,
		ResourceName: resource, Endpoint: endpoint})
	return err
}

// Stop ends it.
func (p *Plugin) Stop() {
	p.mu.Lock()
	s := p.server
	p.server = nil
	p.mu.Unlock()
	if s != nil {
		s.Stop()
	}
}

// Set changes its devices: "id", or "!id" for one that is not healthy.
func (p *Plugin) Set(ids ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.devices = nil
	for _, id := range ids {
		d := &pluginapi.Device{ID: strings.TrimPrefix(id, "!"), Health: pluginapi.Healthy}
		if d.GetID() != id {
			d.Health = pluginapi.Unhealthy
		}
		p.devices = append(p.devices, d)
	}
	close(p.changed)
	p.changed, p.sent = make(chan struct{}), false
}

// Sent reports whether the agent was sent the present devices.
func (p *Plugin) Sent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}

// Asked are the devices of each call of Allocate.
func (p *Plugin) Asked() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

// Started are the devices of each call of PreStartContainer.
func (p *Plugin) Started() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.started)
}

// GetDevicePluginOptions implements pluginapi.DevicePluginServer.
func (p *Plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{PreStartRequired: p.PreStart, GetPreferredAllocationAvailable: p.Prefer != nil}, nil
}

// ListAndWatch implements pluginapi.DevicePluginServer.
func (p *Plugin) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	for {
		p.mu.Lock()
		devices, changed := p.devices, p.changed
		p.mu.Unlock()
		if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		p.mu.Lock()
		p.sent = p.changed == changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// GetPreferredAllocation implements pluginapi.DevicePluginServer.
func (p *Plugin) GetPreferredAllocation(_ context.Context, r *pluginapi.PreferredAllocationRequest) (
	*pluginapi.PreferredAllocationResponse, error) {
	return &pluginapi.PreferredAllocationResponse{ContainerResponses: []*pluginapi.ContainerPreferredAllocationResponse{
		{DeviceIDs: p.Prefer(r.GetContainerRequests()[0])}}}, nil
}

// Allocate implements pluginapi.DevicePluginServer.
func (p *Plugin) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	ids := r.GetContainerRequests()[0].GetDevicesIds()
	p.mu.Lock()
	p.asked = append(p.asked, slices.Clone(ids))
	p.mu.Unlock()
	answer := &pluginapi.ContainerAllocateResponse{}
	if p.Answer != nil {
		var err error
		if answer, err = p.Answer(ids); err != nil {
			return nil, err
		}
	}
	return &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{answer}}, nil
}

// PreStartContainer implements pluginapi.DevicePluginServer.
func (p *Plugin) PreStartContainer(_ context.Context, r *pluginapi.PreStartContainerRequest) (
	*pluginapi.PreStartContainerResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = append(p.started, slices.Clone(r.GetDevicesIds()))
	return &pluginapi.PreStartContainerResponse{}, nil
}
