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

// Exposure says how far the ports of the node's API are reachable.
type Exposure struct {
	// Address is the IP address that port 10250 listens on; empty where the port is closed.
	Address string
	// Closed says why port 10250 is closed; empty where it is open.
	Closed string
	// Narrowed says why it is open on the loopback alone and not on the configured address; empty where it is not so.
	Narrowed string
	// Everybody says that whoever can connect to it is let in, from other machines, too: it was asked for.
	Everybody bool
	// ReadOnly is the IP address that the read-only port listens on; empty where it is closed.
	ReadOnly string
	// ReadOnlyReason is a sentence that says why the read-only port is closed or open on the loopback alone, other than was asked
	// for; or that it is open to other machines, which was. Empty where there is nothing to say.
	ReadOnlyReason string
	// CAdvisor is the IP address that cAdvisor's pages and API listen on; empty where they are closed.
	CAdvisor string
	// CAdvisorReason is as ReadOnlyReason, for them.
	CAdvisorReason string
	// Observatory is the address, "host:port", that the observatory listens on; empty where it does not.
	Observatory string
	// ObservatoryReason says that other machines may reach it, which was asked for; empty where they may not.
	ObservatoryReason string
}

// Exposed decides from the configuration whether the ports of the node's API are opened, and where. Port 10250, where it could
// authorize nobody, stays closed, with a reason, where the kubelet refuses to start. What a node without an API server serves to
// everybody who can connect is on the loopback only, unless somebody gave the address.
func Exposed(node *config.Node) Exposure {
	out := secure(node)
	out.ReadOnly, out.ReadOnlyReason = unguarded(node, node.Kubelet.ReadOnlyPort, node.Standalone(),
		" shows the pods to everybody who can connect: readOnlyPort is set")
	if out.ReadOnly != "" && out.ReadOnly != node.Kubelet.Address {
		out.ReadOnlyReason = "port " + strconv.Itoa(int(node.Kubelet.ReadOnlyPort)) + " is open only on " + out.ReadOnly +
			": everybody who connects may read, and no address is configured"
	}
	out.CAdvisor, out.CAdvisorReason = unguarded(node, node.CAdvisorPort, true,
		" shows the pods and their usage to everybody who can connect: --cadvisor-port is set")
	out.observatory(node)
	return out
}

// Others are sentences on the ports beside 10250 that are open to other machines, or not as far as was asked for.
func (e *Exposure) Others() []string {
	all := []string{e.ReadOnlyReason, e.CAdvisorReason, e.ObservatoryReason}
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}

// unguarded is where a port that asks for no credentials is open, and a sentence where that is other than was asked for, or open
// to other machines, of which open says the rest. Where nobody gave the address, it is the loopback if narrow.
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

// observatory is what concerns the observatory's port: it is where it was asked for, and on the loopback where only the port was.
func (e *Exposure) observatory(node *config.Node) {
	host, port, err := net.SplitHostPort(node.ObservatoryAddress)
	if err != nil { // it was validated: there is none
		return
	}
	if host == "" {
		host = "127.0.0.1"
	}
	e.Observatory = net.JoinHostPort(host, port)
	if address, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !address.IsLoopback()) {
		e.ObservatoryReason = "the observatory is open to other machines on " + e.Observatory + ", unencrypted, to anyone with " +
			"the token: --observatory-address is not a loopback address"
	}
}

// secure is what concerns port 10250.
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
		return Exposure{Address: loopback(address), Narrowed: "everybody who connects is served, and no address is configured"}
	}
	return Exposure{Address: k.Address, Everybody: everybody && !address.IsLoopback()}
}

// loopback is the address of the loopback in the family of an address.
func loopback(address netip.Addr) string {
	if address.Is6() && !address.Is4In6() {
		return net.IPv6loopback.String()
	}
	return net.IPv4(127, 0, 0, 1).String()
}
