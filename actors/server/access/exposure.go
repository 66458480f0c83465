package access

import (
	"net"
	"net/netip"
	"slices"
	"strconv"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/config"
)

// Exposure describes from where the ports of the node's API are reachable.
type Exposure struct {
	// Address is the IP address of port 10250; empty if the port is closed.
	Address string
	// Closed is the reason that port 10250 is closed, or empty.
	Closed string
	// Narrowed is the reason that it is only open on the loopback instead of the configured address, or empty.
	Narrowed string
	// Everybody is set if the configuration admits every client, from other machines too.
	Everybody bool
	// ReadOnly is the IP address of the read-only port; empty if it is closed.
	ReadOnly string
	// ReadOnlyReason explains in a sentence that the read-only port is closed or only open on the loopback, unlike the
	// configuration, or that it is open to other machines. Otherwise it is empty.
	ReadOnlyReason string
	// CAdvisor is the IP address of cAdvisor's pages and API; empty if they are closed.
	CAdvisor string
	// CAdvisorReason is ReadOnlyReason for them.
	CAdvisorReason string
	// Observatory is the address, "host:port", of the observatory; empty if it has no port.
	Observatory string
	// ObservatoryReason reports that other machines may reach it, as configured, or is empty.
	ObservatoryReason string
}

// Exposed derives the open ports of the node's API and their addresses from the configuration. Port 10250 stays closed, with a
// reason, if it could authorize no client; the kubelet would refuse to start. On a node without an API server, unauthenticated
// ports are on the loopback, unless the configuration has an address.
func Exposed(node *config.Node) Exposure {
	out := secure(node)
	out.ReadOnly, out.ReadOnlyReason = unguarded(node, node.Kubelet.ReadOnlyPort, node.Standalone(),
		" shows the pods to all clients that can connect: readOnlyPort is set")
	if out.ReadOnly != "" && out.ReadOnly != node.Kubelet.Address {
		out.ReadOnlyReason = "port " + strconv.Itoa(int(node.Kubelet.ReadOnlyPort)) + " is open only on " + out.ReadOnly +
			": it needs no credentials, and no address is configured"
	}
	out.CAdvisor, out.CAdvisorReason = unguarded(node, node.CAdvisorPort, true,
		" shows the pods and their usage to all clients that can connect: --cadvisor-port is set")
	out.observatory(node)
	return out
}

// Others returns sentences about the ports other than 10250 that are open to other machines, or not as far as configured.
func (e *Exposure) Others() []string {
	all := []string{e.ReadOnlyReason, e.CAdvisorReason, e.ObservatoryReason}
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}

// unguarded returns the address of a port without authentication, and a sentence if it differs from the configuration or is open
// to other machines; open ends that sentence. Without a configured address it is the loopback if narrow.
func unguarded(node *config.Node, number int32, narrow bool, open string) (where, reason string) {
	where, port := node.Kubelet.Address, "port "+strconv.Itoa(int(number))
	address, err := netip.ParseAddr(where)
	switch {
	case number == 0: // the default
		return "", ""
	case err != nil:
		return "", port + " is closed: address " + where + " is not an IP address"
	case address.IsLoopback():
		return where, ""
	case narrow && !node.AddressGiven:
		return loopback(address), ""
	}
	return where, port + open
}

// observatory sets the fields of the observatory's port: it has the configured address, or the loopback if only the port is
// configured.
func (e *Exposure) observatory(node *config.Node) {
	host, port, err := net.SplitHostPort(node.ObservatoryAddress)
	if err != nil { // empty, since it was validated
		return
	}
	if host == "" {
		host = "127.0.0.1"
	}
	e.Observatory = net.JoinHostPort(host, port)
	if address, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !address.IsLoopback()) {
		e.ObservatoryReason = "the web page is open to other machines on " + e.Observatory + ", unencrypted, to anyone with " +
			"the token: --observatory-address is not a loopback address"
	}
}

// secure sets the fields of port 10250.
func secure(node *config.Node) Exposure {
	k := node.Kubelet
	cluster := !node.Standalone()
	ca := k.Authentication.X509.ClientCAFile != ""
	tokens := cluster && ptr.Deref(k.Authentication.Webhook.Enabled, false)
	anonymous := ptr.Deref(k.Authentication.Anonymous.Enabled, false)
	everybody := anonymous && k.Authorization.Mode == kubeletconfig.KubeletAuthorizationModeAlwaysAllow
	address, err := netip.ParseAddr(k.Address)
	switch {
	case !ptr.Deref(k.EnableServer, true):
		return Exposure{Closed: "enableServer is false"}
	case !cluster && k.Authorization.Mode == kubeletconfig.KubeletAuthorizationModeWebhook:
		return Exposure{Closed: "authorization.mode is Webhook, which asks the API server, and there is no --kubeconfig"}
	case !ca && !tokens && !anonymous:
		return Exposure{Closed: "no client can be authenticated: there is no authentication.x509.clientCAFile, no API server " +
			"that reviews tokens, and authentication.anonymous is off"}
	case !cluster && k.ServerTLSBootstrap:
		return Exposure{Closed: "serverTLSBootstrap asks the API server for a certificate, and there is no --kubeconfig"}
	case err != nil:
		return Exposure{Closed: "address " + k.Address + " is not an IP address"}
	case !cluster && everybody && !address.IsLoopback() && !node.AddressGiven:
		return Exposure{Address: loopback(address), Narrowed: "it needs no credentials, and no address is configured"}
	}
	return Exposure{Address: k.Address, Everybody: everybody && !address.IsLoopback()}
}

// loopback returns the loopback address of an address family.
func loopback(address netip.Addr) string {
	if address.Is6() && !address.Is4In6() {
		return net.IPv6loopback.String()
	}
	return net.IPv4(127, 0, 0, 1).String()
}
