// Package dratest has a DRA driver for tests, behind the real gRPC interface.
package dratest

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/grpc"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	api "k8s.io/kubelet/pkg/apis/dra/v1"
	beta "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Driver prepares each claim with one device per request of Requests. It is strict: a claim that it does not know cannot be
// unprepared by another UID. Safe for concurrent use.
type Driver struct {
	// Name is the driver's name, Socket its endpoint.
	Name, Socket string
	// Requests are the request names of the devices; none: one device without a request.
	Requests []string
	// Beta has it serve v1beta1 alone.
	Beta bool
	// NoHealth has it serve no health of devices.
	NoHealth bool

	api.UnsafeDRAPluginServer
	healthapi.UnsafeDRAResourceHealthServer
	registration.UnsafeRegistrationServer

	mu       sync.Mutex
	server   *grpc.Server
	fail     error
	hang     chan struct{} // closed when calls go on; nil: they do
	prepared map[string]string
	calls    []string
	health   []*healthapi.DeviceHealth
	changed  chan struct{}
}

// New returns a driver with a socket in dir.
func New(dir, name string) *Driver {
	return &Driver{Name: name, Socket: filepath.Join(dir, name+".sock"), prepared: map[string]string{},
		changed: make(chan struct{})}
}

// Versions are the services that it announces.
func (d *Driver) Versions() []string {
	if d.Beta {
		return []string{beta.DRAPluginService}
	}
	return []string{api.DRAPluginService, beta.DRAPluginService}
}

// GetInfo implements registration.RegistrationServer: a socket in plugins_registry is the endpoint, too.
func (d *Driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.DRAPlugin, Name: d.Name, SupportedVersions: d.Versions()}, nil
}

// NotifyRegistrationStatus implements registration.RegistrationServer.
func (d *Driver) NotifyRegistrationStatus(context.Context,
	*registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}

// Listen has it serve.
func (d *Driver) Listen() error {
	_ = os.Remove(d.Socket)
	l, err := net.Listen("unix", d.Socket)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	if !d.Beta {
		api.RegisterDRAPluginServer(s, d)
	}
	registration.RegisterRegistrationServer(s, d)
	beta.RegisterDRAPluginServer(s, beta.V1ServerWrapper{DRAPluginServer: d})
	if !d.NoHealth {
		healthapi.RegisterDRAResourceHealthServer(s, d)
	}
	d.mu.Lock()
	d.server = s
	d.mu.Unlock()
	go func() { _ = s.Serve(l) }()
	return nil
}

// Stop ends the service; the prepared claims stay.
func (d *Driver) Stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server != nil {
		d.server.Stop()
	}
}

// Fail has calls fail with an error from now on; nil: they succeed.
func (d *Driver) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = err
}

// Hang has calls wait until release is called, or their callers give up.
func (d *Driver) Hang() (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ch := make(chan struct{})
	d.hang = ch
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.hang = nil
		close(ch)
	})
}

// Calls returns the calls as "prepare NAME" and "unprepare NAME", in their order, one for each claim.
func (d *Driver) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// Prepared returns the names of the prepared claims, sorted.
func (d *Driver) Prepared() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Values(d.prepared))
}

func (d *Driver) begin(ctx context.Context, what string, claims []*api.Claim) error {
	d.mu.Lock()
	for _, c := range claims {
		d.calls = append(d.calls, what+" "+c.GetName())
	}
	hang, fail := d.hang, d.fail
	d.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fail
}

// NodePrepareResources implements api.DRAPluginServer.
func (d *Driver) NodePrepareResources(ctx context.Context, r *api.NodePrepareResourcesRequest) (*api.NodePrepareResourcesResponse,
	error) {
	if err := d.begin(ctx, "prepare", r.GetClaims()); err != nil {
		return nil, err
	}
	out := &api.NodePrepareResourcesResponse{Claims: map[string]*api.NodePrepareResourceResponse{}}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range r.GetClaims() {
		d.prepared[c.GetUid()] = c.GetName()
		one := &api.NodePrepareResourceResponse{}
		for _, request := range d.Requests {
			one.Devices = append(one.Devices, &api.Device{RequestNames: []string{request}, PoolName: "pool", DeviceName: request,
				CdiDeviceIds: []string{d.Name + "/test=" + c.GetName() + "-" + request}})
		}
		if len(d.Requests) == 0 {
			one.Devices = []*api.Device{{PoolName: "pool", DeviceName: "device",
				CdiDeviceIds: []string{d.Name + "/test=" + c.GetName()}}}
		}
		out.Claims[c.GetUid()] = one
	}
	return out, nil
}

// NodeUnprepareResources implements api.DRAPluginServer.
func (d *Driver) NodeUnprepareResources(ctx context.Context,
	r *api.NodeUnprepareResourcesRequest) (*api.NodeUnprepareResourcesResponse, error) {
	if err := d.begin(ctx, "unprepare", r.GetClaims()); err != nil {
		return nil, err
	}
	out := &api.NodeUnprepareResourcesResponse{Claims: map[string]*api.NodeUnprepareResourceResponse{}}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range r.GetClaims() {
		delete(d.prepared, c.GetUid())
		out.Claims[c.GetUid()] = &api.NodeUnprepareResourceResponse{}
	}
	return out, nil
}

// Report sets the health of its devices.
func (d *Driver) Report(list ...*healthapi.DeviceHealth) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.health = list
	close(d.changed)
	d.changed = make(chan struct{})
}

// NodeWatchResources implements healthapi.DRAResourceHealthServer.
func (d *Driver) NodeWatchResources(_ *healthapi.NodeWatchResourcesRequest,
	stream healthapi.DRAResourceHealth_NodeWatchResourcesServer) error {
	for {
		d.mu.Lock()
		list, changed := d.health, d.changed
		d.mu.Unlock()
		if err := stream.Send(&healthapi.NodeWatchResourcesResponse{Devices: list}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return errors.New("the client is gone")
		}
	}
}
