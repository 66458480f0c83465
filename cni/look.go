package cni

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
)

// Interface is an interface of a pod, as found in its namespace.
type Interface struct {
	Name      string         `json:"name"`
	MAC       string         `json:"mac,omitempty"`
	MTU       int            `json:"mtu"`
	Up        bool           `json:"up"`
	Addresses []netip.Prefix `json:"addresses"`
}

// Route is one of the namespace's. A default route has a destination of no bits.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway,omitzero"`
	Interface   string       `json:"interface"`
}

// look reads the interfaces, but for loopback, and the IPv4 routes and default IPv6 routes of a namespace.
func look(path string) (links []Interface, routes []Route, err error) {
	err = inNetNS(path, func() error {
		all, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, link := range all {
			if link.Flags&net.FlagLoopback != 0 {
				continue
			}
			found := Interface{Name: link.Name, MAC: link.HardwareAddr.String(), MTU: link.MTU, Up: link.Flags&net.FlagUp != 0}
			addrs, err := link.Addrs()
			if err != nil {
				return err
			}
			for _, a := range addrs {
				if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
					found.Addresses = append(found.Addresses, p)
				}
			}
			links = append(links, found)
		}
		routes, err = readRoutes("/proc/thread-self/net/route", "/proc/thread-self/net/ipv6_route")
		return err
	})
	return links, routes, err
}

// readRoutes reads the kernel's tables of routes (proc(5)). IPv6 may be off, and its table not there.
func readRoutes(v4, v6 string) ([]Route, error) {
	text, err := os.ReadFile(v4)
	if err != nil {
		return nil, err
	}
	var routes []Route
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 8 || f[0] == "Iface" {
			continue
		}
		dst, err1 := native4(f[1])
		gw, err2 := native4(f[2])
		mask, err3 := native4(f[7])
		if err1 != nil || err2 != nil || err3 != nil {
			return nil, fmt.Errorf("%s: %q", v4, line)
		}
		b := mask.As4()
		bits, _ := net.IPMask(b[:]).Size()
		r := Route{Destination: netip.PrefixFrom(dst, bits), Interface: f[0]}
		if !gw.IsUnspecified() {
			r.Gateway = gw
		}
		routes = append(routes, r)
	}
	text, err = os.ReadFile(v6)
	if err != nil {
		return routes, nil // no IPv6
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 10 || f[1] != "00" || f[9] == "lo" {
			continue
		}
		raw, err := hex.DecodeString(f[4])
		gw, ok := netip.AddrFromSlice(raw)
		if err != nil || !ok {
			return nil, fmt.Errorf("%s: %q", v6, line)
		}
		r := Route{Destination: netip.PrefixFrom(netip.IPv6Unspecified(), 0), Interface: f[9]}
		if !gw.IsUnspecified() {
			r.Gateway = gw
		}
		routes = append(routes, r)
	}
	return routes, nil
}

// native4 reads an IPv4 address as the kernel prints it: a hexadecimal number in the machine's byte order.
func native4(text string) (netip.Addr, error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != 4 {
		return netip.Addr{}, fmt.Errorf("%q is no address", text)
	}
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], binary.BigEndian.Uint32(raw))
	return netip.AddrFrom4(b), nil
}
