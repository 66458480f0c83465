// Package resources is the actor that makes the cgroups of pods before their first process, with the kubelet's names and values,
// and removes them after their last process.
//
// How to read the folder: driver.go is the work on cgroups, for the reconciler (actors/internal/reconcile), which does the rest.
// actor.go is the policy: the weights of the node's own cgroups, and the answers to pods. Names and values are in
// actors/internal/linux/cgroups. allocate.go allocates CPUs, memory and devices to pods before their admission, align.go from
// suitable NUMA nodes; their state is in actors/internal/cpus, numamemory and devices. cpusets.go keeps running containers on
// their CPUs and NUMA nodes. claims.go has the ResourceClaims of pods prepared; their state is in actors/internal/dra. machine.go
// reads, for the command, other settings of the machine that the kubelet manages.
package resources

import (
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/cgroups"
	"github.com/playlet-dev/playlet/actors/internal/reconcile"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// Options configure the actor.
type Options struct {
	// Tree is the tree of cgroups; nil: pods have none [cgroupsPerQOS].
	Tree *cgroups.Tree
	// Parent returns the parent cgroup of all pods, if Tree is nil.
	Parent func() string
	// Foreign reports whether the pod with a UID is another agent's. Its cgroup is left alone; nil: none is.
	Foreign func(uid string) bool
	// Providers allocate resources to pods, one after another.
	Providers []Provider
	// Alignment decides from which NUMA nodes.
	Alignment Alignment
	// Claims prepares the ResourceClaims of pods; nil: no pod has any.
	Claims ClaimManager
	// Pinning keeps containers on their CPUs; without CPUs they run on all.
	Pinning Pinner
	// Operations is the process-wide table of work that outlives the actor.
	Operations reconcile.Operations
	// NodeName is the node in Events about the enforced values of the node's cgroups; empty: none are recorded.
	NodeName string
}

const (
	// timeout bounds the wait for an operation, which continues afterwards, to at most operationTimeout.
	timeout          = 30 * time.Second
	operationTimeout = time.Minute
	// nodeKey is the key of the node's own cgroups. No pod has this UID.
	nodeKey = "node"
)

// The lanes of operations on pods' cgroups.
const (
	ensuring = iota // closed until the node's own cgroups exist
	removing
)

// reserveAgain is the delay before failed reservations are retried.
const reserveAgain = time.Minute

// retry is the same back-off as for a pod's other waits.
var retry = backoff.Policy{First: time.Second, Max: 10 * time.Second}

// New returns the constructor of the actor. It answers EnsurePodCgroup, RemovePodCgroup, PodCgroupsWanted, PrepareClaims and
// ReleaseClaims; the messages document the guarantees.
func New(opts Options) supervisors.Constructor {
	return func(string) supervisors.Actor {
		parts := parts{allocation{opts.Providers, opts.Alignment, opts.Operations}, newCPUSets(opts.Pinning, opts.Operations),
			newClaims(opts.Claims, opts.Operations)}
		if opts.Tree == nil {
			return noCgroupActor{opts.Parent, parts}
		}
		a := &actor{nodeName: opts.NodeName, tree: opts.Tree, parts: parts}
		a.pods = reconcile.New(reconcile.Options[*v1.Pod, string]{
			Name: "cgroup", Driver: podDriver{opts.Tree, opts.Foreign}, Report: a.podReported,
			Operations: opts.Operations, Prefix: "cgroups/", OperationTimeout: operationTimeout,
			Rules: reconcile.Rules[*v1.Pod, string]{
				Same: func(a, b *v1.Pod) bool { return a == b }, Retry: retry, Timeout: timeout, RemoveTimeout: timeout, Grace: 2,
				Places: []int{ensuring: 0, removing: -1}, Lane: lane, Identity: cgroups.Key,
			},
		})
		a.node = reconcile.New(reconcile.Options[[]*v1.Pod, struct{}]{
			Name: "node cgroups", Driver: nodeDriver{opts.Tree}, Report: a.nodeReported, Pod: func(string) string { return "" },
			Operations: opts.Operations, Prefix: "cgroups/", OperationTimeout: operationTimeout,
			Rules: reconcile.Rules[[]*v1.Pod, struct{}]{Same: slices.Equal[[]*v1.Pod], Retry: retry, Timeout: timeout},
		})
		return a
	}
}

func lane(op reconcile.Operation[*v1.Pod, string]) int {
	if op.Remove {
		return removing
	}
	return ensuring
}

type actor struct {
	pods   *reconcile.Reconciler[*v1.Pod, string]
	node   *reconcile.Reconciler[[]*v1.Pod, struct{}]
	active map[string]*v1.Pod // as pods last sent them
	weighs []*v1.Pod          // the last weights of the node's cgroups
	ready  bool               // they were made since the start

	parts    parts
	tree     *cgroups.Tree
	nodeName string           // the node of the Events; empty: none
	reason   *messages.Reason // the last failure to make or weigh them
	reserves bool             // reservations are enforced, or will be
	lacks    string           // why reservations could not be enforced, as last reported
}

type (
	reserveDue   struct{}
	reservesMade struct{ err error }
)

func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		// Nothing is known or assumed: waiting pods ask again.
		a.parts.cpusets.start(ctx)
	case reserveDue:
		a.reserve(ctx)
	case reservesMade:
		a.onReserved(ctx, m.err)
	case messages.EnsurePodCgroup:
		a.pods.Ensure(ctx, m.UID, m.Pod)
		a.tellNode(ctx, m.UID)
		a.weigh(ctx)
	case messages.RemovePodCgroup:
		a.pods.Remove(ctx, m.UID)
	case messages.PodCgroupsWanted:
		a.active = m.Active
		a.weighs = a.running()
		a.node.Ensure(ctx, nodeKey, a.weighs) // like the kubelet, restore values that someone changed
		a.pods.Sweep(ctx, m.UIDs, m.Heard)
		a.parts.claims.sweep(ctx, m)
		if !a.reserves { // by now the runtime has reported its cgroup driver
			a.reserves = true
			a.reserve(ctx)
		}
	default:
		if !a.pods.Receive(ctx, msg) && !a.node.Receive(ctx, msg) && !a.parts.receive(ctx, msg) {
			ctx.Unhandled(msg)
		}
	}
}

