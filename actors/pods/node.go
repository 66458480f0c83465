package pods

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Node is a node in terms of admission.
type Node = admission.Node

// LocalNode is the agent's own knowledge of this node.
type LocalNode struct {
	// Registered reports whether the node is registered with an API server. New pods then wait for the Node object.
	Registered bool
	// Node is the constant part. Its Object has the labels and taints of the registration. The API server's Node replaces it once
	// it is known.
	Node Node
	// Allocatable returns the machine's resources for pods and the maximum number of pods, as last read and as reported by
	// registration. It does not block.
	Allocatable func() v1.ResourceList
	// IsDevice reports whether a device plugin provides an extended resource: resources knows its amount, and the Node does not.
	// It does not block; nil: no resource.
	IsDevice func(v1.ResourceName) bool
	// GroupsPolicy reports whether the runtime supports supplementalGroupsPolicy Strict; nil: it does not.
	GroupsPolicy func() bool
}

// nodeWait is how long new pods of the API server wait for the Node, which comes from the same server.
const nodeWait = 30 * time.Second

// nodeState is the state of this node.
type nodeState struct {
	received bool                   // the API server has reported the Node, or there is none to wait for
	object   *v1.Node               // the reported Node; nil while it is not registered
	until    time.Time              // end of the wait of new pods
	under    []v1.NodeConditionType // pressures, as last measured
	runtime  messages.RuntimeStateChanged
	shutdown bool // the machine is shutting down
	// asked and read are the numbers of the last request to read the Node again and of the last such request with an answer, and
	// readUntil is the time until which it is repeated.
	asked, read uint64
	readUntil   time.Time
}

// observe stores the API server's Node, and reports whether it is new, or was read again.
func (o *nodeState) observe(m messages.NodeObserved) bool {
	same := o.received && equality.Semantic.DeepEqual(o.object, m.Node)
	o.received, o.object = true, m.Node
	if m.Read > o.read && m.Read <= o.asked {
		o.read, same = m.Read, false
	}
	return !same
}

// rereads numbers the requests of this process: registration keeps the latest, and may outlive the actor.
var rereads atomic.Uint64

// nodeReread is a pod's wait for the Node to be read again.
type nodeReread struct {
	asked uint64 // the number of the request; 0: none was sent
	until time.Time
}

// mustReread reports whether a refusal has to wait until the Node was read from the API server after the pod arrived. The
// scheduler may have placed the pod by labels, taints or resources that are newer than the last Node of the watch, and a refusal
// is final. The wait is bounded.
func (a *actor) mustReread(ctx supervisors.Context, e *entry, r admission.Refusal) bool {
	if !a.opts.LocalNode.Registered || !admission.OfNode(r) {
		return false
	}
	d := &e.rereading
	if d.asked == 0 {
		a.node.asked = rereads.Add(1)
		*d = nodeReread{asked: a.node.asked, until: ctx.Now().Add(nodeWait)}
		a.node.readUntil = d.until
		a.askNode(ctx)
	}
	return a.node.read < d.asked && ctx.Now().Before(d.until)
}

// mustWait reports whether pods of the API server have to wait for the Node. The wait is bounded.
func (o *nodeState) mustWait(now time.Time) bool {
	if !o.received && o.until.IsZero() {
		o.until = now.Add(nodeWait)
	}
	return !o.received && now.Before(o.until)
}

// measured stores the node's pressures, and reports whether they changed. As with the kubelet, there is none before the first
// measurement.
func (o *nodeState) measured(m messages.NodePressureObserved) bool {
	was := o.under
	o.under = nil
	for _, p := range m.Pressures {
		if p.Under {
			o.under = append(o.under, p.Type)
		}
	}
	return !slices.Equal(o.under, was)
}

// admits returns the node for admission. The agent's own measurements override the values that the API server reports.
func (o *nodeState) admits(here *LocalNode, cluster bool) *admission.Node {
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

// askNode requests the Node until it is known, or was read again.
func (a *actor) askNode(ctx supervisors.Context) {
	var question messages.GetNode
	if a.node.read < a.node.asked && !ctx.Now().After(a.node.readUntil) {
		question.Read = a.node.asked
	}
	if !a.node.received || question.Read > 0 {
		ctx.Tell(messages.Registration, question)
		ctx.After(askEvery, nodeDue{})
	}
}

// runtimeChanged stores the runtime's state. A network that appears or disappears is sent to each pod that needs it to start.
func (a *actor) runtimeChanged(ctx supervisors.Context, m messages.RuntimeStateChanged) {
	same := ptr.Equal(noNetwork(a.node.runtime), noNetwork(m))
	a.node.runtime = m
	a.changed(ctx)
	if a.phase == auditing {
		a.reconcile(ctx) // the reason of the waiting pods
	}
	for _, e := range a.entries {
		if !same && e.runs() && !e.pod.Spec.HostNetwork {
			a.renew(ctx, e)
		}
	}
}

// noNetwork returns the reason for which pods have no network, or nil. It is unknown while the runtime is away.
func noNetwork(r messages.RuntimeStateChanged) *messages.Reason {
	if !r.Ready || r.NetworkReady {
		return nil
	}
	return &messages.Reason{Code: messages.ReasonNetworkNotReady, Message: "network is not ready: " + r.NetworkReason}
}
