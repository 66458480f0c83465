package agent

import (
	"context"
	"net"
	"path/filepath"
	"strconv"
	"time"

	library "github.com/opencontainers/cgroups"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/prober"
	"github.com/playlet-dev/playlet/actors/resources"
	admin "github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/stats"
	"github.com/playlet-dev/playlet/actors/stats/agentmetrics"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// figureOptions are what the process's one collector of figures needs.
func (a *Agent) figureOptions() stats.Options {
	return stats.Options{
		Persistent: a.persistentUsage,
		NodeName:   a.node.NodeName, Board: a.board, CRI: a.client, RootDir: a.node.RootDir,
		PodLogsDir: a.node.Kubelet.PodLogsDir,
		Kubepods:   a.kubepods,
		System:     a.systemCgroups, UsageAge: a.node.Kubelet.VolumeStatsAggPeriod.Duration,
	}
}

// persistentUsage is what the volumes of a pod's claims and of CSI drivers use.
func (a *Agent) persistentUsage(ctx context.Context, pod *v1.Pod) (map[string]stats.VolumeUsage, error) {
	if a.cluster == nil || a.cluster.storage == nil {
		return nil, nil
	}
	all, err := a.cluster.storage.Usage(ctx, pod)
	out := map[string]stats.VolumeUsage{}
	for name, u := range all {
		out[name] = stats.VolumeUsage{Bytes: stats.VolumeAmount(u.Bytes), Inodes: stats.VolumeAmount(u.Inodes)}
	}
	return out, err
}

// adminFigures are what the admin socket tells of CPU and memory, or of all that there are figures of.
func (a *Agent) adminFigures(ctx context.Context, all bool) admin.Figures {
	summary, lacks := a.figures.Summary(ctx, !all)
	return admin.Figures{
		At: time.Now(), Summary: *summary, Missing: lacks, Agent: process(), Allocatable: allocatable(a.node, a.machine.Last()),
	}
}

// process is what this process has used.
func process() admin.Process {
	out := admin.Process{Since: began}
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) == nil {
		out.CPU = time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	if self, err := procfs.Self(); err == nil {
		stat, _ := self.Stat()                       // 0 is not known
		out.Resident = uint64(stat.ResidentMemory()) //nolint:gosec // never negative
	}
	return out
}

// began is when the process did.
var began = time.Now()

// kubepods is the path of the cgroup of all pods, as the runtime's driver of cgroups spells it; empty: they have none.
func (a *Agent) kubepods() string {
	switch {
	case !ptr.Deref(a.node.Kubelet.CgroupsPerQOS, true):
		return ""
	case abilities(a.runtime, a.node.Kubelet.CgroupDriver)().SystemdCgroups:
		return resources.PodsName(a.node.Kubelet.CgroupRoot).Systemd()
	}
	return resources.PodsName(a.node.Kubelet.CgroupRoot).Cgroupfs()
}

// probeWords are the kubelet's, for the kinds and results of probes.
var probeWords = map[string]string{
	string(messages.Liveness): "Liveness", string(messages.Readiness): "Readiness", string(messages.Startup): "Startup",
	"success": "successful", "warning": "successful", "failure": "failed", "unknown": "unknown",
}

// probed translates the runs of probes for metrics: no actor's package knows another's.
func probed(metrics *agentmetrics.Metrics) func(prober.Run) {
	return func(r prober.Run) {
		metrics.Probed(agentmetrics.Probe{
			Type: probeWords[string(r.Kind)], Result: probeWords[r.Result], UID: r.Pod.UID, Namespace: r.Pod.Namespace,
			Pod: r.Pod.Name, Container: r.Container, Took: r.Took,
		})
	}
}

// systemCgroups are the cgroups of the agent, of the runtime and of the system, as configured [kubeletCgroups, systemCgroups] or
// as the kernel tells of their processes.
func (a *Agent) systemCgroups() map[string]string {
	out := map[string]string{}
	set := func(name, configured string, pid func() int) {
		if configured == "" && pid != nil {
			configured = cgroupOf(pid())
		}
		if configured != "" {
			out[name] = configured
		}
	}
	k := a.node.Kubelet
	set(api.SystemContainerKubelet, k.KubeletCgroups, unix.Getpid)
	set(api.SystemContainerRuntime, a.node.RuntimeCgroups, func() int { return listenerOf(k.ContainerRuntimeEndpoint) })
	set(api.SystemContainerMisc, k.SystemCgroups, nil)
	return out
}

// cgroupOf is the path of a process's cgroup; empty where it cannot be told.
func cgroupOf(pid int) string {
	if pid <= 0 {
		return ""
	}
	paths, err := library.ParseCgroupFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return ""
	}
	if library.IsCgroup2UnifiedMode() {
		return paths[""]
	}
	return paths["memory"]
}

// listenerOf is the process that listens on the socket of a CRI endpoint; 0 where it cannot be told.
func listenerOf(endpoint string) (pid int) {
	path, err := cri.SocketPath(endpoint)
	if err != nil {
		return 0
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return 0
	}
	defer func() { _ = conn.Close() }() // nothing was written
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // pid stays 0
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	return pid
}
