package config

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// FlagGroup is one part of the flags' help.
type FlagGroup struct {
	Title string
	Flags []FlagHelp
}

// FlagHelp is what there is to say of a flag.
type FlagHelp struct {
	Name, Shorthand string
	Value           string // what stands for its value; empty for one that may stand alone
	Usage, Default  string
	// Field is the path of its field in the --config file, empty where there is none.
	Field string
	// InForce is false for a flag that is read and checked, and that nothing looks at.
	InForce bool
}

// flagGroups puts every flag that is shown below a title.
var flagGroups = []struct{ title, names string }{
	{"Configuration", "config config-dir kubeconfig bootstrap-kubeconfig feature-gates root-dir cert-dir"},
	{"Where pods come from", `pod-manifest-path manifest-url manifest-url-header object-dir file-check-frequency
		http-check-frequency sync-frequency runonce`},
	{"The container runtime and images", `container-runtime-endpoint image-service-endpoint runtime-request-timeout
		runtime-cgroups serialize-image-pulls registry-qps registry-burst minimum-image-ttl-duration image-gc-high-threshold
		image-gc-low-threshold image-credential-provider-config image-credential-provider-bin-dir`},
	{"The node", `hostname-override node-ip node-labels register-node register-with-taints provider-id cloud-provider
		node-status-update-frequency node-status-max-images max-pods pods-per-core pod-max-pids`},
	{"Pods: their network, logs and security", `cluster-dns cluster-domain resolv-conf pod-cidr hairpin-mode
		make-iptables-util-chains container-log-max-size container-log-max-files log-links-dir seccomp-default
		allowed-unsafe-sysctls`},
	{"What is asked of the agent", `admin-socket admin-socket-group observatory-address enable-chaos
		enable-manifest-submission enable-server address port read-only-port healthz-port healthz-bind-address enable-debugging-handlers contention-profiling streaming-connection-idle-timeout`},
	{"Who may ask", `anonymous-auth authentication-token-webhook authentication-token-webhook-cache-ttl client-ca-file
		authorization-mode authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl
		tls-cert-file tls-private-key-file tls-cipher-suites tls-min-version rotate-certificates rotate-server-certificates`},
	{"What is asked of the API server", "kube-api-content-type kube-api-qps kube-api-burst event-qps event-burst"},
	{"Cgroups, reservations and placement", `cgroup-driver cgroup-root cgroups-per-qos kubelet-cgroups system-cgroups
		cpu-cfs-quota cpu-cfs-quota-period system-reserved system-reserved-cgroup kube-reserved kube-reserved-cgroup
		enforce-node-allocatable reserved-cpus reserved-memory qos-reserved cpu-manager-policy cpu-manager-policy-options
		cpu-manager-reconcile-period memory-manager-policy topology-manager-policy topology-manager-scope
		topology-manager-policy-options`},
	{"Eviction, dead containers and volumes", `eviction-hard eviction-soft eviction-soft-grace-period
		eviction-max-pod-grace-period eviction-minimum-reclaim eviction-pressure-transition-period
		kernel-memcg-notification evict-static-pods experimental-allocatable-ignore-eviction local-storage-capacity-isolation
		minimum-container-ttl-duration maximum-dead-containers maximum-dead-containers-per-container
		enable-controller-attach-detach volume-plugin-dir volume-stats-agg-period experimental-mounter-path`},
	{"The machine", `fail-swap-on fail-cgroupv1 protect-kernel-defaults max-open-files oom-score-adj lock-file
		exit-on-lock-contention housekeeping-interval`},
	{"The agent's log", `v vmodule logging-format log-flush-frequency log-text-split-stream log-text-info-buffer-size
		log-json-split-stream log-json-info-buffer-size`},
}

// NoEffect is the usage of a flag that has none.
const NoEffect = "no effect"

// CommonFlags are those that people set, for a help text that fits on a screen.
var CommonFlags = strings.Fields(`config kubeconfig pod-manifest-path object-dir root-dir container-runtime-endpoint
	hostname-override node-ip admin-socket-group v`)

// Help describes the flags that AddFlags has registered, in groups; the last are those that the kubelet has and that do
// nothing here. Flags of kubelets long gone are left out.
func (f *Flags) Help() []FlagGroup {
	var groups []FlagGroup
	left := map[string]bool{}
	for name, b := range f.bound {
		left[name] = !b.legacy
	}
	for _, g := range flagGroups {
		group := FlagGroup{Title: g.title}
		for name := range strings.FieldsSeq(g.names) {
			group.Flags = append(group.Flags, f.HelpOf(name))
			delete(left, name)
		}
		groups = append(groups, group)
	}
	rest := FlagGroup{Title: "Accepted, as a kubelet's units carry them, and without effect"}
	for name, shown := range left {
		if shown {
			rest.Flags = append(rest.Flags, f.HelpOf(name))
		}
	}
	slices.SortFunc(rest.Flags, func(a, b FlagHelp) int { return cmp.Compare(a.Name, b.Name) })
	return append(groups, rest)
}

// HelpOf describes one flag, by its name.
func (f *Flags) HelpOf(name string) FlagHelp {
	b := f.bound[name]
	flag := b.flagOn(newTarget(nil))
	h := FlagHelp{Name: name, Shorthand: b.shorthand, Field: b.field, InForce: !b.pending(), Default: flag.DefValue}
	h.Value, h.Usage = pflag.UnquoteUsage(flag)
	if slices.Contains([]string{"false", "0", "0s", "[]"}, h.Default) {
		h.Default = ""
	}
	return h
}
