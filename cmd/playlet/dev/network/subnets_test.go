package network

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFreeSubnetOverlapsNothing(t *testing.T) {
	for _, c := range []struct {
		taken []string
		want  string
	}{
		{nil, "10.199.0.0/24"},
		{[]string{"192.0.2.0/24", "10.199.0.77/32"}, "10.199.1.0/24"},
		{[]string{"10.199.0.0/17"}, "10.199.128.0/24"},
		{[]string{"10.0.0.0/8"}, "172.30.0.0/24"},
		{[]string{"10.0.0.0/8", "172.16.0.0/12"}, "192.168.0.0/24"},
		{[]string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"}, ""},
	} {
		var taken []netip.Prefix
		for _, text := range c.taken {
			taken = append(taken, netip.MustParsePrefix(text))
		}
		got, err := freeSubnet(taken)
		if c.want == "" {
			if err == nil {
				t.Errorf("%v leaves %v", c.taken, got)
			}
		} else if err != nil || got.String() != c.want {
			t.Errorf("%v leaves %v, %v, want %s", c.taken, got, err, c.want)
		}
	}
}

func TestRoutesAreRead(t *testing.T) {
	const heading = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
	const usual = heading +
		"eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n" +
		"eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n" +
		"tun0\t0000070A\t00000000\t0001\t0\t0\t0\t0000FEFF\t0\t0\t0\n"
	if native.Uint16([]byte{1, 0}) != 1 {
		t.Skip("not tried: the table is one of a little-endian machine")
	}
	got, err := parseRoutes(usual)
	if err != nil || len(got) != 2 || got[0].String() != "192.0.2.0/24" || got[1].String() != "10.7.0.0/15" {
		t.Errorf("read %v, %v", got, err)
	}
	if !hasDefaultRoute(usual) || hasDefaultRoute(heading) || hasDefaultRoute("") {
		t.Error("the default route is not seen, or seen where there is none")
	}
	if _, err := parseRoutes(heading + "eth0\tnonsense\t0\t0\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"); err == nil {
		t.Error("nonsense is read")
	}
	if taken, err := takenSubnets(); err != nil || len(taken) == 0 {
		t.Errorf("this machine uses %v, %v", taken, err)
	}
}

// makeLink adds an interface, below a bridge unless that is 0 (rtnetlink(7), RTM_NEWLINK).
func makeLink(t *testing.T, name, kind string, master int) {
	t.Helper()
	body := make([]byte, unix.SizeofIfInfomsg)
	body = append(body, attribute(unix.IFLA_IFNAME, name)...)
	if master > 0 {
		under := []byte{8, 0, 0, 0, 0, 0, 0, 0}
		native.PutUint16(under, 8)
		native.PutUint16(under[2:], unix.IFLA_MASTER)
		native.PutUint32(under[4:], uint32(master))
		body = append(body, under...)
	}
	inner := attribute(unix.IFLA_INFO_KIND, kind)
	outer := make([]byte, 4)
	native.PutUint16(outer, uint16(4+len(inner)))
	native.PutUint16(outer[2:], unix.IFLA_LINKINFO)
	body = append(append(body, outer...), inner...)
	answers, err := request(unix.NETLINK_ROUTE, message(unix.RTM_NEWLINK, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL, body),
		1)
	must(t, err)
	must(t, answers[0])
}

func TestBridge_RemovedWithItsPortsAlone(t *testing.T) {
	ownNetwork(t)
	if name, err := freeBridge(); err != nil || name != "playlet0" {
		t.Fatalf("free is %s, %v", name, err)
	}
	makeLink(t, "playlet0", "bridge", 0)
	makeLink(t, "other0", "bridge", 0)
	makeLink(t, "playlet1", "veth", 0)
	ours, err := net.InterfaceByName("playlet0")
	must(t, err)
	theirs, err := net.InterfaceByName("other0")
	must(t, err)
	makeLink(t, "port0", "veth", ours.Index)
	makeLink(t, "port1", "veth", theirs.Index)
	if name, err := freeBridge(); err != nil || name != "playlet2" {
		t.Errorf("free is %s, %v", name, err)
	}
	for range 2 { // again, when it is gone
		must(t, removeBridge("playlet0"))
	}
	must(t, removeBridge("playlet1")) // has the name, and is no bridge
	for name, want := range map[string]bool{"playlet0": false, "port0": false, "other0": true, "port1": true, "playlet1": true} {
		if _, err := net.InterfaceByName(name); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", name, err == nil, want)
		}
	}
	must(t, deleteLink(ours.Index)) // that is gone
}

func TestKindIsFoundInNonsense(_ *testing.T) {
	for _, info := range [][]byte{nil, {1}, {3, 0, 0, 0}, {255, 255, 1, 0}, {5, 0, 2, 0, 9}, {4, 0, 1, 0}} {
		kindOf(info) // must not fail
	}
}

func FuzzKindOf(f *testing.F) {
	f.Add(attribute(unix.IFLA_INFO_KIND, "bridge"))
	f.Fuzz(func(_ *testing.T, info []byte) { kindOf(info) })
}
