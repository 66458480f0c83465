package translate

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// NodeFacts holds the machine's and the configuration's inputs to the translation. It is read once and then only copied.
type NodeFacts struct {
	// From the configuration (KubeletConfiguration names in brackets).
	PodLogsDir           string        // [podLogsDir]
	ClusterDomain        string        // [clusterDomain]
	CPUCFSQuota          bool          // [cpuCFSQuota]
	CPUCFSQuotaPeriod    time.Duration // [cpuCFSQuotaPeriod], 1 ms to 1 s
	LimitedSwap          bool          // [memorySwap.swapBehavior] is LimitedSwap
	SingleProcessOOMKill bool          // [singleProcessOOMKill]; unset means true on cgroup v1, false on v2
	MemoryQoS            bool          // the feature gate MemoryQoS, with cgroup v2
	ProtectMemory        bool          // [memoryReservationPolicy] is TieredReservation
	ThrottlingFactor     float64       // [memoryThrottlingFactor], more than 0 and at most 1
	SeccompDefault       bool          // [seccompDefault]
	SeccompProfileRoot   string        // <root dir>/seccomp
	// Pin returns the CPUs and NUMA nodes that a container, by its pod's UID and its name, runs on; nil: all. It does not block.
	Pin func(uid, container string) Pin

	// From the machine.
	MemoryCapacity int64 // bytes
	PodMemory      int64 // bytes: the capacity minus reservations
	SwapCapacity   int64 // bytes
	CgroupV2       bool  // only the unified hierarchy
	SwapController bool  // cgroups can bound swap
	HugePageSizes  []string
	// ThrottlePaths are files under /sys to mask besides the fixed ones; see
	// HostPaths.
	ThrottlePaths []string
}

// Pin is the CPUs and NUMA nodes that a container runs on. The zero value is all.
type Pin struct {
	CPUs string // as "0-3,7"; empty: all
	Mems string // the NUMA nodes of its memory, as "0,2"; empty: all
	// Unlimited: they are the container's own, and its CPU time is not limited besides.
	Unlimited bool
}

func (n NodeFacts) pin(pod *v1.Pod, container string) Pin {
	if n.Pin == nil {
		return Pin{}
	}
	return n.Pin(string(pod.UID), container)
}

// UnlimitedCPU reports whether the CPU time of a pod as a whole is not limited: a container has CPUs of its own.
func (n NodeFacts) UnlimitedCPU(pod *v1.Pod) bool {
	for c := range containersOf(&pod.Spec) {
		if n.pin(pod, c.Name).Unlimited {
			return true
		}
	}
	return false
}

// HostPaths reads inputs of the translation from sysfs ("/sys"): the sizes of huge pages in the hugetlb cgroup's spelling
// ("2MB"), and each processor's thermal_throttle folder, whose counters reveal the load of other pods (moby and the kubelet mask
// them).
func HostPaths(sysfs string) (hugePageSizes, throttlePaths []string, err error) {
	pools, err := HugePagePools(sysfs)
	if err != nil {
		return nil, nil, err
	}
	for _, size := range slices.Sorted(maps.Keys(pools)) {
		hugePageSizes = append(hugePageSizes, HugePageUnit(size))
	}
	const under = "devices/system/cpu"
	found, err := filepath.Glob(filepath.Join(sysfs, under, "cpu[0-9]*", "thermal_throttle"))
	if err != nil {
		return nil, nil, err
	}
	for _, path := range found {
		cpu := filepath.Base(filepath.Dir(path))
		// The container's path is below /sys, whatever the folder read here.
		throttlePaths = append(throttlePaths, filepath.Join("/sys", under, cpu, "thermal_throttle"))
	}
	return hugePageSizes, throttlePaths, nil
}

// HugePagePools returns the folders of the machine's pools of huge pages, by page size in bytes.
func HugePagePools(sysfs string) (map[int64]string, error) {
	folders, err := filepath.Glob(filepath.Join(sysfs, "kernel/mm/hugepages/hugepages-*"))
	pools := map[int64]string{}
	for _, folder := range folders {
		text := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(folder), "hugepages-"), "kB")
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n <= 0 || n > math.MaxInt64>>10 {
			return nil, fmt.Errorf("sizes of huge pages: %s is none", folder)
		}
		pools[n<<10] = folder
	}
	return pools, err
}
