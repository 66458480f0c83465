package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Families about memory from chosen NUMA nodes, and about the topology manager. A pod is counted if it asks for resources that
// are allocated before its admission.
var (
	MemoryPinningRequests = counter("kubelet_memory_manager_pinning_requests_total",
		"Container allocations that required memory from specific NUMA nodes.")
	MemoryPinningErrors = counter("kubelet_memory_manager_pinning_errors_total",
		"Container allocations of memory from specific NUMA nodes that failed.")
	AlignmentRequests = counter("kubelet_topology_manager_admission_requests_total",
		"Pod admissions that had to align resources to the machine's topology.")
	AlignmentErrors = counter("kubelet_topology_manager_admission_errors_total",
		"Pod admissions rejected by the topology manager policy.")
	alignmentTime = histogram("kubelet_topology_manager_admission_duration_ms",
		"Time to allocate a pod's aligned resources during admission, in milliseconds.",
		prometheus.ExponentialBuckets(0.05, 2, 15))
)

// AlignedSince observes the time of an allocation.
func AlignedSince(then time.Time) {
	alignmentTime.WithLabelValues().Observe(float64(time.Since(then).Milliseconds()))
}

// NUMAAligned makes the counters of alignment to NUMA nodes exist, as a kubelet does with a policy of the topology manager.
func NUMAAligned() {
	for _, scope := range []string{ByContainer, ByPod} {
		Aligned.WithLabelValues(scope, NUMANode)
		Unaligned.WithLabelValues(scope, NUMANode)
	}
}
