package csi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	api "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/plugin"
	"github.com/playlet-dev/playlet/actors/internal/shares"
	"github.com/playlet-dev/playlet/messages"
)

const (
	// callTimeout limits a call that changes something. It is the kubelet's timeout.
	callTimeout = 2 * time.Minute
	// callsAtATime limits the concurrent calls to a driver that change something. One namespace gets at most half of the
	// places, and one pod half of those. callsWaiting limits the calls that wait for a place, with the same shares.
	callsAtATime = 20
	callsWaiting = 2000
	// askTimeout limits a call that only reads.
	askTimeout = 10 * time.Second
)

// Driver is a driver as it was when it registered. It is immutable except for the calls in progress. Its methods are safe for
// concurrent use. Each opens its own connection, because the driver's process may have been replaced.
type Driver struct {
	Name, Endpoint string
	// NodeID is the driver's name for this node, MaxVolumes its limit of volumes here (0: unknown), and Topology the location
	// of the node.
	NodeID     string
	MaxVolumes int64
	Topology   map[string]string

	socket  string // the socket with which it registered
	can     map[api.NodeServiceCapability_RPC_Type]bool
	calls   *shares.Limit
	pending *pending
}

// Capabilities of a driver.
const (
	Stages     = api.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME
	MountGroup = api.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP
	HasStats   = api.NodeServiceCapability_RPC_GET_VOLUME_STATS
	Grows      = api.NodeServiceCapability_RPC_EXPAND_VOLUME
	manyWriter = api.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER
)

// Can reports whether the driver has a capability.
func (d *Driver) Can(what api.NodeServiceCapability_RPC_Type) bool { return d.can[what] }

// Process returns the process that serves the driver's endpoint, as this process sees it (SO_PEERCRED, unix(7)); 0: unknown.
func (d *Driver) Process(ctx context.Context) (pid int) {
	conn, err := (&net.Dialer{Timeout: askTimeout}).DialContext(ctx, "unix", d.Endpoint)
	if err != nil {
		return 0
	}
	defer conn.Close() //nolint:errcheck // nothing was sent
	if raw, err := conn.(*net.UnixConn).SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // a failure leaves the process unknown
			if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				pid = int(peer.Pid)
			}
		})
	}
	return pid
}

// Owner is the tenant of a call. Places for calls are shared by namespace, and within a namespace by ID.
type Owner struct {
	Namespace string // empty: unknown
	ID        string // the pod's UID, or a name of the staged volume
	Volume    string // the volume's name for people; it has no share of its own
}

func (o Owner) keys() []string {
	if o.Namespace == "" {
		return []string{o.ID}
	}
	return []string{"namespace " + o.Namespace, o.ID}
}

// Volume describes a volume to the driver. Secrets are never logged and never part of an error.
type Volume struct {
	Owner      Owner
	Handle     string
	Staging    string // path; empty if the driver does not stage
	Target     string // path; of a block device, the driver makes it
	FSType     string
	AccessMode v1.PersistentVolumeAccessMode
	Options    []string // of mount(8)
	ReadOnly   bool
	Attributes map[string]string
	Published  map[string]string // the attacher's publish context
	Secrets    map[string]string
	Group      *int64 // the owning group, for drivers with MountGroup; nil: none
	Block      bool   // a block device, without file system, options and group
	Migrated   bool   // a volume of a former in-tree kind; for metrics only
}

// Stage makes the volume available to all pods of this node.
func (d *Driver) Stage(ctx context.Context, v Volume) error {
	return change(ctx, d, v.Owner, "NodeStageVolume", v.Migrated, api.NodeClient.NodeStageVolume, &api.NodeStageVolumeRequest{
		VolumeId: v.Handle, StagingTargetPath: v.Staging, VolumeCapability: d.capability(v), Secrets: v.Secrets,
		VolumeContext: v.Attributes, PublishContext: v.Published,
	})
}

// Publish mounts the volume for a pod, at the target.
func (d *Driver) Publish(ctx context.Context, v Volume) error {
	const method = "NodePublishVolume"
	return change(ctx, d, v.Owner, method, v.Migrated, api.NodeClient.NodePublishVolume, &api.NodePublishVolumeRequest{
		VolumeId: v.Handle, StagingTargetPath: v.Staging, TargetPath: v.Target, VolumeCapability: d.capability(v),
		Readonly: v.ReadOnly, Secrets: v.Secrets, VolumeContext: v.Attributes, PublishContext: v.Published,
	})
}

// Unpublish undoes Publish.
func (d *Driver) Unpublish(ctx context.Context, o Owner, handle, target string) error {
	return change(ctx, d, o, "NodeUnpublishVolume", false, api.NodeClient.NodeUnpublishVolume,
		&api.NodeUnpublishVolumeRequest{VolumeId: handle, TargetPath: target})
}

// Unstage undoes Stage.
func (d *Driver) Unstage(ctx context.Context, o Owner, handle, staging string) error {
	return change(ctx, d, o, "NodeUnstageVolume", false, api.NodeClient.NodeUnstageVolume,
		&api.NodeUnstageVolumeRequest{VolumeId: handle, StagingTargetPath: staging})
}

// Grow grows the file system on the volume to a size in bytes. The volume is published at its target, and may be in use.
func (d *Driver) Grow(ctx context.Context, v Volume, size int64) error {
	return change(ctx, d, v.Owner, "NodeExpandVolume", v.Migrated, api.NodeClient.NodeExpandVolume, &api.NodeExpandVolumeRequest{
		VolumeId: v.Handle, VolumePath: v.Target, StagingTargetPath: v.Staging, Secrets: v.Secrets,
		CapacityRange: &api.CapacityRange{RequiredBytes: size}, VolumeCapability: d.capability(v),
	})
}

