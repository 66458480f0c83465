package access

import (
	"strings"
	"testing"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/config"
)

func TestExposed(t *testing.T) {
	const always = kubeletconfig.KubeletAuthorizationModeAlwaysAllow
	type set = func(n *config.Node)
	standalone := func(n *config.Node) { n.KubeconfigPath = "" }
	ca := func(n *config.Node) { n.Kubelet.Authentication.X509.ClientCAFile = "/ca" }
	open := func(n *config.Node) {
		n.Kubelet.Authorization.Mode = always
		n.Kubelet.Authentication.Anonymous.Enabled = ptr.To(true)
	}
	given := func(n *config.Node) { n.AddressGiven = true }
	address := func(a string) set { return func(n *config.Node) { n.Kubelet.Address = a } }
	for name, c := range map[string]struct {
		sets                      []set
		address, closed, narrowed string
	}{
		"cluster, defaults":           {nil, "0.0.0.0", "", ""},
		"cluster, client CA":          {[]set{ca}, "0.0.0.0", "", ""},
		"cluster, asked to be open":   {[]set{open}, "0.0.0.0", "", ""},
		"standalone, defaults":        {[]set{standalone}, "", "there is no --kubeconfig", ""},
		"standalone, CA, webhook":     {[]set{standalone, ca}, "", "there is no --kubeconfig", ""},
		"standalone, CA, AlwaysAllow": {[]set{standalone, ca, func(n *config.Node) { n.Kubelet.Authorization.Mode = always }}, "0.0.0.0", "", ""},
		"standalone, nobody":          {[]set{standalone, func(n *config.Node) { n.Kubelet.Authorization.Mode = always }}, "", "no client can be authenticated", ""},
		"standalone, open":            {[]set{standalone, open}, "127.0.0.1", "", "no credentials"},
		"standalone, open, IPv6":      {[]set{standalone, open, address("::")}, "::1", "", "no credentials"},
		"standalone, open, CA":        {[]set{standalone, open, ca}, "127.0.0.1", "", "no credentials"},
		"standalone, open, given":     {[]set{standalone, open, given}, "0.0.0.0", "", ""},
		"standalone, open, loopback":  {[]set{standalone, open, address("127.0.0.2")}, "127.0.0.2", "", ""},
		"cluster, nobody": {[]set{func(n *config.Node) { n.Kubelet.Authentication.Webhook.Enabled = ptr.To(false) }}, "",
			"no client can be authenticated", ""},
		"standalone, open, certificate of the cluster": {[]set{standalone, open, func(n *config.Node) { n.Kubelet.ServerTLSBootstrap = true }}, "",
			"serverTLSBootstrap", ""},
		"switched off": {[]set{func(n *config.Node) { n.Kubelet.EnableServer = ptr.To(false) }}, "", "enableServer is false", ""},
	} {
		n := &config.Node{KubeconfigPath: "/kc", Kubelet: &config.KubeletConfiguration{Address: "0.0.0.0"}}
		n.Kubelet.Authentication.Webhook.Enabled = ptr.To(true)
		n.Kubelet.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeWebhook
		for _, set := range c.sets {
			set(n)
		}
		got := Exposed(n)
		if got.Address != c.address || !strings.Contains(got.Closed, c.closed) || (got.Closed == "") != (c.closed == "") ||
			got.Everybody != (name == "cluster, asked to be open" || name == "standalone, open, given") || !strings.Contains(got.Narrowed, c.narrowed) || (got.Narrowed == "") != (c.narrowed == "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The read-only port is open as configured, and on a standalone node only to this machine unless an address is configured.
func TestExposedReadOnly(t *testing.T) {
	for name, c := range map[string]struct {
		node            *config.Node
		port            int32
		ip              string
		address, reason string
	}{
		"cluster, off":             {&config.Node{KubeconfigPath: "/kc"}, 0, "0.0.0.0", "", ""},
		"cluster":                  {&config.Node{KubeconfigPath: "/kc"}, 10255, "0.0.0.0", "0.0.0.0", "shows the pods to all clients"},
		"cluster, loopback":        {&config.Node{KubeconfigPath: "/kc"}, 10255, "127.0.0.1", "127.0.0.1", ""},
		"standalone, off":          {&config.Node{AddressGiven: true}, 0, "0.0.0.0", "", ""},
		"standalone":               {&config.Node{}, 10255, "0.0.0.0", "127.0.0.1", "only on 127.0.0.1"},
		"standalone, IPv6":         {&config.Node{}, 10255, "::", "::1", "only on ::1"},
		"standalone, given":        {&config.Node{AddressGiven: true}, 10255, "0.0.0.0", "0.0.0.0", "shows the pods to all clients"},
		"no address of this world": {&config.Node{}, 10255, "here", "", "is closed: address here"},
	} {
		c.node.Kubelet = &config.KubeletConfiguration{Address: c.ip, ReadOnlyPort: c.port}
		got := Exposed(c.node)
		if got.ReadOnly != c.address || !strings.Contains(got.ReadOnlyReason, c.reason) || (got.ReadOnlyReason == "") != (c.reason == "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// cAdvisor's port is open as configured, and to other machines only with an address.
func TestExposedCAdvisor(t *testing.T) {
	for name, c := range map[string]struct {
		node            *config.Node
		ip              string
		address, reason string
	}{
		"off":                      {&config.Node{AddressGiven: true}, "0.0.0.0", "", ""},
		"standalone":               {&config.Node{CAdvisorPort: 4194}, "0.0.0.0", "127.0.0.1", ""},
		"cluster":                  {&config.Node{CAdvisorPort: 4194, KubeconfigPath: "/kc"}, "0.0.0.0", "127.0.0.1", ""},
		"IPv6":                     {&config.Node{CAdvisorPort: 4194}, "::", "::1", ""},
		"given":                    {&config.Node{CAdvisorPort: 4194, AddressGiven: true}, "0.0.0.0", "0.0.0.0", "port 4194 shows the pods and their usage to all clients"},
		"given, loopback":          {&config.Node{CAdvisorPort: 4194, AddressGiven: true}, "127.0.0.2", "127.0.0.2", ""},
		"no address of this world": {&config.Node{CAdvisorPort: 4194}, "here", "", "is closed: address here"},
	} {
		c.node.Kubelet = &config.KubeletConfiguration{Address: c.ip}
		got := Exposed(c.node)
		if got.CAdvisor != c.address || !strings.Contains(got.CAdvisorReason, c.reason) || (got.CAdvisorReason == "") != (c.reason == "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The observatory has the configured address, with a reason if other machines may reach it.
func TestExposedObservatory(t *testing.T) {
	for given, c := range map[string]struct{ address, reason string }{
		"":                {"", ""},
		":4195":           {"127.0.0.1:4195", ""},
		"127.0.0.1:0":     {"127.0.0.1:0", ""},
		"[::1]:4195":      {"[::1]:4195", ""},
		"localhost:4195":  {"localhost:4195", ""},
		"0.0.0.0:4195":    {"0.0.0.0:4195", "open to other machines on 0.0.0.0:4195, unencrypted"},
		"[::]:4195":       {"[::]:4195", "open to other machines"},
		"192.0.2.7:4195":  {"192.0.2.7:4195", "open to other machines"},
		"node.local:4195": {"node.local:4195", "open to other machines"},
	} {
		got := Exposed(&config.Node{ObservatoryAddress: given, Kubelet: &config.KubeletConfiguration{Address: "0.0.0.0"}})
		if got.Observatory != c.address || !strings.Contains(got.ObservatoryReason, c.reason) || (got.ObservatoryReason == "") != (c.reason == "") {
			t.Errorf("%q: %+v", given, got)
		}
	}
}