// weigh has the node's cgroups made and weighed if their contents changed. Failures are retried automatically.
func (a *actor) weigh(ctx supervisors.Context) {
	if pods := a.running(); a.reason == nil && (!a.ready || !slices.Equal(pods, a.weighs)) {
		a.weighs = pods
		a.node.Ensure(ctx, nodeKey, pods)
	}
}

// running returns the pods with requests that count.
func (a *actor) running() []*v1.Pod {
	all := map[string]*v1.Pod{}
	maps.Copy(all, a.active)
	a.pods.Each(func(r reconcile.Report[*v1.Pod, string]) {
		if all[r.Key] = r.Desired; r.Remove {
			delete(all, r.Key)
		}
	})
	out := make([]*v1.Pod, 0, len(all))
	for _, uid := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[uid])
	}
	return out
}

// nodeReported handles the result for the node's own cgroups. Pods wait for the first success.
func (a *actor) nodeReported(ctx supervisors.Context, r reconcile.Report[[]*v1.Pod, struct{}]) {
	if r.Err == nil {
		if !a.ready || a.reason != nil {
			a.record(ctx, v1.EventTypeNormal, messages.EventAllocatableEnforced, "Updated Node Allocatable limit across pods")
		}
		a.ready, a.reason = true, nil
		a.pods.SetPlaces(ctx, ensuring, -1)
		a.weigh(ctx)
		return
	}
	if a.reason == nil || a.reason.Message != r.Err.Error() {
		a.record(ctx, v1.EventTypeWarning, messages.EventAllocatableFailed,
			"Failed to update Node Allocatable Limits: "+r.Err.Error())
	}
	a.reason = &messages.Reason{Code: messages.ReasonCreatePodContainer, Message: r.Err.Error(), RetryAt: r.RetryAt}
	a.pods.Each(func(r reconcile.Report[*v1.Pod, string]) {
		if !r.Remove {
			a.tellNode(ctx, r.Key)
		}
	})
}

