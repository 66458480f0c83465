// Package registration is the actor that has this node's object at the API server: it makes the Node, keeps its status and
// its conditions true, and renews its lease.
//
// What the status has to be is composed by pure functions (node.go, status.go, conditions.go, sizes.go) of what was gathered
// of the machine and of what the API server has; what to do next is decided by the book; the actor carries it out. Each
// write is a patch of what differs, so that conditions, labels and taints of others stay. The lease has its own timer and its
// own requests, which nothing else here delays. As with the kubelet, a Node that somebody deletes is not made again before
// the agent is restarted: who takes a node out of the cluster must not see it come back.
package registration
