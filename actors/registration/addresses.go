package registration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Addresses finds the node's own addresses. Functions that are nil read this machine.
type Addresses struct {
	// Given are the addresses of --node-ip: none, one, or two of different families. An unspecified address chooses a family.
	Given []netip.Addr
	// Name is the node's name.
	Name string
	// Last are the addresses found before. They stay while no name server answers.
	Last []netip.Addr
	// Lookup resolves a name; ctx bounds it.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	// Own are the addresses of the machine's interfaces.
	Own func() ([]netip.Addr, error)
	// Route returns the address of the default route's interface, preferably of the requested family.
	Route func(six bool) (netip.Addr, error)
}

// lookupTimeout bounds the resolution of the node's name.
const lookupTimeout = 3 * time.Second

// Find returns the node's addresses, the primary one first, by the kubelet's rules: the given addresses, else the name if it is
// an address, else the first usable address that the name resolves to, else the address of the default route's interface. It may
// be slow.
func (a Addresses) Find(ctx context.Context) ([]netip.Addr, error) {
	a = a.orHost()
	own, err := a.Own()
	if err != nil {
		return nil, fmt.Errorf("this machine's addresses cannot be read: %w", err)
	}
	given := slices.DeleteFunc(slices.Clone(a.Given), netip.Addr.IsUnspecified)
	if len(given) > 0 {
		for _, ip := range given {
			if why := addressProblem(ip, own); why != "" {
				return nil, fmt.Errorf("--node-ip: %s %s", ip, why)
			}
		}
		return given, nil
	}
	if ip, err := netip.ParseAddr(a.Name); err == nil {
		return []netip.Addr{ip.Unmap()}, nil
	}
	six := len(a.Given) > 0 && a.Given[0].Is6()
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	named, err := a.Lookup(ctx, a.Name) // an unknown name is common
	of, is := errors.AsType[*net.DNSError](err)
	unknown := is && of.IsNotFound // a name server has answered
	if err != nil && !unknown && len(a.Last) > 0 && !slices.ContainsFunc(a.Last,
		func(ip netip.Addr) bool { return addressProblem(ip, own) != "" }) {
		return a.Last, nil
	}
	if ip, ok := choose(named, own, six); ok {
		return []netip.Addr{ip}, nil
	}
	ip, err := a.Route(six)
	if err != nil {
		return nil,
			fmt.Errorf("this node's address is not known: its name does not resolve to one of the machine's, and there is no "+
				"default route (%w); --node-ip sets it", err)
	}
	return []netip.Addr{ip.Unmap()}, nil
}

// orHost replaces nil functions by readers of this machine.
func (a Addresses) orHost() Addresses {
	if a.Lookup == nil {
		a.Lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	if a.Own == nil {
		a.Own = interfaceAddresses
	}
	if a.Route == nil {
		a.Route = routeAddress
	}
	return a
}

// choose returns the first usable address of the preferred family, else the first usable one.
func choose(named, own []netip.Addr, six bool) (netip.Addr, bool) {
	var first netip.Addr
	for _, ip := range named {
		ip = ip.Unmap()
		switch {
		case addressProblem(ip, own) != "":
		case ip.Is6() == six:
			return ip, true
		case !first.IsValid():
			first = ip
		}
	}
	return first, first.IsValid()
}

// addressProblem returns the reason why an address cannot be a node's address; empty if it can.
func addressProblem(ip netip.Addr, own []netip.Addr) string {
	switch {
	case ip.IsLoopback():
		return "is a loopback address, at which no other node reaches this one"
	case ip.IsMulticast():
		return "is a multicast address"
	case ip.IsLinkLocalUnicast():
		return "is a link-local address, which is good on one link alone"
	case ip.IsUnspecified():
		return "is no address"
	case !slices.Contains(own, ip.WithZone("")):
		return "is on none of this machine's interfaces"
	}
	return ""
}

func interfaceAddresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, one := range all {
		if prefix, err := netip.ParsePrefix(one.String()); err == nil {
			out = append(out, prefix.Addr().Unmap())
		}
	}
	return out, nil
}

func routeAddress(six bool) (netip.Addr, error) {
	family := net.IPv4zero
	if six {
		family = net.IPv6zero
	}
	found, err := utilnet.ResolveBindAddress(family)
	if err != nil {
		return netip.Addr{}, err
	}
	ip, ok := netip.AddrFromSlice(found)
	if !ok {
		return netip.Addr{}, errors.New("the default route's interface has no address")
	}
	return ip, nil
}
