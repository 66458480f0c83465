package registration

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

func TestTheNodesAddresses(t *testing.T) {
	own := addrs("127.0.0.1", "192.0.2.7", "198.51.100.7", "fe80::7", "2001:db8::7", "::1")
	for name, c := range map[string]struct {
		given, named []netip.Addr
		name, want   string // want is addresses, or the beginning of what is wrong
	}{
		"nothing is known": {want: "192.0.2.1"},
		"any IPv4":         {given: addrs("0.0.0.0"), want: "192.0.2.1"},
		"any IPv6":         {given: addrs("::"), want: "2001:db8::1"},
		"given":            {given: addrs("198.51.100.7"), named: addrs("192.0.2.7"), want: "198.51.100.7"},
		"given IPv6":       {given: addrs("2001:db8::7"), want: "2001:db8::7"},
		"given both":       {given: addrs("2001:db8::7", "192.0.2.7"), want: "2001:db8::7,192.0.2.7"},
		"loopback":         {given: addrs("127.0.0.1"), want: "--node-ip: 127.0.0.1 is a loopback address"},
		"multicast":        {given: addrs("224.0.0.1"), want: "--node-ip: 224.0.0.1 is a multicast address"},
		"link-local":       {given: addrs("fe80::7"), want: "--node-ip: fe80::7 is a link-local address"},
		"another machine's": {given: addrs("192.0.2.9"),
			want: "--node-ip: 192.0.2.9 is on none of this machine's interfaces"},
		"the second is another's":  {given: addrs("192.0.2.7", "2001:db8::9"), want: "--node-ip: 2001:db8::9 is on none"},
		"a name that is one":       {name: "203.0.113.5", named: addrs("192.0.2.7"), want: "203.0.113.5"},
		"named":                    {named: addrs("198.51.100.7", "192.0.2.7"), want: "198.51.100.7"},
		"as IPv6 has it":           {named: addrs("::ffff:192.0.2.7"), want: "192.0.2.7"},
		"named, IPv4 first":        {named: addrs("2001:db8::7", "192.0.2.7"), want: "192.0.2.7"},
		"named, IPv6 asked for":    {given: addrs("::"), named: addrs("192.0.2.7", "2001:db8::7"), want: "2001:db8::7"},
		"named, IPv6 alone":        {named: addrs("2001:db8::7"), want: "2001:db8::7"},
		"named as loopback":        {named: addrs("127.0.0.1", "::1"), want: "192.0.2.1"},
		"named as another machine": {named: addrs("192.0.2.9"), want: "192.0.2.1"},
		"no route":                 {name: "lost", want: "this node's address is not known"},
	} {
		a := Addresses{
			Given: c.given, Name: c.name,
			Lookup: func(context.Context, string) ([]netip.Addr, error) { return c.named, nil },
			Own:    func() ([]netip.Addr, error) { return own, nil },
			Route: func(six bool) (netip.Addr, error) {
				switch {
				case c.name == "lost":
					return netip.Addr{}, errors.New("none")
				case six:
					return netip.MustParseAddr("2001:db8::1"), nil
				default:
					return netip.MustParseAddr("192.0.2.1"), nil
				}
			},
		}
		got, err := a.Find(t.Context())
		var texts []string
		for _, ip := range got {
			texts = append(texts, ip.String())
		}
		said := strings.Join(texts, ",")
		if err != nil {
			said = err.Error()
		}
		if said != c.want && (err == nil || !strings.HasPrefix(said, c.want)) {
			t.Errorf("%s: %q, want %q", name, said, c.want)
		}
	}
}

// This machine reports one of its own addresses.
func TestThisMachinesAddresses(t *testing.T) {
	own, err := interfaceAddresses()
	if err != nil || len(own) == 0 {
		t.Fatal(own, err)
	}
	for _, ip := range own {
		if why := addressProblem(ip, own); strings.Contains(why, "interfaces") {
			t.Errorf("%s %s", ip, why)
		}
	}
}

// A name server that does not answer moves no address.
func TestAddressesWhileNobodyAnswers(t *testing.T) {
	unknown, timeout := &net.DNSError{IsNotFound: true}, &net.DNSError{IsTimeout: true}
	for _, c := range []struct {
		err        error
		last, want string
	}{
		{timeout, "192.0.2.8", "192.0.2.8"},
		{timeout, "192.0.2.9", "192.0.2.1"}, // which the machine has no more
		{timeout, "", "192.0.2.1"},
		{unknown, "192.0.2.8", "192.0.2.1"},
	} {
		a := Addresses{
			Name: "node", Lookup: func(context.Context, string) ([]netip.Addr, error) { return nil, c.err },
			Own:   func() ([]netip.Addr, error) { return addrs("192.0.2.1", "192.0.2.8"), nil },
			Route: func(bool) (netip.Addr, error) { return netip.MustParseAddr("192.0.2.1"), nil },
		}
		if c.last != "" {
			a.Last = addrs(c.last)
		}
		if got, err := a.Find(t.Context()); err != nil || len(got) != 1 || got[0].String() != c.want {
			t.Errorf("%v after %q: %v, %v", c.err, c.last, got, err)
		}
	}
}
