// Package csitest is a CSI driver for tests with the real interfaces: it mounts file systems, records its calls, and registers
// itself with a socket as drivers do.
package csitest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	api "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Driver is a CSI driver. A volume is the folder of Data with the name of its handle.
type Driver struct {
	api.UnimplementedNodeServer
	registration.UnsafeRegistrationServer
	Name, Data string
	Can        []api.NodeServiceCapability_RPC_Type
	// Hang, if not nil, blocks calls until it is closed: the calls that Hangs selects, e.g. "Publish handle", or staging if
	// Hangs is nil.
	Hang  chan struct{}
	Hangs func(call string) bool
	// Devices has the block devices of volumes, by handle. A staged one has a node in the staging folder.
	Devices map[string]string
	// Hidden imitates a driver that mounts in its own mount namespace: the agent's folders stay plain.
	Hidden bool
	// Limit is the number of volumes that fit on the node; 0: 7.
	Limit atomic.Int64
	// Fail, if not nil, returns the result of a call whose work is done.
	Fail func(call string) error
	// Refuse, if not nil, returns the errors of calls that do nothing, e.g. of "Unpublish handle".
	Refuse func(call string) error

	mu       sync.Mutex
	calls    []string
	contexts []map[string]string // volume contexts of NodePublishVolume
	grown    []*api.NodeExpandVolumeRequest
	status   *registration.RegistrationStatus
	socket   string
	server   []*grpc.Server
}

// Start serves the driver and its registration below the agent's root folder.
func (d *Driver) Start(rootDir string) error {
	d.socket = filepath.Join(rootDir, "plugins", d.Name, "csi.sock")
	register := filepath.Join(rootDir, "plugins_registry", d.Name+"-reg.sock")
	node, reg := grpc.NewServer(), grpc.NewServer()
	api.RegisterNodeServer(node, d)
	registration.RegisterRegistrationServer(reg, d)
	for _, s := range []struct {
		path   string
		server *grpc.Server
	}{{d.socket, node}, {register, reg}} {
		if err := os.MkdirAll(filepath.Dir(s.path), 0o755); err != nil { // as drivers do
			return err
		}
		listener, err := net.Listen("unix", s.path) //nolint:noctx // it does not block
		if err != nil {
			return err
		}
		d.server = append(d.server, s.server)
		go func() { _ = s.server.Serve(listener) }() // ends with Stop
	}
	return nil
}

// Stop stops the driver and removes its sockets. Its mounts stay.
func (d *Driver) Stop() {
	for _, s := range d.server {
		s.Stop()
	}
	d.server = nil
}

// Calls returns the calls that change something, in order: the call's name without Node and Volume, and the handle.
func (d *Driver) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// Contexts returns the volume contexts of NodePublishVolume, in order.
func (d *Driver) Contexts() []map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.contexts)
}

// Grown returns the requests of NodeExpandVolume, in order.
func (d *Driver) Grown() []*api.NodeExpandVolumeRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.grown)
}

// Registered returns the status that the agent reported for the registration; nil: none yet.
func (d *Driver) Registered() *registration.RegistrationStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status
}

func (d *Driver) note(call, handle string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, call+" "+handle)
}

