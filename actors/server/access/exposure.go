package access

import (
	"net"
	"net/netip"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/config"
)

// Exposure says how far port 10250 is reachable.
type Exposure struct {
	// Address is the IP address to listen on; empty where the port is closed.
	Address string
	// Closed says why the port is closed; empty where it is open.
	Closed string
	// Narrowed says why the port is open on the loopback alone and not on the configured address; empty where it is not so.
	Narrowed string
	// Everybody says that whoever can connect is let in, from other machines, too: it was asked for.
	Everybody bool
}

// Exposed decides from the configuration whether port 10250 is opened, and where. A port that could authorize nobody stays
// closed, with a reason, where the kubelet refuses to start. Where there is neither an API server to ask nor a client CA,
// everybody who can connect would be served: that is the loopback only.
func Exposed(node *config.Node) Exposure {
	k := node.Kubelet
	cluster := !node.Standalone()
	ca := k.Authentication.X509.ClientCAFile != ""
	tokens := cluster && ptr.Deref(k.Authentication.Webhook.Enabled, false)
	anonymous := ptr.Deref(k.Authentication.Anonymous.Enabled, false)
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
	case !cluster && !ca && !address.IsLoopback():
		loopback := net.IPv4(127, 0, 0, 1).String()
		if address.Is6() && !address.Is4In6() {
			loopback = net.IPv6loopback.String()
		}
		return Exposure{Address: loopback, Narrowed: "without an API server and authentication.x509.clientCAFile everybody who " +
			"connects is served"}
	}
	everybody := anonymous && k.Authorization.Mode == kubeletconfig.KubeletAuthorizationModeAlwaysAllow
	return Exposure{Address: k.Address, Everybody: everybody && !address.IsLoopback()}
}
