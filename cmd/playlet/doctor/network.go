package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/cni"
	"github.com/playlet-dev/playlet/cri/translate"
)

// networkFacts are the facts about the network, read once for all checks.
type networkFacts struct {
	places   cni.Places
	from     string
	guessed  bool // the runtime was absent, or does not report them
	networks []cni.Network
}

const (
	// pluginLimit bounds the time in which all plugins together return their versions and their STATUS.
	pluginLimit = 10 * time.Second
	// trialLimit is how long a pod may take to be attached.
	trialLimit = 20 * time.Second
)

// readyNetwork looks at the network once. The facts without the networks are there also after an error of these.
func (m *Machine) readyNetwork(ctx context.Context) (networkFacts, error) {
	return m.network.get(ctx, func(ctx context.Context) (f networkFacts, err error) {
		f.places, f.from, f.guessed = m.places(ctx)
		ctx, cancel := context.WithTimeoutCause(ctx, pluginLimit, fmt.Errorf("it took longer than %s", pluginLimit))
		defer cancel()
		f.networks, err = cni.Ready(ctx, f.places)
		return f, err
	})
}

// checkNetwork reports whether pods would get a network.
func checkNetwork(ctx context.Context, m *Machine) []Finding {
	f, err := m.readyNetwork(ctx)
	if err != nil {
		all := fail(whatOfNetwork(err, f.places), "%s (%s)", err, f.from)
		if f.guessed { // it may be configured elsewhere
			all[0].Result = Warn
			all[0].Do += "; or name the folder where it is configured with --cni-conf-dir"
		}
		return all
	}
	var each []string
	for i := range f.networks {
		each = append(each, describe(&f.networks[i]))
	}
	return ok("%s", strings.Join(each, "; "))
}

func describe(n *cni.Network) string {
	var plugins []string
	for _, p := range n.Plugins {
		if p.IPAM != "" {
			plugins = append(plugins, p.Type+" ("+p.IPAM+")")
		} else {
			plugins = append(plugins, p.Type)
		}
	}
	text := fmt.Sprintf("%s in %s, CNI %s: %s", n.Name, n.File, n.Version, strings.Join(plugins, ", "))
	if n.HasStatus() {
		return text + "; STATUS: ready"
	}
	return text + "; no STATUS before CNI 1.1"
}

// whatOfNetwork returns the remedy for a network that is not ready.
func whatOfNetwork(err error, p cni.Places) string {
	no := cni.IsNotReady(err)
	if no == nil {
		return "check the runtime's message"
	}
	bins := strings.Join(p.BinDirs, ", ")
	switch no.Reason {
	case cni.NoConfiguration:
		return "install a network add-on, which writes one, or write a .conflist into " + p.ConfDir + "; pods on the host's " +
			"network run without one"
	case cni.Invalid:
		return "correct " + no.Path + ", or remove it; the first file by name is used"
	case cni.PluginMissing:
		return "install it into " + bins + " (Debian: containernetworking-plugins, in /usr/lib/cni)"
	case cni.PluginUnusable:
		return "install a version that runs here and supports the configured cniVersion, or lower cniVersion"
	case cni.NoAnswer:
		return "check what it waits for: often a daemon of the network add-on that is not running"
	default:
		return "check the network add-on's own pods and logs: its daemon may not be running yet"
	}
}

// checkAttach attaches a trial namespace to the network, as a pod's would be.
func checkAttach(ctx context.Context, m *Machine) []Finding {
	f, err := m.readyNetwork(ctx)
	if err != nil {
		return skip("the network is not ready")
	}
	check := cni.NetworkCheck{Places: f.places, StateDir: m.TrialDir, NetNSDir: m.NetNSDir}
	ctx, cancel := context.WithTimeoutCause(ctx, trialLimit, fmt.Errorf("it took longer than %s", trialLimit))
	defer cancel()
	before := m.forwards()
	out, err := check.Run(ctx, f.networks)
	var found []Finding
	for _, name := range m.forwards() {
		if !slices.Contains(before, name) {
			found = append(found, warn("sysctl -w "+name+"=0, if this machine must not forward before pods run",
				"the network's plugins turned on %s, as they do for a pod, and leave it on", name)...)
		}
	}
	for _, note := range out.Notes {
		if strings.Contains(note, "could not") {
			found = append(found, warn("see the plugin's own log; the address stays reserved until it is freed", "%s", note)...)
		} else {
			found = append(found, ok("%s", note)...)
		}
	}
	if err == nil {
		return append(ok("%s", given(&out)), found...)
	}
	for _, one := range parts(err) {
		do := "see the kernel's log (dmesg) and the capabilities of this process (capabilities)"
		if step, isStep := errors.AsType[*cni.StepError](one); isStep {
			do = whatOfStep(step.Step)
		}
		found = append(found, fail(do, "%v", one)...)
	}
	return found
}

