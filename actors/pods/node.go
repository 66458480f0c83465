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

// observed is what is known of this node.
type observed struct {
	heard    bool                   // the API server's word on it has come, where there is to be one
	object   *v1.Node               // that word; nil while it is not registered
	until    time.Time              // how long new pods wait for it
	under    []v1.NodeConditionType // what it is short of, as measured last
	runtime  messages.RuntimeStateChanged
	shutdown bool // the machine is shutting down
}

// observe takes the API server's word, and reports whether it is news.
func (o *observed) observe(m messages.NodeObserved) bool {
	same := o.heard && equality.Semantic.DeepEqual(o.object, m.Node)
	o.heard, o.object = true, m.Node
	return !same
}

// awaited says that pods of the API server have to wait for the node's object. They do not wait for ever.
func (o *observed) awaited(now time.Time) bool {
	if !o.heard && o.until.IsZero() {
		o.until = now.Add(nodeWait)
	}
	return !o.heard && now.Before(o.until)
}

// measured takes what the node is short of, and reports whether that is news. Until it was measured the node counts as short of
// nothing, as with the kubelet.
func (o *observed) measured(m messages.NodePressureObserved) bool {
	was := o.under
	o.under = nil
	for _, p := range m.Pressures {
		if p.Under {
			o.under = append(o.under, p.Type)
		}
	}
	return !slices.Equal(o.under, was)
}

// admits is the node as admission sees it now. What the agent measures itself counts more than what the API server was told of it
// before.
func (o *observed) admits(here *Here, cluster bool) *admission.Node {
	var own v1.ResourceList
	if here.Allocatable != nil {
		own = here.Allocatable()
	}
	n := here.Node
	n.Allocatable, n.Under, n.Partial, n.UnboundRequests = own, o.under, true, !cluster
	n.GroupsPolicy = here.GroupsPolicy != nil && here.GroupsPolicy()
	n.Object = cmp.Or(n.Object, &v1.Node{})
	if o.object != nil {
		n.Object, n.Partial = o.object, len(o.object.Status.Allocatable) == 0
		n.Allocatable = maps.Clone(o.object.Status.Allocatable)
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

type nodeDue struct{}

// askNode asks for the node's object, until it is known.
func (a *actor) askNode(ctx supervisors.Context) {
	if !a.node.heard {
		ctx.Tell(messages.Registration, messages.GetNode{})
		ctx.After(askEvery, nodeDue{})
	}
}

// runtimeChanged takes the runtime's state. A network that comes or goes is told to each pod that needs it to begin.
func (a *actor) runtimeChanged(ctx supervisors.Context, m messages.RuntimeStateChanged) {
	same := ptr.Equal(noNetwork(a.node.runtime), noNetwork(m))
	a.node.runtime = m
	a.changed(ctx)
	if a.phase == auditing {
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
