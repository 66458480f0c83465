package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"
)

func validateResources(p *problems, n *Node) {
	c := n.Kubelet
	atLeast(p, "maxPods", c.MaxPods, 0)
	atLeast(p, "podsPerCore", c.PodsPerCore, 0)
	atLeast(p, "maxOpenFiles", c.MaxOpenFiles, 0)
	within(p, "oomScoreAdj", orZero(c.OOMScoreAdj), -1000, 1000)
	oneOf(p, "cgroupDriver", c.CgroupDriver, "cgroupfs", "systemd")
	p.check(c.SystemCgroups != "/", "systemCgroups", c.SystemCgroups, "is the root, in which everything is already")
	p.check(c.SystemCgroups == "" || c.CgroupRoot != "", "systemCgroups", c.SystemCgroups, "needs cgroupRoot")
	period := orZero(c.CPUCFSQuotaPeriod).Duration
	within(p, "cpuCFSQuotaPeriod", period, time.Millisecond, time.Second)
	if period != 100*time.Millisecond {
		needsGate(p, n, "cpuCFSQuotaPeriod", period, "CustomCPUCFSQuotaPeriod")
	}
	validateMemory(p, n)
}

func validateMemory(p *problems, n *Node) {
	c := n.Kubelet
	if factor := c.MemoryThrottlingFactor; factor != nil {
		p.check(*factor > 0 && *factor <= 1, "memoryThrottlingFactor", *factor, "must be more than 0 and at most 1")
	}
	oneOf(p, "memoryReservationPolicy", c.MemoryReservationPolicy,
		kubeletconfig.NoneMemoryReservationPolicy, kubeletconfig.TieredReservationMemoryReservationPolicy)
	if c.MemoryReservationPolicy == kubeletconfig.TieredReservationMemoryReservationPolicy {
		needsGate(p, n, "memoryReservationPolicy", c.MemoryReservationPolicy, "MemoryQoS")
	}
	oneOf(p, "memorySwap.swapBehavior", c.MemorySwap.SwapBehavior, "", "NoSwap", "LimitedSwap")
	if c.MemorySwap.SwapBehavior != "" {
		needsGate(p, n, "memorySwap.swapBehavior", c.MemorySwap.SwapBehavior, "NodeSwap")
	}
}

// validateReservations checks the resources reserved for the system, and their enforcement.
func validateReservations(p *problems, n *Node) {
	c := n.Kubelet
	validReserved(p, "systemReserved", c.SystemReserved)
	validReserved(p, "kubeReserved", c.KubeReserved)
	for _, name := range slices.Sorted(maps.Keys(c.QOSReserved)) {
		value := c.QOSReserved[name]
		path := fmt.Sprintf("qosReserved[%s]", name)
		digits, isPercentage := strings.CutSuffix(value, "%")
		percentage, err := strconv.Atoi(digits)
		p.check(name == string(corev1.ResourceMemory), path, value, "only memory can be reserved")
		p.check(isPercentage && err == nil && percentage >= 0 && percentage <= 100, path, value,
			"must be a percentage such as 50%%")
	}
	if cpus := c.ReservedSystemCPUs; cpus != "" {
		_, err := cpuset.Parse(cpus)
		p.check(err == nil, "reservedSystemCPUs", cpus, "must be a list of CPUs such as 0-3,7")
		p.check(c.SystemReservedCgroup == "" && c.KubeReservedCgroup == "", "reservedSystemCPUs", cpus,
			"excludes systemReservedCgroup and kubeReservedCgroup")
	}
	oneOf(p, "cpuManagerPolicy", c.CPUManagerPolicy, "none", "static")
	p.check(c.CPUManagerReconcilePeriod.Duration > 0, "cpuManagerReconcilePeriod", c.CPUManagerReconcilePeriod.Duration,
		"must be more than 0")
	validatePlacement(p, c)
	validateEnforcement(p, c)
}

// validatePlacement checks the policies of memory and NUMA nodes, apart from the machine.
func validatePlacement(p *problems, c *KubeletConfiguration) {
	oneOf(p, "memoryManagerPolicy", c.MemoryManagerPolicy, kubeletconfig.NoneMemoryManagerPolicy,
		kubeletconfig.StaticMemoryManagerPolicy)
	oneOf(p, "topologyManagerPolicy", c.TopologyManagerPolicy, kubeletconfig.NoneTopologyManagerPolicy,
		kubeletconfig.BestEffortTopologyManagerPolicy, kubeletconfig.RestrictedTopologyManagerPolicy,
		kubeletconfig.SingleNumaNodeTopologyManagerPolicy)
	oneOf(p, "topologyManagerScope", c.TopologyManagerScope, kubeletconfig.ContainerTopologyManagerScope,
		kubeletconfig.PodTopologyManagerScope)
	type kind struct {
		node int32
		name corev1.ResourceName
	}
	seen := map[kind]bool{}
	for i, r := range c.ReservedMemory {
		for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
			q, path := r.Limits[name], fmt.Sprintf("reservedMemory[%d].limits[%s]", i, name)
			p.check(name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix), path, &q,
				"only memory and hugepages-<size> can be reserved")
			p.check(q.Sign() > 0, path, &q, "must be more than 0")
			p.check(!seen[kind{r.NumaNode, name}], path, &q, "is a second reservation of NUMA node %d", r.NumaNode)
			seen[kind{r.NumaNode, name}] = true
		}
	}
}

func validReserved(p *problems, field string, reserved map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(reserved)) {
		path, value := fmt.Sprintf("%s[%s]", field, name), reserved[name]
		switch corev1.ResourceName(name) {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, "pid":
		default:
			p.add(path, value, "only cpu, memory, ephemeral-storage and pid can be reserved")
			continue
		}
		q, err := resource.ParseQuantity(value)
		p.check(err == nil && q.Sign() >= 0, path, value, "must be a quantity, not negative")
	}
}

// validateEnforcement checks enforceNodeAllocatable: "none" stands alone, each reservation needs its cgroup, is named
// once, and either in full or for compressible resources only.
func validateEnforcement(p *problems, c *KubeletConfiguration) {
	const path = "enforceNodeAllocatable"
	const compressible = "-compressible"
	seen := map[string]bool{}
	for _, level := range c.EnforceNodeAllocatable {
		p.check(!seen[level], path, level, "is named twice")
		seen[level] = true
		switch level {
		case "none":
			p.check(len(c.EnforceNodeAllocatable) == 1, path, level, "excludes everything else")
			continue
		case "system-reserved", "system-reserved" + compressible:
			p.check(c.SystemReservedCgroup != "" && len(c.SystemReserved) > 0, path, level,
				"needs systemReservedCgroup and systemReserved")
		case "kube-reserved", "kube-reserved" + compressible:
			p.check(c.KubeReservedCgroup != "" && len(c.KubeReserved) > 0, path, level,
				"needs kubeReservedCgroup and kubeReserved")
		}
		oneOf(p, path, level, "none", "pods", "system-reserved", "system-reserved"+compressible, "kube-reserved",
			"kube-reserved"+compressible)
		p.check(orZero(c.CgroupsPerQOS), path, level, "needs cgroupsPerQOS")
		p.check(!seen[level+compressible] && (!strings.HasSuffix(level, compressible) ||
			!seen[strings.TrimSuffix(level, compressible)]),
			path, level, "is named in full and as compressible")
	}
}
