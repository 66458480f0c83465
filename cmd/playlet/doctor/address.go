package doctor

import (
	"context"
	"net"
	"net/netip"
	"strings"
)

// checkAddress says which addresses the node has, and whether they are this machine's.
func checkAddress(_ context.Context, m *Machine) []Finding {
	all := m.Addresses()
	if len(all) == 0 {
		return fail("give the machine a default route, or name its address by --node-ip",
			"the node's address is not known: there is no default route")
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fail("", "%v", err)
	}
	var texts []string
	for _, addr := range all {
		texts = append(texts, addr.String())
		if addr.IsLoopback() || addr.IsMulticast() {
			return fail("name an address that pods can reach by --node-ip", "%s cannot be a node's address", addr)
		}
		if !isOwn(own, addr) {
			return warn("see that --node-ip is right: in a cluster such an address is not reported, as with the kubelet",
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
