package registration

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/overdue"
	"github.com/playlet-dev/playlet/supervisors"
)

// Options configure the actor.
type Options struct {
	// Client is the client for the urgent requests: the node's status and its lease.
	Client kubernetes.Interface
	// Watch is the process's watch of its own Node.
	Watch *Watch
	// State receives a snapshot after each change; nil for none.
	State *State
	// Desired is the configuration of the Node.
	Desired NodeConfig
	// Sizes are the reservations of the configuration.
	Sizes Sizes
	// Machine reads the machine, outside the mailbox. It may be slow; ctx bounds it. Along with an error it returns the known
	// values.
	Machine func(context.Context) (Machine, error)
	// Addresses returns the node's own addresses, the primary one first. It may be slow; ctx bounds it.
	Addresses func(context.Context) ([]netip.Addr, error)
	// Runtime returns the state of the container runtime. It does not block, and is called in the mailbox.
	Runtime func() Runtime
	// Network returns the fault in the network's configuration, or nil. It is called when the runtime reports that the network
	// is not ready. It may be slow; ctx bounds it. With ErrNotKnown its previous answer stays.
	Network func(context.Context) error
	// Images lists the runtime's images.
	Images ImageLister
	// UpdateFrequency is the period between computations of the status (nodeStatusUpdateFrequency), ReportFrequency the period
	// between reports of an unchanged status (nodeStatusReportFrequency).
	UpdateFrequency, ReportFrequency time.Duration
	// LeaseDuration is the time without renewal after which the node counts as lost (nodeLeaseDurationSeconds).
	LeaseDuration time.Duration
	// Random returns numbers in [0, 1) that spread the reports of many nodes; nil for 0.5.
	Random func() float64
}

// NodeConfig is the configuration of the Node object.
type NodeConfig struct {
	// Name is the name and the host name of the node.
	Name string
	// Register creates a missing Node (registerNode).
	Register bool
	// Labels and Taints are set when the Node is created (--node-labels, registerWithTaints).
	Labels map[string]string
	Taints []v1.Taint
	// ProviderID is set when the Node is created (providerID).
	ProviderID string
	// ExternalCloud means that a cloud controller manager completes the Node (--cloud-provider=external).
	ExternalCloud bool
	// NodeIPs are the specified addresses of --node-ip, for a cloud controller manager.
	NodeIPs []netip.Addr
	// AnyIP means that --node-ip chose a family alone.
	AnyIP bool
	// AttachDetach means that the attach/detach controller serves this node (enableControllerAttachDetach).
	AttachDetach bool
	// KubeletVersion is the reported version of the kubelet.
	KubeletVersion string
	// KubeletPort is the port of the kubelet's API; 0 for none.
	KubeletPort int32
	// Features are the declared features, sorted: features that kubelets of this version may lack, and that the API server and
	// the scheduler require (KEP-5328).
	Features []string
	// MaxImages bounds the reported images (nodeStatusMaxImages); -1 for all.
	MaxImages int32
}

// Runtime is the state of the container runtime.
type Runtime struct {
	// Since is the time of the last change of Ready; zero before the first answer.
	Since time.Time
	// Ready means that the runtime accepts requests. Reason is a sentence with the cause if it does not.
	Ready  bool
	Reason string
	// Name and Version describe the runtime that answered last.
	Name, Version string
	// NetworkReady means that the runtime has a network for pods. NetworkReason is the cause if it does not.
	NetworkReady  bool
	NetworkReason string
	Handlers      []v1.NodeRuntimeHandler
	Features      *v1.NodeFeatures
}

// ImageLister lists images; *cri.Client implements it.
type ImageLister interface {
	ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
}

// New returns the constructor of the actor.
func New(o Options) supervisors.Constructor {
	if o.State == nil {
		o.State = &State{}
	}
	if o.Random == nil {
		o.Random = func() float64 { return 0.5 }
	}
	if o.Network != nil { // its folders may hang
		ask := o.Network
		reading := overdue.New("the network's configuration", networkTimeout, func() (struct{}, error) {
			ctx, cancel := context.WithTimeout(context.Background(), networkTimeout)
			defer cancel()
			return struct{}{}, ask(ctx)
		})
		o.Network = func(ctx context.Context) error {
			_, err := reading.Get(ctx)
			return err
		}
	}
	life := &life{}
	return func(string) supervisors.Actor { return &actor{opts: o, life: life} }
}

// ErrNotKnown is the error of a Network check that did not complete.
var ErrNotKnown = errors.New("the cause of the network not being ready is not known")

// life is the state that lasts as long as the process.
type life struct {
	// registered means that the Node existed: a missing Node was deleted.
	registered atomic.Bool
	began      atomic.Pointer[time.Time]
	startup    metrics.NodeStartup
}

// begin returns the start of the process's first actor.
func (l *life) begin(now time.Time) time.Time {
	l.began.CompareAndSwap(nil, &now)
	return *l.began.Load()
}

// State is the newest Snapshot, for readers that must not block. The zero value is empty. Safe for concurrent use.
type State struct{ p atomic.Pointer[Snapshot] }

// Snapshot is the state of the registration at one time.
type Snapshot struct {
	// Registered means that the API server has the Node.
	Registered bool
	// Addresses are the addresses of the API server's Node (see hostIPs). They outlive the Node. Immutable.
	Addresses []string
	// LeaseExpires is when the control plane considers the node lost unless the lease is renewed; zero without a lease.
	LeaseExpires time.Time
	// NotReady is the reason why the condition Ready of the API server's Node is not True; empty if it is, or without a Node.
	NotReady string
	// Problems are sentences for health.
	Problems []string
}

// Load returns the newest snapshot.
func (s *State) Load() Snapshot {
	if p := s.p.Load(); p != nil {
		return *p
	}
	return Snapshot{}
}
