package admission

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	nodesysctl "k8s.io/component-helpers/node/util/sysctl"
)

// Sysctls are kernel parameters that pods may set, each a name or, ending in *, the beginning of some (allowedUnsafeSysctls).
// Both ways of writing a name are taken (sysctl.d(5)).
type Sysctls []string

// safe are those that a pod has of its own and that no other pod notices (Kubernetes documentation, "Using sysctls"). Kernels
// before 4.15, which do not keep some of them apart, run no containers that we know of.
var safe = Sysctls{
	"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
	"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time",
	"net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem",
	"net.ipv4.tcp_wmem",
}

func (s Sysctls) has(name string) bool {
	return slices.ContainsFunc(s, func(allowed string) bool {
		start, pattern := strings.CutSuffix(allowed, "*")
		start = nodesysctl.NormalizeName(start)
		return name == start || pattern && strings.HasPrefix(name, start)
	})
}

// sysctls checks the pod's sysctls: each must be allowed, and must not be in a namespace shared with the host.
func sysctls(node *Node, pod *v1.Pod) Refusal {
	if pod.Spec.SecurityContext == nil {
		return Refusal{}
	}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		name := nodesysctl.NormalizeName(s.Name)
		why := ""
		switch space := namespaceOf(name); {
		case !safe.has(name) && !node.Sysctls.has(name):
			why = fmt.Sprintf("%q is not safe, and allowedUnsafeSysctls does not name it", name)
		case space == "Net" && pod.Spec.HostNetwork, space == "IPC" && pod.Spec.HostIPC:
			why = fmt.Sprintf("%q would change the host, whose %s namespace the pod has", name, space)
		}
		if why != "" {
			return Refusal{Reason: ReasonSysctlForbidden, Message: "forbidden sysctl: " + why}
		}
	}
	return Refusal{}
}

// namespaceOf is the kind of namespace that has its own copy of a kernel parameter; empty where it is another. Beyond those that
// component-helpers names it has all that a pattern of them can allow, such as kernel.shm_next_id.
func namespaceOf(name string) string {
	switch {
	case strings.HasPrefix(name, "net."):
		return "Net"
	case strings.HasPrefix(name, "kernel.shm"), strings.HasPrefix(name, "kernel.msg"), name == "kernel.sem",
		strings.HasPrefix(name, "fs.mqueue."):
		return "IPC"
	}
	return ""
}
