// Package cri is the client of the Container Runtime Interface.
//
// It speaks CRI v1 (k8s.io/cri-api/pkg/apis/runtime/v1) to a runtime over a unix socket. Every call has a deadline and, except
// where waiting is all it does, holds a slot of a budget class; slots go to the oldest pod first. Operations keeps calls that
// change the world running to their own end when whoever asked for them is gone. What a pod's requests say is made by
// package translate; the labels and annotations by which pods are known again are here.
//
// The package knows no actors and starts no goroutine of its own besides those of gRPC and of Operations.
package cri