// Usage is the usage of a volume in bytes and inodes. Values that the driver does not report are 0.
type Usage struct{ Bytes, Inodes Amount }

// Amount is a number of bytes or inodes.
type Amount struct{ Total, Used, Free uint64 }

// Stats returns the usage of the volume.
func (d *Driver) Stats(ctx context.Context, handle, target string) (u Usage, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	got, err := call(ctx, d, "NodeGetVolumeStats", false, api.NodeClient.NodeGetVolumeStats,
		&api.NodeGetVolumeStatsRequest{VolumeId: handle, VolumePath: target})
	for _, one := range got.GetUsage() {
		a := Amount{amount(one.GetTotal()), amount(one.GetUsed()), amount(one.GetAvailable())}
		switch one.GetUnit() {
		case api.VolumeUsage_BYTES:
			u.Bytes = a
		case api.VolumeUsage_INODES:
			u.Inodes = a
		case api.VolumeUsage_UNKNOWN: // a unit of a later CSI
		}
	}
	return u, err
}

func amount(n int64) uint64 { return uint64(max(n, 0)) }

// learn asks the driver for its capabilities, and for its ID, limit and topology of this node.
func (d *Driver) learn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	can, err := call(ctx, d, "NodeGetCapabilities", false, api.NodeClient.NodeGetCapabilities, &api.NodeGetCapabilitiesRequest{})
	if err != nil {
		return err
	}
	d.can = map[api.NodeServiceCapability_RPC_Type]bool{}
	for _, c := range can.GetCapabilities() {
		d.can[c.GetRpc().GetType()] = true
	}
	node, err := call(ctx, d, "NodeGetInfo", false, api.NodeClient.NodeGetInfo, &api.NodeGetInfoRequest{})
	if err == nil && node.GetNodeId() == "" {
		err = errors.New("it gives this node no ID")
	}
	d.NodeID, d.MaxVolumes = node.GetNodeId(), max(node.GetMaxVolumesPerNode(), 0)
	d.Topology = node.GetAccessibleTopology().GetSegments()
	return err
}

// method is a call of the node service.
type method[Q, A any] func(api.NodeClient, context.Context, *Q, ...grpc.CallOption) (*A, error)

// change makes a call that changes something, once the driver has a free place.
func change[Q, A any](ctx context.Context, d *Driver, o Owner, what string, migrated bool, m method[Q, A], q *Q) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	defer d.pending.add(Call{Driver: d.Name, Method: what, Volume: o.Volume}, o.ID)()
	release, err := d.calls.Wait(ctx, o.keys()...)
	if err != nil {
		return messages.Cause{Code: messages.CauseDriverCall, Name: d.Name}.Errorf(
			"CSI driver %s: %s: earlier calls to the driver are still running: %w", d.Name, what, err)
	}
	defer release()
	_, err = call(ctx, d, what, migrated, m, q)
	return err
}

func call[Q, A any](ctx context.Context, d *Driver, what string, migrated bool, m method[Q, A], q *Q) (*A, error) {
	conn, err := plugin.Dial(d.Endpoint)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	a, err := m(api.NewNodeClient(conn), ctx, q)
	metrics.CalledCSI(d.Name, what, status.Code(err).String(), migrated, began)
	_ = conn.Close() // no call is in progress on it
	if s, ok := status.FromError(err); ok && err != nil {
		text := s.Message()
		if s.Code() == codes.DeadlineExceeded {
			text = "it did not answer in time"
		}
		return a, CallError{s.Code(), d.Name, fmt.Sprintf("CSI driver %s: %s: %s (%s)", d.Name, what, text, s.Code())}
	}
	return a, err
}

// CallError is an error returned by a driver.
type CallError struct {
	Code   codes.Code
	driver string
	text   string
}

// Error implements error.
func (e CallError) Error() string { return e.text }

// Cause implements messages.CauseError.
func (e CallError) Cause() messages.Cause {
	return messages.Cause{Code: messages.CauseDriverCall, Name: e.driver}
}

// Final reports whether the operation has failed and is no longer in progress (CSI, gRPC's status codes).
func (e CallError) Final() bool {
	return !slices.Contains([]codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted,
		codes.Aborted}, e.Code)
}

// Infeasible reports whether the driver can never carry out the operation. The kubelet reads the codes in the same way.
func (e CallError) Infeasible() bool {
	return slices.Contains([]codes.Code{codes.InvalidArgument, codes.OutOfRange, codes.NotFound}, e.Code)
}

// capability returns the requested use of the volume.
func (d *Driver) capability(v Volume) *api.VolumeCapability {
	mode := &api.VolumeCapability_AccessMode{Mode: d.accessMode(v.AccessMode)}
	if v.Block {
		return &api.VolumeCapability{AccessMode: mode,
			AccessType: &api.VolumeCapability_Block{Block: &api.VolumeCapability_BlockVolume{}}}
	}
	mount := &api.VolumeCapability_MountVolume{FsType: v.FSType, MountFlags: v.Options}
	if v.Group != nil && d.Can(MountGroup) {
		mount.VolumeMountGroup = fmt.Sprint(*v.Group)
	}
	return &api.VolumeCapability{AccessMode: mode, AccessType: &api.VolumeCapability_Mount{Mount: mount}}
}

// accessMode translates Kubernetes' modes (KEP-2485).
func (d *Driver) accessMode(m v1.PersistentVolumeAccessMode) api.VolumeCapability_AccessMode_Mode {
	switch m {
	case v1.ReadOnlyMany:
		return api.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case v1.ReadWriteMany:
		return api.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case v1.ReadWriteOncePod:
		if d.Can(manyWriter) {
			return api.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
		}
	case v1.ReadWriteOnce:
		if d.Can(manyWriter) {
			return api.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		}
	}
	return api.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
}