// begin records a call, and blocks if the call is to hang.
func (d *Driver) begin(ctx context.Context, call, handle string) error {
	d.note(call, handle)
	if d.Refuse != nil {
		if err := d.Refuse(call + " " + handle); err != nil {
			return err
		}
	}
	hangs := call == "Stage"
	if d.Hangs != nil {
		hangs = d.Hangs(call + " " + handle)
	}
	if d.Hang == nil || !hangs {
		return nil
	}
	select {
	case <-d.Hang:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// GetInfo implements registration.
func (d *Driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: d.Name, Endpoint: d.socket, SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus implements registration.
func (d *Driver) NotifyRegistrationStatus(
	_ context.Context, s *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status = s
	return &registration.RegistrationStatusResponse{}, nil
}

// NodeGetInfo implements api.NodeServer.
func (d *Driver) NodeGetInfo(context.Context, *api.NodeGetInfoRequest) (*api.NodeGetInfoResponse, error) {
	return &api.NodeGetInfoResponse{
		NodeId: d.Name + "-node", MaxVolumesPerNode: cmp.Or(d.Limit.Load(), 7),
		AccessibleTopology: &api.Topology{Segments: map[string]string{"topology." + d.Name + "/zone": "a"}},
	}, nil
}

// NodeGetCapabilities implements api.NodeServer.
func (d *Driver) NodeGetCapabilities(
	context.Context, *api.NodeGetCapabilitiesRequest,
) (*api.NodeGetCapabilitiesResponse, error) {
	out := &api.NodeGetCapabilitiesResponse{}
	for _, c := range d.Can {
		out.Capabilities = append(out.Capabilities, &api.NodeServiceCapability{
			Type: &api.NodeServiceCapability_Rpc{Rpc: &api.NodeServiceCapability_RPC{Type: c}},
		})
	}
	return out, nil
}

// NodeStageVolume implements api.NodeServer.
func (d *Driver) NodeStageVolume(ctx context.Context, r *api.NodeStageVolumeRequest) (*api.NodeStageVolumeResponse, error) {
	if err := d.begin(ctx, "Stage", r.GetVolumeId()); err != nil {
		return nil, err
	}
	if isBlock(r) {
		return &api.NodeStageVolumeResponse{}, d.bindDevice("Stage", d.Devices[r.GetVolumeId()], stagedNode(r))
	}
	return &api.NodeStageVolumeResponse{}, d.bind("Stage", d.folder(r.GetVolumeId()), r.GetStagingTargetPath())
}

// NodePublishVolume implements api.NodeServer.
func (d *Driver) NodePublishVolume(
	ctx context.Context, r *api.NodePublishVolumeRequest,
) (*api.NodePublishVolumeResponse, error) {
	if err := d.begin(ctx, "Publish", r.GetVolumeId()); err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.contexts = append(d.contexts, maps.Clone(r.GetVolumeContext()))
	d.mu.Unlock()
	if isBlock(r) {
		from := d.Devices[r.GetVolumeId()]
		if r.GetStagingTargetPath() != "" {
			from = stagedNode(r)
		}
		return &api.NodePublishVolumeResponse{}, d.bindDevice("Publish", from, r.GetTargetPath())
	}
	from := r.GetStagingTargetPath()
	if from == "" {
		from = d.folder(r.GetVolumeId())
	} else if !d.Hidden && !mounted(from) {
		return nil, status.Error(codes.FailedPrecondition, "the volume is not staged")
	}
	return &api.NodePublishVolumeResponse{}, d.bind("Publish", from, r.GetTargetPath())
}

// NodeUnpublishVolume implements api.NodeServer.
func (d *Driver) NodeUnpublishVolume(
	ctx context.Context, r *api.NodeUnpublishVolumeRequest,
) (*api.NodeUnpublishVolumeResponse, error) {
	if err := d.begin(ctx, "Unpublish", r.GetVolumeId()); err != nil {
		return nil, err
	}
	if d.Hidden {
		return &api.NodeUnpublishVolumeResponse{}, nil
	}
	err := unbind(r.GetTargetPath())
	if err == nil {
		_ = os.Remove(r.GetTargetPath()) // or the agent removes it
	}
	if err == nil && d.Fail != nil {
		err = d.Fail("Unpublish")
	}
	return &api.NodeUnpublishVolumeResponse{}, err
}

// NodeUnstageVolume implements api.NodeServer.
func (d *Driver) NodeUnstageVolume(
	ctx context.Context, r *api.NodeUnstageVolumeRequest,
) (*api.NodeUnstageVolumeResponse, error) {
	if err := d.begin(ctx, "Unstage", r.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := unbind(stagedNode(r)); err != nil {
		return nil, err
	}
	_ = os.Remove(stagedNode(r)) // only block devices have it
	err := unbind(r.GetStagingTargetPath())
	if err == nil && d.Fail != nil {
		err = d.Fail("Unstage")
	}
	return &api.NodeUnstageVolumeResponse{}, err
}

func isBlock(r interface {
	GetVolumeCapability() *api.VolumeCapability
}) bool {
	return r.GetVolumeCapability().GetBlock() != nil
}

// stagedNode returns the path of a staged device.
func stagedNode(r interface{ GetStagingTargetPath() string }) string {
	return filepath.Join(r.GetStagingTargetPath(), "device")
}

// bindDevice binds the node of a device on a new file. The folder has to exist.
func (d *Driver) bindDevice(call, from, to string) error {
	if _, err := os.Stat(from); err != nil { // the driver has no such device, or has not staged it
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	if !mounted(to) {
		if err := os.WriteFile(to, nil, 0o600); err != nil {
			return status.Error(codes.Internal, err.Error())
		}
		if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
			return status.Error(codes.Internal, fmt.Sprintf("binding %s to %s: %v", from, to, err))
		}
	}
	if d.Fail != nil {
		return d.Fail(call)
	}
	return nil
}

func (d *Driver) folder(handle string) string { return filepath.Join(d.Data, handle) }

func (d *Driver) bind(call, from, to string) error {
	err := d.mount(from, to)
	if err == nil && d.Fail != nil {
		err = d.Fail(call)
	}
	return err
}

func (d *Driver) mount(from, to string) error {
	if d.Hidden {
		return os.MkdirAll(to, 0o750)
	}
	return bind(from, to)
}

func bind(from, to string) error {
	if mounted(to) {
		return nil
	}
	if err := errors.Join(os.MkdirAll(from, 0o777), os.MkdirAll(to, 0o750)); err != nil { // pods write there
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return status.Error(codes.Internal, fmt.Sprintf("binding %s to %s: %v", from, to, err))
	}
	return nil
}

func unbind(path string) error {
	if !mounted(path) {
		return nil
	}
	return unix.Unmount(path, 0)
}

func mounted(path string) bool {
	text, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && strings.Contains(string(text), " "+path+" ")
}

// NodeExpandVolume implements api.NodeServer.
func (d *Driver) NodeExpandVolume(_ context.Context, r *api.NodeExpandVolumeRequest) (*api.NodeExpandVolumeResponse, error) {
	d.note("Expand", r.GetVolumeId())
	d.mu.Lock()
	d.grown = append(d.grown, r)
	d.mu.Unlock()
	if !mounted(r.GetVolumePath()) {
		return nil, status.Error(codes.NotFound, "the volume is not published")
	}
	if d.Fail != nil {
		return &api.NodeExpandVolumeResponse{}, d.Fail("Expand")
	}
	return &api.NodeExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes()}, nil
}

// NodeGetVolumeStats implements api.NodeServer. A volume has 100 bytes, or the size to which it was grown.
func (d *Driver) NodeGetVolumeStats(
	_ context.Context, r *api.NodeGetVolumeStatsRequest,
) (*api.NodeGetVolumeStatsResponse, error) {
	size := int64(100)
	for _, g := range d.Grown() {
		if g.GetVolumeId() == r.GetVolumeId() {
			size = g.GetCapacityRange().GetRequiredBytes()
		}
	}
	return &api.NodeGetVolumeStatsResponse{Usage: []*api.VolumeUsage{
		{Unit: api.VolumeUsage_BYTES, Total: size, Used: 40, Available: size - 40},
		{Unit: api.VolumeUsage_INODES, Total: 10, Used: 4, Available: 6},
	}}, nil
}
