package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Families about exclusive CPUs. The two about alignment exist from the start only under the static policy, as in the kubelet.
var (
	PinningRequests = counter("kubelet_cpu_manager_pinning_requests_total", "Container allocations that required exclusive CPUs.")
	PinningErrors   = counter("kubelet_cpu_manager_pinning_errors_total", "Container allocations of exclusive CPUs that failed.")
	sharedPool      = gauge("kubelet_cpu_manager_shared_pool_size_millicores",
		"Size of the shared CPU pool, excluding reserved and exclusively allocated CPUs, in millicores.")
	exclusiveCPUs = gauge("kubelet_cpu_manager_exclusive_cpu_allocation_count", "CPUs exclusively allocated to containers.")
	cpusPerNode   = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_cpu_manager_allocation_per_numa",
		Help: "CPUs exclusively allocated to containers, by NUMA node."}, []string{"numa_node"})
	_ = register(cpusPerNode, 1, nil)

	Aligned = counter("kubelet_container_aligned_compute_resources_count",
		"Containers allocated resources that are aligned to a hardware boundary.", "scope", "boundary")
	Unaligned = counter("kubelet_container_aligned_compute_resources_failure_count",
		"Containers whose resources could not be aligned to a hardware boundary.", "scope", "boundary")
)

// Labels of Aligned and Unaligned.
const (
	ByContainer = "container"
	ByPod       = "pod"
	NUMANode    = "numa_node"
	PhysicalCPU = "physical_cpu"
	UncoreCache = "uncore_cache"
)

// CPUsAssigned records the sizes of the shared pool and of the exclusive CPUs, and these by NUMA node.
func CPUsAssigned(shared, exclusive int, perNode map[int]int) {
	sharedPool.Set(float64(shared * 1000))
	exclusiveCPUs.Set(float64(exclusive))
	for node, n := range perNode {
		cpusPerNode.WithLabelValues(strconv.Itoa(node)).Set(float64(n))
	}
	for _, boundary := range []string{PhysicalCPU, UncoreCache} {
		Aligned.WithLabelValues(ByContainer, boundary)
	}
	Unaligned.WithLabelValues(ByContainer, PhysicalCPU)
}
