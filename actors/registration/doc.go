// Package registration is the actor that has this node's object at the API server: it makes the Node, keeps its status and
// its conditions true, and renews its lease.
//
// What the status has to be is composed by pure functions (node.go, status.go, conditions.go, sizes.go) of what was gathered
// of the machine and of what the API server has; what to do next is decided by nodeState; the actor carries it out. Each
// write is a patch of what differs, so that conditions, labels and taints of others stay. As with the kubelet, a Node that
// somebody deletes is not made again before the agent is restarted: who takes a node out of the cluster must not see it come
// back.
//
// The lease has a timer and requests of its own, which nothing delays. The controller of k8s.io/component-helpers does not serve:
// it tells nobody when the lease was renewed, and its log alone why that failed, which health and the commands have to say, and
// it waits by the machine's clock within one call that does not end.
//
// A change of readiness is written at once, everything else when it is due, each as a patch with the Node's UID. A runtime that
// was ready may be away for 30 s before the node is not ready, as with the kubelet. The facts are gathered in parts (machine,
// network, images), so that readiness waits for none. A reading that hangs, as on a file server that is gone, is left alone and
// named in health; what was known stays.
//
// Addresses are looked for at each look. With --cloud-provider=external pods report those of the Node once it has any. The
// watch is a reflector of client-go. After a restored backup it brings nothing until its resource version is reached again:
// the agent is to be restarted then, as a kubelet is. Whether there is a network is the runtime's answer; registration adds
// the cause from the folders that the runtime reads.
package registration
