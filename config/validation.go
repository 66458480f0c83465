package config

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	kubeletapis "k8s.io/kubelet/pkg/apis"
	"k8s.io/utils/cpuset"
)

// MaxSocketPath is the longest path that fits into sockaddr_un, unix(7), without its closing NUL.
const MaxSocketPath = 107

// validate reports every invalid value, in the order of the fields. Beyond the kubelet's validation it checks values that the
// kubelet rejects later in its start: addresses, quantities, policies, TLS names.
//
// Properties of the machine are checked by CheckCgroups and CheckCPUs. runOnce is accepted, although the kubelet now rejects
// it.
func (n *Node) validate() error {
	var p problems
	n.validateOwn(&p)
	validateServer(&p, n)
	validateAPI(&p, n)
	validateSources(&p, n)
	validateImages(&p, n)
	validateContainers(&p, n)
	validateResources(&p, n)
	validateReservations(&p, n)
	validateEviction(&p, n)
	validateShutdown(&p, n)
	validateLogging(&p, n)
	return p.err()
}

// CheckCgroups reports whether the agent may run on a host with cgroups of this kind. unified means version 2.
func (n *Node) CheckCgroups(unified bool) error {
	if unified {
		return nil
	}
	var p problems
	if orZero(n.Kubelet.FailCgroupV1) {
		p.add("failCgroupV1", true, "this host has cgroup v1, which Kubernetes has deprecated; set the field to "+
			"false to run here anyway")
	}
	single := n.Kubelet.SingleProcessOOMKill
	p.check(single == nil || *single, "singleProcessOOMKill", false,
		"cgroup v1, which this host has, cannot kill a container as a group")
	return p.err()
}

// CheckCPUs reports whether the host has all CPUs that are reserved one by one, as the kubelet does. online are its CPUs by
// number.
func (n *Node) CheckCPUs(online cpuset.CPUSet) error {
	var p problems
	cpus, err := cpuset.Parse(n.Kubelet.ReservedSystemCPUs) // syntax errors were reported before
	p.check(err != nil || cpus.IsSubsetOf(online), "reservedSystemCPUs", n.Kubelet.ReservedSystemCPUs,
		"this host has the CPUs %s only", online)
	return p.err()
}

// CheckSwap reports whether the agent may run on a host with these areas of swap in use.
func (n *Node) CheckSwap(areas []string) error {
	var p problems
	fail := n.Kubelet.FailSwapOn
	p.check(len(areas) == 0 || fail != nil && !*fail, "failSwapOn", true, "this host swaps (%s); end that with swapoff, or set "+
		"it to false to run here all the same", strings.Join(areas, ", "))
	return p.err()
}

// CheckSysctls returns an error if the agent would have to change these kernel settings and may not.
func (n *Node) CheckSysctls(differ []string) error {
	var p problems
	p.check(len(differ) == 0 || !n.Kubelet.ProtectKernelDefaults, "protectKernelDefaults", true, "the kernel has other "+
		"settings: %s; change them, or set it to false to have the agent do so", strings.Join(differ, ", "))
	return p.err()
}

// validateOwn looks at the flags without a configuration field.
func (n *Node) validateOwn(p *problems) {
	p.check(n.RootDir != "", "--root-dir", n.RootDir, "a folder is needed")
	p.check(n.CertDir != "", "--cert-dir", n.CertDir, "a folder is needed")
	p.check(n.AdminSocket != "", "--admin-socket", n.AdminSocket, "a path is needed")
	p.check(len(n.AdminSocket) <= MaxSocketPath, "--admin-socket", n.AdminSocket,
		"longer than %d bytes, the limit of a unix socket's path", MaxSocketPath)
	p.check(!n.ExitOnLockContention || n.LockFile != "", "--exit-on-lock-contention", true, "needs --lock-file")
	p.check(n.HousekeepingInterval > 0, "--housekeeping-interval", n.HousekeepingInterval, "must be positive")
	p.check(n.CAdvisorPort >= 0 && n.CAdvisorPort <= 65535, "--cadvisor-port", n.CAdvisorPort, "must be between 0 and 65535")
	if n.ObservatoryAddress != "" {
		_, port, err := net.SplitHostPort(n.ObservatoryAddress)
		number, portErr := strconv.ParseUint(port, 10, 16)
		p.check(err == nil && portErr == nil && strconv.FormatUint(number, 10) == port, "--observatory-address",
			n.ObservatoryAddress, "write host:port, as in 127.0.0.1:4195; the port is a number up to 65535, 0 for any free one")
	}
	for _, key := range slices.Sorted(maps.Keys(n.NodeLabels)) {
		label := key + "=" + n.NodeLabels[key]
		for _, wrong := range validation.IsQualifiedName(key) {
			p.add("--node-labels", label, "key: %s", wrong)
		}
		for _, wrong := range validation.IsValidLabelValue(n.NodeLabels[key]) {
			p.add("--node-labels", label, "value: %s", wrong)
		}
		// NodeRestriction: a node may not give itself just any label of Kubernetes (KEP-279).
		p.check(!kubernetesLabel(key) || kubeletapis.IsKubeletLabel(key), "--node-labels", label,
			"labels of kubernetes.io and k8s.io must be one of %s, or start with one of %s",
			strings.Join(kubeletapis.KubeletLabels(), ", "), strings.Join(kubeletapis.KubeletLabelNamespaces(), ", "))
	}
}

func kubernetesLabel(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	return found && slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"}, func(own string) bool {
		return domain == own || strings.HasSuffix(domain, "."+own)
	})
}

// The checks below are the recurring ones. A nil pointer is no value and passes.

func atLeast[T int32 | int64 | time.Duration](p *problems, path string, value, least T) {
	p.check(value >= least, path, value, "must be at least %v", least)
}

func within[T int32 | int64 | time.Duration](p *problems, path string, value, least, most T) {
	p.check(value >= least && value <= most, path, value, "must be between %v and %v", least, most)
}

func orZero[T any](value *T) T {
	if value == nil {
		var zero T
		return zero
	}
	return *value
}

func oneOf[T ~string](p *problems, path string, value T, allowed ...T) {
	said := make([]string, len(allowed))
	for i, a := range allowed {
		said[i] = fmt.Sprintf("%q", string(a))
	}
	p.check(slices.Contains(allowed, value), path, value, "must be one of %s", strings.Join(said, ", "))
}

// needsGate rejects a value whose feature gate is off.
func needsGate(p *problems, n *Node, path string, value any, gate string) {
	p.check(n.FeatureEnabled(gate), path, value, "needs the feature gate %s", gate)
}
