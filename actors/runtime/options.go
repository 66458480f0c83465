package runtime

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cni"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/supervisors"
)

// CRI is what the actor needs of the CRI's client; *cri.Client has it.
type CRI interface {
	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
	RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error)
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error)
	ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	RemoveContainer(ctx context.Context, id string) error
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
	UpdateRuntimeConfig(ctx context.Context, podCIDR string) error
}

// Options are what the actor needs. CRI and Operations are required.
type Options struct {
	CRI CRI
	// Operations is the process's table. Operations that make or start something of a pod have keys that begin with
	// "<uid>/start/"; what the collector removes has "<uid>/remove/<id>".
	Operations *cri.Operations
	// Events is the process's subscription; nil means that events are not used.
	Events *Events
	// State is where the actor publishes what it knows of the runtime; nil: nowhere.
	State *State
	// NodeName is the node that Events of failed collections are about; "": none are recorded.
	NodeName string
	// Registered says that there is a registration, which is told how the runtime is.
	Registered bool
	// PodCIDR is the pods' range of addresses, or one of each family, comma-separated, until a Node says otherwise (podCIDR).
	PodCIDR string
	// Endpoint is the runtime's, for messages.
	Endpoint string
	// PollPeriod is between audits where there are no events; 0 means 1 s.
	PollPeriod time.Duration
	// StartedPeriod is after how long an audit sees a container that was started: its log is rotated and linked from then on. 0
	// means 10 s, as often as the kubelet looks at logs.
	StartedPeriod time.Duration
	// AuditPeriod is between audits where there are events, and after it everything is told again; 0 means 60 s.
	AuditPeriod time.Duration
	// MaxReads bounds the pods read at once; 0 means 8.
	MaxReads int
	// CollectPeriod is between collections of what is dead; 0 means 1 min.
	CollectPeriod time.Duration
	// Collect limits what dead containers are kept; nil means DefaultPolicy.
	Collect *Policy
	// PodLogsDir holds the pods' log folders; "" means that none are collected.
	PodLogsDir string
	// Foreign says of a pod's UID whether it is another agent's, whose logs are left alone; nil: none is.
	Foreign func(uid string) bool
	// SandboxesFile keeps which sandboxes were seen, so that their network addresses are freed where the runtime loses them; "":
	// none are. CNICache is where the runtime keeps what it has attached to networks. Network is where plugins are looked for,
	// where the runtime does not tell.
	SandboxesFile, CNICache string
	Network                 cni.Places
}

func (o Options) withDefaults() Options {
	if o.Foreign == nil {
		o.Foreign = func(string) bool { return false }
	}
	o.PollPeriod = cmp.Or(o.PollPeriod, time.Second)
	o.StartedPeriod = cmp.Or(o.StartedPeriod, 10*time.Second)
	o.AuditPeriod = cmp.Or(o.AuditPeriod, time.Minute)
	o.CollectPeriod = cmp.Or(o.CollectPeriod, time.Minute)
	o.MaxReads = cmp.Or(o.MaxReads, 8)
	o.Collect = cmp.Or(o.Collect, new(DefaultPolicy()))
	o.State = cmp.Or(o.State, &State{})
	return o
}

// New is the constructor of the actor.
func New(opts Options) supervisors.Constructor {
	opts = opts.withDefaults()
	nodeCIDRs := &atomic.Pointer[string]{}
	return func(string) supervisors.Actor { return newActor(opts, nodeCIDRs) }
}
