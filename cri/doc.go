// Package cri is the client of the Container Runtime Interface.
//
// It speaks CRI v1 (k8s.io/cri-api/pkg/apis/runtime/v1) to a runtime over a unix socket. Every call has a deadline and, unless it
// only waits, holds a slot of a budget class; slots go to the oldest pod first. Operations runs calls that change the world to
// their own end, independent of the caller. Package translate builds a pod's requests; this package defines the labels and
// annotations that identify pods.
//
// The package knows no actors and starts no goroutine of its own besides those of gRPC and of Operations.
package cri
