// Package cpus decides which CPUs of the node each container has to itself: the kubelet's static CPU manager policy.
//
// topology.go describes the node's CPUs. take.go picks CPUs from the free ones. policy.go has the policy with its options, and
// the assignments of a node. All of these are pure. manager.go has the one Manager of a process, which outlives every actor and
// keeps the assignments in the kubelet's file cpu_manager_state. Package checkpoint has the format of that file.
//
// An assignment is on disk before its pod is admitted, and so before a container starts with it. It ends when nothing of the pod
// runs. A release may reach the disk later: a restarted agent releases CPUs that no pod holds.
//
// The rules are the kubelet's. A container of a Guaranteed pod with a whole number of requested CPUs gets that many for itself,
// at the pod's admission, container by container, init containers first. Later containers may reuse the CPUs of an init
// container, but not the CPUs of a sidecar. All others run on the shared pool: the CPUs that no container has. Reserved CPUs are
// never assigned; they belong to the shared pool, except with strict-cpu-reservation (KEP-3570, KEP-2625, KEP-2902, KEP-4176,
// KEP-4540, KEP-4800).
package cpus
