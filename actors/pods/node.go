package pods

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Node is a node as admission sees it.
type Node = admission.Node

// Here is what the agent knows of this node by itself.
type Here struct {
	// Registered says that the node is registered with an API server. New pods wait for what that knows of the node.
	Registered bool
	// Node is what does not change. Its Object has the labels and taints that the node registers with, and is replaced by the API
	// server's, once that is known.
	Node Node
	// Allocatable is what pods can have of the machine, and how many of them there may be, as read last: what registration
	// reports. It does not wait.
	Allocatable func() v1.ResourceList
	// IsDevice says whether an extended resource is a device plugin's: resources knows how much of it there is, and the Node does
	// not. It does not wait; nil: none is.
	IsDevice func(v1.ResourceName) bool
	// GroupsPolicy asks whether the runtime can do supplementalGroupsPolicy Strict; nil stands for one that cannot.
	GroupsPolicy func() bool
}

// nodeWait is how long new pods of the API server wait for the node's object. It comes from the same server as they do.
const nodeWait = 30 * time.Second

// observed is the API server's word on this node.
type observed struct {
	heard  bool
	object *v1.Node // nil while it is not registered
	until  time.Time
}

type nodeDue struct{}

// askNode asks for the node's object, until it is known.
func (a *actor) askNode(ctx supervisors.Context) {
	if a.opts.Here.Registered && !a.node.heard {
		ctx.Tell(messages.Registration, messages.GetNode{})
		ctx.After(askEvery, nodeDue{})
	}
}

// awaitNode says that pods of the API server have to wait for the node's object. They do not wait for ever.
func (a *actor) awaitNode(ctx supervisors.Context) bool {
	if !a.opts.Here.Registered || a.node.heard {
		return false
	}
	if a.node.until.IsZero() {
		a.node.until = ctx.Now().Add(nodeWait)
	}
	return ctx.Now().Before(a.node.until)
}

func (a *actor) nodeObserved(ctx supervisors.Context, m messages.NodeObserved) {
	same := a.node.heard && equality.Semantic.DeepEqual(a.node.object, m.Node)
	a.node.heard, a.node.object = true, m.Node
	if !same {
		a.reconsider(ctx)
	}
}

// pressures takes what the node is short of. Until it was measured the node counts as short of nothing, as with the kubelet.
func (a *actor) pressures(ctx supervisors.Context, m messages.NodePressureObserved) {
	var under []v1.NodeConditionType
	for _, p := range m.Pressures {
		if p.Under {
			under = append(under, p.Type)
		}
	}
	if !slices.Equal(under, a.under) {
		a.under = under
		a.reconsider(ctx)
	}
}

// thisNode is this node as far as it is known now. What the agent measures itself counts more than what the API server was
// told of it before.
func (a *actor) thisNode() *admission.Node {
	here := &a.opts.Here
	var own v1.ResourceList
	if here.Allocatable != nil {
		own = here.Allocatable()
	}
	n := here.Node
	n.Allocatable, n.Under, n.Partial, n.UnboundRequests = own, a.under, true, !a.opts.Cluster
	n.GroupsPolicy = here.GroupsPolicy != nil && here.GroupsPolicy()
	n.Object = cmp.Or(n.Object, &v1.Node{})
	if o := a.node.object; o != nil {
		n.Object, n.Partial = o, len(o.Status.Allocatable) == 0
		n.Allocatable = maps.Clone(o.Status.Allocatable)
		if n.Allocatable == nil {
			n.Allocatable = v1.ResourceList{}
		}
		maps.Copy(n.Allocatable, own)
		maps.DeleteFunc(n.Allocatable, func(name v1.ResourceName, _ resource.Quantity) bool {
			return here.IsDevice != nil && admission.Extended(name) && here.IsDevice(name)
		})
	}
	return &n
}

// runtimeChanged takes the runtime's state. A network that comes or goes is told to each pod that needs it to begin.
func (a *actor) runtimeChanged(ctx supervisors.Context, m messages.RuntimeStateChanged) {
	same := ptr.Equal(noNetwork(a.runtime), noNetwork(m))
	a.runtime = m
	a.changed(ctx)
	if !a.audited {
		a.reconcile(ctx) // what the pods wait for
	}
	for _, e := range a.entries {
		if !same && e.runs() && !e.pod.Spec.HostNetwork {
			a.renew(ctx, e)
		}
	}
}

// noNetwork is why pods cannot be given a network; nil where they can. A runtime that is away says nothing of it.
func noNetwork(r messages.RuntimeStateChanged) *messages.Reason {
	if !r.Ready || r.NetworkReady {
		return nil
	}
	return &messages.Reason{Code: messages.ReasonNetworkNotReady, Message: "network is not ready: " + r.NetworkReason}
}
