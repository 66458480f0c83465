package doctor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/server/access"
)

// port is one that the agent listens on.
type port struct {
	number  int
	address netip.Addr // unspecified: on all
	what    string
}

// ports are those that the agent opens by the configuration.
func (m *Machine) ports() []port {
	k := m.Node.Kubelet
	at := func(text string) netip.Addr {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return netip.IPv6Unspecified()
		}
		return addr
	}
	all := []port{{int(ptr.Deref(k.HealthzPort, 0)), at(k.HealthzBindAddress), "health check (healthzPort)"}}
	exposed := access.Exposed(m.Node)
	if exposed.Address != "" {
		all = append(all, port{int(k.Port), at(exposed.Address), "the node's API (port)"})
	}
	if exposed.ReadOnly != "" {
		all = append(all, port{int(k.ReadOnlyPort), at(exposed.ReadOnly), "read-only API (readOnlyPort)"})
	}
	if exposed.CAdvisor != "" {
		all = append(all, port{int(m.Node.CAdvisorPort), at(exposed.CAdvisor), "cAdvisor's pages (--cadvisor-port)"})
	}
	if host, number, err := net.SplitHostPort(exposed.Observatory); err == nil {
		n, _ := strconv.Atoi(number) // it was validated
		all = append(all, port{n, at(host), "the web page (--observatory-address)"})
	}
	return slices.DeleteFunc(all, func(p port) bool { return p.number == 0 })
}

// listener is a TCP socket that listens.
type listener struct {
	at    netip.AddrPort
	inode uint64
}

// checkPorts finds other listeners on the agent's ports. It opens none, so that an agent that is starting finds them free.
func checkPorts(ctx context.Context, m *Machine) []Finding {
	all, err := m.listeners()
	if err != nil {
		return skip("%v", err)
	}
	var found []Finding
	var free, ours []string
	for _, p := range m.ports() {
		i := slices.IndexFunc(all, func(l listener) bool { return conflict(p, l) })
		if i < 0 {
			free = append(free, strconv.Itoa(p.number))
			continue
		}
		who, known := m.owner(all[i].inode)
		if agent, runs := m.agent(ctx); known && runs && who.PID == agent.PID {
			ours = append(ours, strconv.Itoa(p.number))
			continue
		}
		name := "a process that is not visible"
		if known {
			name = who.String()
		}
		found = append(found, fail("stop it, or give the agent another port (0 for none)", "port %d, %s, is taken by %s",
			p.number, p.what, name)...)
	}
	var good []string
	if len(free) > 0 {
		good = append(good, "free: "+strings.Join(free, ", "))
	}
	if len(ours) > 0 {
		good = append(good, "used by the running agent: "+strings.Join(ours, ", "))
	}
	if len(good) == 0 && len(found) == 0 {
		good = []string{"no port is configured"}
	}
	if len(good) > 0 {
		found = append(found, ok("%s", strings.Join(good, "; "))...)
	}
	return found
}

func conflict(p port, l listener) bool {
	return int(l.at.Port()) == p.number && (p.address.IsUnspecified() || l.at.Addr().IsUnspecified() ||
		l.at.Addr().Unmap() == p.address.Unmap())
}

// listeners reads the kernel's tables of TCP sockets (proc(5)).
func (m *Machine) listeners() (out []listener, err error) {
	const listening = 0x0A
	proc, err := procfs.NewFS(m.Proc)
	if err != nil {
		return nil, err
	}
	all, err := proc.NetTCP() //nolint:staticcheck // netlink, which is recommended, asks this machine alone, and no test's
	if err != nil {
		return nil, err
	}
	if more, err := proc.NetTCP6(); err == nil { //nolint:staticcheck // as above; without it, IPv6 is off
		all = append(all, more...)
	}
	for _, s := range all {
		if addr, ok := netip.AddrFromSlice(s.LocalAddr); ok && s.St == listening {
			at := netip.AddrPortFrom(addr, uint16(s.LocalPort)) //nolint:gosec // 16 bits there, too
			out = append(out, listener{at, s.Inode})
		}
	}
	return out, nil
}

// owner finds the process with a socket.
func (m *Machine) owner(inode uint64) (process, bool) {
	for _, p := range m.processes() {
		if p.opens(fmt.Sprintf("socket:[%d]", inode)) {
			return p, true
		}
	}
	return process{}, false
}

// checkAddress reports the node's addresses, and whether they belong to this machine.
func checkAddress(_ context.Context, m *Machine) []Finding {
	all := m.Addresses()
	if len(all) == 0 {
		return fail("give the machine a default route, or set its address with --node-ip",
			"the node's address is not known: there is no default route")
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fail("check that this process may use netlink sockets", "%v", err)
	}
	var texts []string
	for _, addr := range all {
		texts = append(texts, addr.String())
		if addr.IsLoopback() || addr.IsMulticast() {
			return fail("set an address that pods can reach with --node-ip", "%s cannot be a node's address", addr)
		}
		if !isOwn(own, addr) {
			return warn("check --node-ip: in a cluster such an address is not reported, as with the kubelet",
				"%s is on no interface of this machine", addr)
		}
	}
	return ok("%s", strings.Join(texts, ", "))
}

func isOwn(own []net.Addr, addr netip.Addr) bool {
	for _, a := range own {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == addr.Unmap() {
			return true
		}
	}
	return false
}
