package doctor

import (
	"context"
	"slices"

	"github.com/playlet-dev/playlet/cni"
)

// checkForwarding says whether traffic of pods leaves the machine, and is seen by its packet filter.
func checkForwarding(ctx context.Context, m *Machine) []Finding {
	on, err := m.sysctl("net.ipv4.ip_forward")
	if err != nil {
		return skip("%v", err)
	}
	if on == 0 {
		return warn("sysctl -w net.ipv4.ip_forward=1, and in /etc/sysctl.d; some network plugins turn it on themselves",
			"net.ipv4.ip_forward is 0: traffic of pods does not leave this machine")
	}
	f, err := m.readyNetwork(ctx)
	if err != nil || !slices.ContainsFunc(f.networks, bridged) {
		return ok("net.ipv4.ip_forward is 1")
	}
	filtered, err := m.sysctl("net.bridge.bridge-nf-call-iptables")
	if err != nil || filtered == 0 {
		return warn("modprobe br_netfilter; sysctl -w net.bridge.bridge-nf-call-iptables=1; needed only where something "+
			"rewrites "+
			"addresses by iptables, as kube-proxy does",
			"traffic between pods on this machine's bridge is not seen by iptables (bridge-nf-call-iptables)")
	}
	return ok("net.ipv4.ip_forward and bridge-nf-call-iptables are 1")
}

// bridged says whether a network has pods on a bridge of the machine.
func bridged(n cni.Network) bool {
	return slices.ContainsFunc(n.Plugins, func(p cni.Plugin) bool { return p.Type == "bridge" || p.Type == "flannel" })
}
