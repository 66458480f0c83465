// Package numamemory decides from which NUMA nodes each container has its memory: the kubelet's static memory manager policy
// (KEP-1769).
//
// machine.go describes the memory of the NUMA nodes, less the part that is reserved. usage.go derives the free memory from the
// allocations, and hints.go the sets of nodes that can satisfy a request. policy.go allocates. All of these are pure. manager.go
// has the one Manager of a process, which outlives every actor and keeps the allocations in the kubelet's file
// memory_manager_state. Package checkpoint has the format of that file.
//
// The rules are the kubelet's. Each container of a Guaranteed pod gets its memory and huge pages from one set of nodes, at the
// pod's admission. A node is in one set only: it serves containers alone, or always together with the same other nodes. Later
// containers reuse the memory of init containers, but not of sidecars. Pods with resources at the level of the pod have no
// allocation. Unlike in a kubelet, the memory of an init container is kept until nothing of the pod runs, because init containers
// may run again.
//
// An allocation is a promise between pods, and the kernel knows it as the cpuset.mems of the container's cgroup.
package numamemory
