package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	library "github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/pod"
	"github.com/playlet-dev/playlet/actors/registration"
	"github.com/playlet-dev/playlet/actors/resources"
	"github.com/playlet-dev/playlet/actors/shutdown"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/podlog"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// machine is the agent's access to this host, apart from the runtime. Tests replace it.
type machine struct {
	reader    *registration.Reader
	addresses *nodeAddresses
	groups    resources.Groups   // its cgroups
	kernelLog string             // where its kernel's log is read; empty: nowhere
	scales    scales             // measure the signals of eviction and image collection
	inhibitor shutdown.Inhibitor // of its shutdown; nil where that waits for no pods
	shutdown  shutdown.State     // why that is so although it should wait
}

// Paths at which the kernel exposes processes and cgroups.
const (
	procDir   = "/proc"
	cgroupDir = "/sys/fs/cgroup"
)

// newMachine reads this host once, and changes nothing of it. It lacks the scales, which the runtime has a part in.
func newMachine(node *config.Node, c *cluster, log *slog.Logger) *machine {
	m := &machine{
		reader: registration.HostPlaces(node.RootDir).Reader(), addresses: newAddresses(node, c, log), groups: resources.Host{},
		kernelLog: "/dev/kmsg",
	}
	if groups := shutdownGroups(node); len(groups) > 0 {
		m.inhibitor = shutdown.NewLogind(groups, "/etc/systemd/logind.conf.d")
	}
	if _, err := m.reader.Read(context.Background()); err != nil {
		log.Warn("some properties of the machine cannot be read", "error", err)
	}
	return m
}

// shutdownGroups are the pods, by priority, with the time that they have when the machine shuts down; none: it waits for none.
func shutdownGroups(node *config.Node) []shutdown.Group {
	k := node.Kubelet
	return shutdown.Groups(k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration,
		k.ShutdownGracePeriodByPodPriority)
}

// close lets the machine shut down.
func (m *machine) close() error {
	if m.inhibitor == nil {
		return nil
	}
	return m.inhibitor.Close()
}

// checkMachine refuses a machine that the configuration does not allow: as the kubelet, the agent does not start on it then.
func checkMachine(node *config.Node, unified bool, procfs, sysfs string) error {
	if err := node.CheckCgroups(unified); err != nil {
		return err
	}
	if err := node.CheckCPUs(resources.OnlineCPUs(sysfs)); err != nil {
		return err
	}
	areas, err := resources.Swaps(procfs)
	if err != nil {
		return fmt.Errorf("whether this host swaps: %w", err)
	}
	if err := node.CheckSwap(areas); err != nil {
		return err
	}
	differ, err := resources.DifferingSysctls(procfs)
	if node.Kubelet.ProtectKernelDefaults && err != nil {
		return fmt.Errorf("protectKernelDefaults: %w", err)
	}
	var names []string
	for _, s := range differ {
		names = append(names, fmt.Sprintf("%s is %d and not %d", s.Name, s.Is, s.Want))
	}
	return node.CheckSysctls(names)
}

// checkReserved refuses a configuration that keeps more from pods than the machine has.
func checkReserved(node *config.Node, machine registration.Machine) error {
	s := sizes(node)
	capacity := s.Capacity(machine)
	var errs []error
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage} {
		have, known := capacity[name]
		if reserved := s.Reserved(name, have); known && !have.IsZero() && reserved.Cmp(have) > 0 {
			errs = append(errs, fmt.Errorf("systemReserved, kubeReserved and evictionHard keep %s of %s from pods, and this "+
				"host has %s", &reserved, name, &have))
		}
	}
	return errors.Join(errs...)
}

// prepareMachine applies the kubelet's settings to the machine and to this process. It logs settings that the host rejects; they
// do not keep pods from running.
func prepareMachine(node *config.Node, procfs string, log *slog.Logger) {
	differ, err := resources.DifferingSysctls(procfs)
	errs := []error{err}
	for _, s := range differ {
		if err := s.Set(procfs); err != nil {
			errs = append(errs, err)
			continue
		}
		log.Info("changed a kernel setting because protectKernelDefaults is false", "name", s.Name, "was", s.Is,
			"value", s.Want)
	}
	if err := errors.Join(errs...); err != nil {
		log.Warn("kernel settings differ from those that Kubernetes requires, and cannot be changed", "error", err)
	}
	if err := setOOMScore(procfs, int(ptr.Deref(node.Kubelet.OOMScoreAdj, 0))); err != nil {
		log.Warn("oomScoreAdj cannot be set; if memory runs out, the kernel may kill the agent before pods", "error", err)
	}
	if err := setOpenFiles(node.Kubelet.MaxOpenFiles); err != nil {
		log.Warn("maxOpenFiles cannot be set; the current limit stays", "error", err)
	}
}

// setOpenFiles sets the limit of open files of this process and of those that it starts. 0 leaves it as it is: with such a limit,
// no file could be opened.
func setOpenFiles(most int64) error {
	if most == 0 {
		return nil
	}
	want, is := unix.Rlimit{Cur: uint64(most), Max: uint64(most)}, unix.Rlimit{} //nolint:gosec // config rejects negative numbers
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &is); err != nil || is == want {
		return err
	}
	err := unix.Setrlimit(unix.RLIMIT_NOFILE, &want)
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%d is above the hard limit of the process (%d) and needs CAP_SYS_RESOURCE, or above fs.nr_open: %w",
			most, is.Max, err)
	}
	return err
}

// setOOMScore sets the oom_score_adj of this process and of those that it starts.
func setOOMScore(procfs string, want int) error {
	file := filepath.Join(procfs, "self/oom_score_adj")
	text, err := os.ReadFile(file)
	if err != nil || strings.TrimSpace(string(text)) == strconv.Itoa(want) {
		return err
	}
	return os.WriteFile(file, []byte(strconv.Itoa(want)), 0)
}

