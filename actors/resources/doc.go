// Package resources is the actor that makes the cgroups of pods, with the kubelet's names and values, before anything
// of a pod is started, and removes them after its last process.
//
// How to read the folder: driver.go is the work on cgroups, for the reconciler (actors/internal/reconcile), which
// does the rest; actor.go is the policy: what the node's own cgroups weigh, and what pods are told. Names and values
// are in actors/internal/linux/cgroups. devices.go has devices allocated to pods that are to be admitted; what is known of them
// is in actors/internal/devices. machine.go reads, for the command, what else of the machine the kubelet looks after.
package resources
