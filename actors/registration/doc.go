// Package registration is the actor of this node's objects at the API server: it creates the Node, keeps its status and its
// conditions up to date, and renews its lease.
//
// Pure functions (node.go, status.go, conditions.go, sizes.go) compose the status from the gathered facts and the API server's
// Node. nodeState decides the next write, and the actor carries it out. Each write is a patch of the difference, so that
// conditions, labels and taints of others stay. As with the kubelet, a deleted Node is not created again before the agent
// restarts: a node that an administrator removes from the cluster must not come back.
//
// The lease has a timer and requests of its own, which nothing delays. The controller of k8s.io/component-helpers is no
// replacement: it reports failures to its log alone, while health and the commands show them, and it uses the machine's clock.
//
// A change of readiness is written at once, everything else when it is due, each as a patch with the Node's UID. A ready runtime
// may be away for 30 s before the node is not ready, as with the kubelet. The facts are gathered in parts (machine, network,
// images), so that readiness waits for none. A reading that hangs, e.g. on a dead file server, is left alone and reported in
// health; the last known values stay.
//
// Addresses are read at each update. With --cloud-provider=external pods report the Node's addresses once it has any. The watch
// is a reflector of client-go. After a restored backup of the API server it reports nothing until its resource version is reached
// again: the agent has to be restarted then, like a kubelet. The runtime reports whether there is a network; registration adds
// the cause from the folders that the runtime reads.
package registration
