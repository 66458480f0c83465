// Package cri is the agent's side of the Container Runtime Interface.
//
// It has two halves that meet only in the messages of CRI v1
// (k8s.io/cri-api/pkg/apis/runtime/v1):
//
//   - Client speaks to a runtime over a unix socket. Every call has a deadline
//     and, except where waiting is all it does, holds a slot of a budget class;
//     slots go to the oldest pod first. Operations keeps calls that change the
//     world running to their own end when whoever asked for them is gone.
//   - NewSandboxConfig and NewContainerConfig turn a pod into the requests the
//     kubelet would have sent, byte for byte where others can see it: labels,
//     annotations, attempts, hashes and log paths. They are pure: no clock, no
//     disk, no environment.
//
// The package knows no actors and starts no goroutine of its own besides those
// of gRPC and of Operations.
package cri