// sizes returns the capacity settings: the share of the machine that pods can use.
func sizes(node *config.Node) registration.Sizes {
	k := node.Kubelet
	return registration.Sizes{
		System: k.SystemReserved, Kube: k.KubeReserved, EvictionHard: k.EvictionHard,
		IgnoreEviction: node.AllocatableIgnoresEviction,
		MaxPods:        k.MaxPods, PodsPerCore: k.PodsPerCore, LocalStorage: ptr.Deref(k.LocalStorageCapacityIsolation, true),
	}
}

// allocatable returns the resources that pods can use: the capacity of the machine, less the configured reservations, less the
// hard eviction thresholds.
func allocatable(node *config.Node, machine registration.Machine) v1.ResourceList {
	s := sizes(node)
	return s.Allocatable(s.Capacity(machine))
}

// readHost reads, once, the facts of the machine and the configuration that the translation of pods needs.
func readHost(node *config.Node, log *slog.Logger) (facts translate.NodeFacts, dns translate.DNSFacts, err error) {
	k := node.Kubelet
	memory, swap, err := memoryCapacity()
	if err != nil {
		return facts, dns, err
	}
	pages, throttle, err := translate.HostPaths("/sys")
	if err != nil {
		return facts, dns, err
	}
	unified, err := unifiedCgroups()
	if err != nil {
		return facts, dns, err
	}
	facts = translate.NodeFacts{
		PodLogsDir: node.Kubelet.PodLogsDir, ClusterDomain: k.ClusterDomain, CPUCFSQuota: ptr.Deref(k.CPUCFSQuota, true),
		SeccompDefault: ptr.Deref(k.SeccompDefault, false), SeccompProfileRoot: filepath.Join(node.RootDir, "seccomp"),
		LimitedSwap:          k.MemorySwap.SwapBehavior == "LimitedSwap",
		SingleProcessOOMKill: ptr.Deref(k.SingleProcessOOMKill, !unified),
		MemoryCapacity:       memory,
		SwapCapacity:         swap,
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
	dns = translate.DNSFacts{ClusterDNS: k.ClusterDNS, ClusterDomain: k.ClusterDomain}
	resolv := ptr.Deref(k.ResolverConfig, "")
	dns.NoHost = resolv == ""
	if _, err = translate.ReadResolvConf(resolv); err != nil {
		log.Warn("the resolver configuration cannot be read; pods that need it wait, or get no name servers where it does not "+
			"exist", "file", resolv, "error", err)
	}
	return facts, dns, nil
}

// memoryCapacity returns the machine's memory and its swap in bytes.
func memoryCapacity() (memory, swap int64, err error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, 0, fmt.Errorf("reading the machine's memory: %w", err)
	}
	unit := int64(info.Unit)
	return int64(info.Totalram) * unit, int64(info.Totalswap) * unit, nil //nolint:gosec // a machine's memory
}

// newHost is the machine as the actors of pods and containers know it.
func newHost(node *config.Node, facts translate.NodeFacts, dns translate.DNSFacts, r *containerRuntime, m *machine,
	place placement, c *cluster, log *slog.Logger) *pod.Host {
	k := node.Kubelet
	facts.Pin = place.pin
	return &pod.Host{
		CRI: r.client, Ops: cri.NewOperations(), Started: r.started, Node: facts, DNS: dns,
		RootDir: node.RootDir, NodeName: node.NodeName,
		RequestTimeout: k.RuntimeRequestTimeout.Duration, ResolvConf: ptr.Deref(k.ResolverConfig, ""),
		Allocatable: allocatable(node, m.reader.Last()), Abilities: abilities(r.state, k.CgroupDriver),
		Absence: func() (time.Time, time.Duration) { s := r.state.Load(); return s.Answered, s.Away },
		Devices: resources.NewDevices(node.RootDir, place.alignment.Nodes(),
			log.With(podlog.ActorKey, messages.Resources.String())),
		Claims:     c.claims(node, log.With(podlog.ActorKey, messages.Resources.String())),
		CPUs:       place.cpus,
		Memory:     place.memory,
		Alignment:  place.alignment,
		Standalone: node.Standalone(),
		Users: pod.NewUserRanges(pod.UserOptions{
			RootDir: node.RootDir, Sandboxes: r.client, Log: log, IDsPerPod: node.IDsPerPod(),
			Bounds: func(ctx context.Context) (pod.UserRange, error) { return pod.UserBounds(ctx, node.IDsPerPod()) },
		}),
		Objects: newObjects(node), Events: true, IPs: m.addresses.hostIPs, IPsUnsettled: m.addresses.unsettled,
	}
}

// swapController reports whether cgroups can limit swap, by a file that exists only then. In version 2 the root cgroup lacks
// that file, so the agent's own cgroup is checked.
func swapController(procfs, groups string, unified bool) bool {
	file := "memory/memory.memsw.limit_in_bytes"
	if unified {
		paths, err := library.ParseCgroupFile(filepath.Join(procfs, "self/cgroup"))
		own, found := paths[""]
		if err != nil || !found {
			return false
		}
		file = filepath.Join(own, "memory.swap.max")
	}
	_, err := os.Stat(filepath.Join(groups, file))
	return err == nil
}

// unifiedCgroups reports whether the host has cgroups of version 2 only.
func unifiedCgroups() (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &fs); err != nil {
		return false, fmt.Errorf("looking at /sys/fs/cgroup: %w", err)
	}
	return fs.Type == unix.CGROUP2_SUPER_MAGIC, nil
}
