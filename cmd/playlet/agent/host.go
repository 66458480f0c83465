package agent

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri/translate"
)

// readHost reads once what the translation of pods needs to know of the machine and of the configuration.
func readHost(node *config.Node, log *slog.Logger) (translate.NodeFacts, translate.DNSFacts, error) {
	k := node.Kubelet
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return translate.NodeFacts{}, translate.DNSFacts{}, fmt.Errorf("reading the machine's memory: %w", err)
	}
	pages, throttle, err := translate.HostPaths("/sys")
	if err != nil {
		return translate.NodeFacts{}, translate.DNSFacts{}, err
	}
	unified, err := unifiedCgroups()
	if err != nil {
		return translate.NodeFacts{}, translate.DNSFacts{}, err
	}
	facts := translate.NodeFacts{
		PodLogsDir: node.Kubelet.PodLogsDir, ClusterDomain: k.ClusterDomain, CPUCFSQuota: ptr.Deref(k.CPUCFSQuota, true),
		SeccompDefault: ptr.Deref(k.SeccompDefault, false), SeccompProfileRoot: filepath.Join(node.RootDir, "seccomp"),
		LimitedSwap:          k.MemorySwap.SwapBehavior == "LimitedSwap",
		SingleProcessOOMKill: ptr.Deref(k.SingleProcessOOMKill, !unified),
		MemoryCapacity:       int64(info.Totalram) * int64(info.Unit),  //nolint:gosec // a machine's memory
		SwapCapacity:         int64(info.Totalswap) * int64(info.Unit), //nolint:gosec // a machine's memory
		CgroupV2:             unified, SwapController: swapController("/proc", "/sys/fs/cgroup", unified),
		HugePageSizes: pages, ThrottlePaths: throttle,
		MemoryQoS:        unified && node.FeatureEnabled("MemoryQoS"),
		ProtectMemory:    k.MemoryReservationPolicy == kubeletconfig.TieredReservationMemoryReservationPolicy,
		ThrottlingFactor: ptr.Deref(k.MemoryThrottlingFactor, 0.9),
	}
	less := reserved(k.SystemReserved, k.KubeReserved)[v1.ResourceMemory]
	facts.PodMemory = facts.MemoryCapacity - less.Value()
	if k.CPUCFSQuotaPeriod != nil {
		facts.CPUCFSQuotaPeriod = k.CPUCFSQuotaPeriod.Duration
	}
	dns := translate.DNSFacts{ClusterDNS: k.ClusterDNS, ClusterDomain: k.ClusterDomain}
	resolv := ptr.Deref(k.ResolverConfig, "")
	dns.NoHost = resolv == ""
	if _, err = translate.ReadResolvConf(resolv); err != nil {
		log.Warn("the resolver configuration cannot be read; pods that need it wait, or get no name servers where it does not "+
			"exist",
			"file", resolv, "error", err)
	}
	return facts, dns, nil
}

// swapController says whether cgroups can bound swap, by a file that is there then. With version 2 the topmost cgroup has none:
// it is looked for in the agent's own.
func swapController(procfs, groups string, unified bool) bool {
	file := "memory/memory.memsw.limit_in_bytes"
	if unified {
		text, err := os.ReadFile(filepath.Join(procfs, "self/cgroup"))
		_, own, found := strings.Cut(string(text), "0::")
		if err != nil || !found {
			return false
		}
		own, _, _ = strings.Cut(own, "\n")
		file = filepath.Join(own, "memory.swap.max")
	}
	_, err := os.Stat(filepath.Join(groups, file))
	return err == nil
}

// unifiedCgroups says whether the host has cgroups of version 2 alone.
func unifiedCgroups() (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &fs); err != nil {
		return false, fmt.Errorf("looking at /sys/fs/cgroup: %w", err)
	}
	return fs.Type == unix.CGROUP2_SUPER_MAGIC, nil
}
