// Package topology decides which NUMA nodes the resources of a pod come from: the kubelet's topology manager (KEP-693).
//
// Providers of CPUs, memory and devices state hints: sets of NUMA nodes that can satisfy a request. merge.go combines the hints
// of all requests into one, and policy.go decides whether the pod is admitted with it. Everything is a pure function. With the
// scope container, the caller collects hints for each container; with the scope pod, once for the whole pod.
package topology
