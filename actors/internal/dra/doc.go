// Package dra is the node's part of dynamic resource allocation (KEP-4381): it has the drivers' plugins prepare the
// ResourceClaims of pods, and keeps the prepared devices. It has one Manager a process: connections to plugins and prepared
// claims outlive every actor.
//
// How to read the folder: needs.go finds the claims of a pod and checks them. table.go has the claims and every decision about
// them. health.go has the health of devices. These three are pure. manager.go reads claims, calls drivers, and writes the
// checkpoint. drivers.go has the registered plugins. slices.go deletes the ResourceSlices of drivers that are gone. answers.go
// serves containers, statuses and the pod resources API. Package checkpoint has the format of the kubelet's file, so that a
// kubelet and this agent can replace each other.
//
// The rules are the kubelet's. The claims of a pod are prepared before its sandbox, and again before a later sandbox if this
// process has not prepared them. A claim must be allocated and reserved for the pod. A reference of the pod to each claim is on
// disk before a driver is called. A claim that pods share is prepared once, and unprepared after the last of them. Calls are
// repeated until they succeed; drivers expect that. Unlike in the kubelet, two pods of one claim never have it prepared or
// unprepared at the same time, and a driver that has prepared a claim is not called again because another one failed. Health is
// not kept on disk: drivers send it with each connection.
package dra
