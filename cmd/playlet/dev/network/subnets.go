package network

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
)

// candidates are subnets for pods that few networks use; the first that is free is taken.
func candidates() []netip.Prefix {
	var out []netip.Prefix
	for _, first := range []netip.Addr{
		netip.AddrFrom4([4]byte{10, 199, 0, 0}), netip.AddrFrom4([4]byte{172, 30, 0, 0}),
		netip.AddrFrom4([4]byte{192, 168, 0, 0}),
	} {
		for third := range 256 {
			bytes := first.As4()
			bytes[2] = byte(third)
			out = append(out, netip.PrefixFrom(netip.AddrFrom4(bytes), 24))
		}
	}
	return out
}

// freeSubnet gives the first candidate that overlaps nothing that is taken.
func freeSubnet(taken []netip.Prefix) (netip.Prefix, error) {
next:
	for _, subnet := range candidates() {
		for _, other := range taken {
			if subnet.Overlaps(other) {
				continue next
			}
		}
		return subnet, nil
	}
	return netip.Prefix{},
		errors.New("no subnet is free for pods: all of 10.199.0.0/16, 172.30.0.0/16 and 192.168.0.0/16 is routed")
}

// takenSubnets are the destinations of this machine's routes, but the default's, and the networks of its addresses.
func takenSubnets() ([]netip.Prefix, error) {
	routes, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return nil, err
	}
	taken, err := parseRoutes(string(routes))
	if err != nil {
		return nil, err
	}
	addrs, err := net.InterfaceAddrs()
	for _, addr := range addrs {
		if prefix, err := netip.ParsePrefix(addr.String()); err == nil && prefix.Addr().Is4() {
			taken = append(taken, prefix.Masked())
		}
	}
	return taken, err
}

// parseRoutes reads /proc/net/route: addresses are hexadecimal, in the byte order of the machine.
func parseRoutes(table string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for i, line := range strings.Split(strings.TrimSpace(table), "\n") {
		fields := strings.Fields(line)
		if i == 0 || len(fields) < 8 {
			continue // the heading
		}
		destination, err1 := nativeAddr(fields[1])
		mask, err2 := nativeAddr(fields[7])
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("a route of %q: %w", line, err)
		}
		bytes := mask.As4()
		ones, _ := net.IPMask(bytes[:]).Size()
		if ones > 0 {
			out = append(out, netip.PrefixFrom(destination, ones))
		}
	}
	return out, nil
}

func nativeAddr(text string) (netip.Addr, error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != 4 {
		return netip.Addr{}, fmt.Errorf("an address of %q", text)
	}
	var out [4]byte
	binary.NativeEndian.PutUint32(out[:], binary.BigEndian.Uint32(raw))
	return netip.AddrFrom4(out), nil
}

// freeBridge gives a name that no interface has.
func freeBridge() (string, error) {
	for i := range 100 {
		name := fmt.Sprint("playlet", i)
		if _, err := net.InterfaceByName(name); err != nil {
			return name, nil
		}
	}
	return "", errors.New("the names playlet0 to playlet99 of bridges are all taken")
}

// hasDefaultRoute reports whether the machine has an address of its own that the agent finds by itself.
func hasDefaultRoute(table string) bool {
	for i, line := range strings.Split(strings.TrimSpace(table), "\n") {
		fields := strings.Fields(line)
		if i > 0 && len(fields) >= 8 && fields[1] == "00000000" && fields[7] == "00000000" {
			return true
		}
	}
	return false
}