// reserve enforces reservations on the cgroups named for them. Pods do not wait for it.
func (a *actor) reserve(ctx supervisors.Context) {
	if tree := a.tree; len(tree.Settings.Reservations) > 0 {
		ctx.Do(supervisors.Work{Name: "enforce reservations", Timeout: timeout, Run: func(context.Context) any {
			return reservesMade{tree.Reserve()}
		}})
	}
}

func (a *actor) onReserved(ctx supervisors.Context, err error) {
	if err == nil {
		a.lacks = ""
		return
	}
	if text := err.Error(); text != a.lacks {
		a.lacks = text
		ctx.Log().Warn("reservations are not enforced", "error", text)
		a.record(ctx, v1.EventTypeWarning, messages.EventAllocatableFailed, "Failed to enforce Node Allocatable Limits: "+text)
	}
	ctx.After(reserveAgain, reserveDue{})
}

func (a *actor) record(ctx supervisors.Context, kind, reason, message string) {
	if a.nodeName != "" {
		ctx.Tell(messages.Events, messages.NodeEvent(a.nodeName, kind, reason, message, ctx.Now()))
	}
}

// tellNode sends a pod the reason why the parents of its cgroup are missing.
func (a *actor) tellNode(ctx supervisors.Context, uid string) {
	if a.reason != nil && !a.ready {
		ctx.Tell(messages.PodAddress(uid), messages.PodCgroupFailed{UID: uid, Reason: *a.reason})
	}
}

// podReported sends a pod the result for its cgroup.
func (a *actor) podReported(ctx supervisors.Context, r reconcile.Report[*v1.Pod, string]) {
	uid, to := r.Key, messages.PodAddress(r.Key)
	switch {
	case r.Remove && r.Err == nil && r.Asked:
		ctx.Tell(to, messages.PodCgroupRemoved{UID: uid})
	case r.Remove && r.Asked:
		ctx.Tell(to, messages.PodCgroupRemoved{UID: uid, Left: r.Err.Error()})
	case r.Remove:
	case r.Err == nil:
		ctx.Tell(to, messages.PodCgroupReady{UID: uid, Pod: r.Desired, Parent: r.Actual})
	default:
		ctx.Tell(to, messages.PodCgroupFailed{UID: uid, Reason: messages.Reason{
			Code: messages.ReasonCreatePodContainer, Message: "the pod's cgroup: " + r.Err.Error(), RetryAt: r.RetryAt,
		}})
	}
}

// parts are the CPUs and devices that containers have to themselves, and the ResourceClaims of pods.
type parts struct {
	allocation allocation
	cpusets    *cpusets // nil: no container has CPUs to itself
	claims     *claims  // nil: no pod has ResourceClaims
}

// receive handles the messages about them, and returns whether msg was one. A change of assignments changes the shared pool.
func (p parts) receive(ctx supervisors.Context, msg any) bool {
	if p.allocation.receive(ctx, msg) {
		p.cpusets.sync(ctx)
		if m, ok := msg.(messages.ResourcesHeld); ok {
			p.cpusets.adopt(ctx, m.Holding)
		}
		return true
	}
	return p.cpusets.receive(ctx, msg) || p.claims.receive(ctx, msg)
}

// inspection is the actor's answer to an inspection.
type inspection struct {
	NodeReady bool                 `json:"nodeReady"`
	Node      *messages.Reason     `json:"node,omitempty"` // why it is not ready
	Pods      reconcile.Inspection `json:"pods"`
}

func (a *actor) Inspect() any { return inspection{a.ready, a.reason, a.pods.Inspect()} }

// noCgroupActor is the actor without cgroups per pod.
type noCgroupActor struct {
	parent func() string
	parts  parts
}

func (a noCgroupActor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		a.parts.cpusets.start(ctx)
	case messages.PodCgroupsWanted:
		a.parts.claims.sweep(ctx, m)
	case messages.EnsurePodCgroup:
		ctx.Tell(messages.PodAddress(m.UID), messages.PodCgroupReady{UID: m.UID, Pod: m.Pod, Parent: a.parent()})
	case messages.RemovePodCgroup:
		ctx.Tell(messages.PodAddress(m.UID), messages.PodCgroupRemoved{UID: m.UID})
	default:
		if !a.parts.receive(ctx, msg) {
			ctx.Unhandled(msg)
		}
	}
}