// forwards are the settings of forwarding that are on. The plugin bridge turns them on, and never off.
func (m *Machine) forwards() []string {
	var on []string
	for _, name := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		if value, err := m.sysctl(name); err == nil && value == 1 {
			on = append(on, name)
		}
	}
	return on
}

// parts are the errors that were joined.
func parts(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, parts(e)...)
	}
	return out
}

func whatOfStep(step cni.Step) string {
	switch step {
	case cni.Add:
		return "pods would wait in ContainerCreating for this: see the plugin's configuration and its daemon's log; no address " +
			"left means a larger subnet, or leases of pods that are gone"
	case cni.Check:
		return "the plugin does not find what it has made itself: something else changes interfaces or rules of this machine"
	case cni.Del:
		return "pods would not end for this, and their addresses stay reserved: see the plugin's daemon's log; the next run of " +
			"this command tries again"
	default:
		return "the plugin does not do what it says: try another version of it"
	}
}

func given(out *cni.Outcome) string {
	var links []string
	for _, link := range out.Interfaces {
		var addresses []string
		for _, a := range link.Addresses {
			addresses = append(addresses, a.String())
		}
		links = append(links, fmt.Sprintf("%s %s, MTU %d", link.Name, strings.Join(addresses, " "), link.MTU))
	}
	text := "a pod gets " + strings.Join(links, "; ")
	routes := "no default route"
	for _, r := range out.Routes {
		if r.Destination.Bits() == 0 {
			routes = "default route by " + r.Gateway.String()
			break
		}
	}
	text += "; " + routes
	if len(out.Unchecked) > 0 {
		text += "; no CHECK of " + strings.Join(out.Unchecked, ", ")
	}
	return text + "; all of it was taken back"
}

// checkForwarding reports whether traffic of pods leaves the machine, and passes its packet filter.
func checkForwarding(ctx context.Context, m *Machine) []Finding {
	on, err := m.sysctl("net.ipv4.ip_forward")
	if err != nil {
		return skip("%v", err)
	}
	if on == 0 {
		return warn("sysctl -w net.ipv4.ip_forward=1, and in /etc/sysctl.d; some network plugins turn it on themselves",
			"net.ipv4.ip_forward is 0: pod traffic does not leave this machine")
	}
	f, err := m.readyNetwork(ctx)
	if err != nil || !slices.ContainsFunc(f.networks, bridged) {
		return ok("net.ipv4.ip_forward is 1")
	}
	filtered, err := m.sysctl("net.bridge.bridge-nf-call-iptables")
	if err != nil || filtered == 0 {
		return warn("modprobe br_netfilter; sysctl -w net.bridge.bridge-nf-call-iptables=1; needed only where something "+
			"rewrites addresses by iptables, as kube-proxy does",
			"traffic between pods on this machine's bridge bypasses iptables (bridge-nf-call-iptables)")
	}
	return ok("net.ipv4.ip_forward and bridge-nf-call-iptables are 1")
}

// bridged reports whether a network has pods on a bridge of the machine.
func bridged(n cni.Network) bool {
	return slices.ContainsFunc(n.Plugins, func(p cni.Plugin) bool { return p.Type == "bridge" || p.Type == "flannel" })
}

// checkResolver reads the source of the pods' resolver configuration.
func checkResolver(_ context.Context, m *Machine) []Finding {
	file := ptr.Deref(m.Node.Kubelet.ResolverConfig, "")
	if file == "" {
		return ok("pods get no name servers of this machine (resolvConf is empty)")
	}
	conf, err := translate.ReadResolvConf(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return warn("name another with resolvConf (with systemd-resolved /run/systemd/resolve/resolv.conf)",
			"%s does not exist: pods get no name servers", file)
	case err != nil:
		return fail("correct it, or name another with resolvConf: pods that need it wait", "%v", err)
	case len(conf.Servers) == 0:
		return warn("name another file with resolvConf, unless pods need no DNS", "%s names no name server", file)
	}
	loopback := true
	for _, server := range conf.Servers {
		addr, err := netip.ParseAddr(server)
		loopback = loopback && err == nil && addr.IsLoopback()
	}
	if loopback {
		return warn("name the file with the real servers with resolvConf "+
			"(with systemd-resolved /run/systemd/resolve/resolv.conf)",
			"%s names only servers on this machine's loopback, which pods cannot reach", file)
	}
	return ok("%s: %s", file, strings.Join(conf.Servers, ", "))
}
