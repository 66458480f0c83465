package runtime

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cni"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/supervisors"
)

// CRI is the part of the CRI's client that the actor uses; *cri.Client implements it.
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

// Options configure the actor. CRI and Operations are required.
type Options struct {
	CRI CRI
	// Operations is the process's table. Operations that make or start objects of a pod have keys with the prefix
	// "<uid>/start/"; removals by the collector have "<uid>/remove/<id>".
	Operations *cri.Operations
	// Started has the facts that starts have read; nil: none.
	Started *facts.StartFacts
	// Events is the process's subscription; nil: no events are used.
	Events *Events
	// State receives the actor's published state; nil: nothing is published.
	State *State
	// NodeName is the node in Events about failed collections; "": none are recorded.
	NodeName string
	// Registered is true if there is a registration actor, which receives the runtime's state.
	Registered bool
	// PodCIDR is the pods' address range, or one per family, comma-separated, until a Node has one (podCIDR).
	PodCIDR string
	// Endpoint is the runtime's endpoint, for messages.
	Endpoint string
	// PollPeriod is the interval between audits without events; 0 means 1 s.
	PollPeriod time.Duration
	// StartedPeriod is the longest time from a container's start, or from an end that the agent itself called for, to the audit
	// that finds it; from then on a log is rotated and linked. 0 means 10 s, the kubelet's interval for logs.
	StartedPeriod time.Duration
	// AuditPeriod is the interval between audits with events, and between full reports; 0 means 60 s.
	AuditPeriod time.Duration
	// MaxReads bounds the concurrent readings of pods; 0 means 8.
	MaxReads int
	// CollectPeriod is the interval between garbage collections; 0 means 1 min.
	CollectPeriod time.Duration
	// Collect limits the dead containers to keep; nil means DefaultPolicy.
	Collect *Policy
	// PodLogsDir holds the pods' log folders; "" means that none are collected.
	PodLogsDir string
	// Foreign reports whether the pod with a UID belongs to another agent. Its logs are left alone; nil: none does.
	Foreign func(uid string) bool
	// SandboxesFile records the seen sandboxes, so that their network addresses are freed if the runtime loses them; "": no
	// address is freed. CNICache is the runtime's folder for records of attachments. Network locates the plugins if the runtime
	// does not report their folders.
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

// New returns the constructor of the actor.
func New(opts Options) supervisors.Constructor {
	opts = opts.withDefaults()
	nodeCIDRs := &atomic.Pointer[string]{}
	return func(string) supervisors.Actor { return newActor(opts, nodeCIDRs) }
}
