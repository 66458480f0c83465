package sim

import (
	"errors"
	"net/netip"
)

// ipPool gives out the addresses 10.88.0.2 to 10.88.255.254, the one longest unused first, as host-local does.
type ipPool struct {
	used map[string]bool
	last netip.Addr
}

var (
	podNetwork = netip.MustParsePrefix("10.88.0.0/16")
	firstPodIP = netip.MustParseAddr("10.88.0.2")
	broadcast  = netip.MustParseAddr("10.88.255.255")

	errNoIP = errors.New("failed to allocate for range 0: no IP addresses available in range set: 10.88.0.2-10.88.255.254")
)

func (p *ipPool) take() (string, error) {
	addr := p.last
	for range 1 << (32 - podNetwork.Bits()) {
		if addr = addr.Next(); !podNetwork.Contains(addr) || addr == broadcast {
			addr = firstPodIP
		}
		if s := addr.String(); !p.used[s] {
			p.used[s], p.last = true, addr
			return s, nil
		}
	}
	return "", errNoIP
}

func (p *ipPool) release(ip string) { delete(p.used, ip) }
