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

// Options are what the actor needs.
type Options struct {
	// Client is for what must not wait: the node's status and its lease.
	Client kubernetes.Interface
	// Watch is the process's watch of the own Node.
	Watch *Watch
	// State is where it is published how registration goes; nil: nowhere.
	State *State
	// Desired is what the configuration says of the Node.
	Desired Desired
	// Sizes is what the configuration takes off the machine.
	Sizes Sizes
	// Machine reads the machine. It may be slow, and is called outside the mailbox; ctx bounds it. With an error, what is known
	// is there all the same.
	Machine func(context.Context) (Machine, error)
	// Addresses are the node's own, the one to be used first. May be slow; ctx bounds it.
	Addresses func(context.Context) ([]netip.Addr, error)
	// Runtime is what is known of the container runtime; it does not wait, and is called in the mailbox.
	Runtime func() Runtime
	// Network says why pods get no network, from the network's configuration; nil where nothing is found wrong. It is asked
	// where the runtime says that the network is not ready. May be slow; ctx bounds it. With ErrNotKnown what it said before
	// stays.
	Network func(context.Context) error
	// Images are those of the runtime.
	Images ImageLister
	// UpdateFrequency is between looks at what the status is (nodeStatusUpdateFrequency), ReportFrequency between reports of
	// one that does not change (nodeStatusReportFrequency).
	UpdateFrequency, ReportFrequency time.Duration
	// LeaseDuration is after which time without renewal the node counts as lost (nodeLeaseDurationSeconds).
	LeaseDuration time.Duration
	// Random is in [0, 1), to spread reports of many nodes; nil: 0.5.
	Random func() float64
}

// Desired is what the configuration says of the Node object.
type Desired struct {
	// Name is the node's, and its host name.
	Name string
	// Register says that the Node is made where there is none (registerNode).
	Register bool
	// Labels and Taints are set when it is made (--node-labels, registerWithTaints).
	Labels map[string]string
	Taints []v1.Taint
	// ProviderID is set when it is made (providerID).
	ProviderID string
	// ExternalCloud says that a cloud controller manager completes the Node (--cloud-provider=external).
	ExternalCloud bool
	// NodeIPs are those of --node-ip, for a cloud controller manager; unspecified ones left out.
	NodeIPs []netip.Addr
	// AnyIP says that --node-ip chose no more than a family.
	AnyIP bool
	// AttachDetach says that the attach/detach controller serves this node (enableControllerAttachDetach).
	AttachDetach bool
	// KubeletVersion is reported as the kubelet's.
	KubeletVersion string
	// KubeletPort is where the kubelet's API is served; 0: nowhere.
	KubeletPort int32
	// Features are declared: what a kubelet of the same version may lack, and the API server and the scheduler ask for
	// (KEP-5328). Sorted.
	Features []string
	// MaxImages bounds the images reported (nodeStatusMaxImages); -1: all.
	MaxImages int32
}

// Runtime is what is known of the container runtime.
type Runtime struct {
	// Since is since when it is ready or not; zero where it was not asked yet.
	Since time.Time
	// Ready says that it can be worked with; Reason, a sentence, why not.
	Ready  bool
	Reason string
	// Name and Version are of the runtime that answered last.
	Name, Version string
	// NetworkReady: whether the runtime has a network for pods; NetworkReason why not.
	NetworkReady  bool
	NetworkReason string
	Handlers      []v1.NodeRuntimeHandler
	Features      *v1.NodeFeatures
}

// ImageLister lists images; *cri.Client does.
type ImageLister interface {
	ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
}

// New is the constructor of the actor.
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

// ErrNotKnown is the answer of a Network that could not find out.
var ErrNotKnown = errors.New("the cause of the network not being ready is not known")

// life is what outlives the actor and ends with the process.
type life struct {
	// registered says that the Node was there: when it is gone now, somebody has deleted it.
	registered atomic.Bool
	began      atomic.Pointer[time.Time]
	startup    metrics.NodeStartup
}

// begin is when the process' first actor began.
func (l *life) begin(now time.Time) time.Time {
	l.began.CompareAndSwap(nil, &now)
	return *l.began.Load()
}

// State is the newest Snapshot, for readers who must not wait. The zero value is empty; safe for
// concurrent use.
type State struct{ p atomic.Pointer[Snapshot] }

// Snapshot is registration at one time.
type Snapshot struct {
	// Registered says that the API server has the Node.
	Registered bool
	// Addresses are the node's as the API server's Node has them (see hostIPs), and stay when that is gone. Not to be changed.
	Addresses []string
	// LeaseExpires is when the control plane takes the node for lost unless the lease is renewed; zero: there is none yet.
	LeaseExpires time.Time
	// NotReady is why the Node's condition Ready is not True, as the API server has it; empty: it is, or there is no Node.
	NotReady string
	// Problems are sentences that say what goes wrong.
	Problems []string
}

// Load is the newest snapshot.
func (s *State) Load() Snapshot {
	if p := s.p.Load(); p != nil {
		return *p
	}
	return Snapshot{}
}
