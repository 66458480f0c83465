package doctor

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

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
		all = append(all, port{n, at(host), "the observatory (--observatory-address)"})
	}
	return slices.DeleteFunc(all, func(p port) bool { return p.number == 0 })
}

// listener is a TCP socket that listens.
type listener struct {
	at    netip.AddrPort
	inode string
}

// checkPorts finds who listens on the agent's ports. Nothing is opened, so that an agent that just starts finds them free.
func checkPorts(_ context.Context, m *Machine) []Finding {
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
		holder, _ := m.holder(filepath.Join(m.Node.RootDir, "playlet", "lock"))
		if known && who == holder {
			ours = append(ours, strconv.Itoa(p.number))
			continue
		}
		name := "a process that cannot be seen"
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
		good = append(good, "the agent's that runs: "+strings.Join(ours, ", "))
	}
	if len(good) == 0 && len(found) == 0 {
		good = []string{"none is configured"}
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
func (m *Machine) listeners() ([]listener, error) {
	const listening = "0A"
	var out []listener
	for _, name := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(filepath.Join(m.Proc, "net", name))
		if err != nil {
			if name == "tcp6" { // IPv6 is off
				continue
			}
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != listening {
				continue
			}
			at, err := socketAddress(f[1])
			if err != nil {
				return nil, fmt.Errorf("/proc/net/%s: %w", name, err)
			}
			out = append(out, listener{at, f[9]})
		}
	}
	return out, nil
}

// socketAddress reads "0100007F:2808": words of the address in the machine's byte order, and the port.
func socketAddress(text string) (netip.AddrPort, error) {
	host, number, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for i := 0; i+4 <= len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	addr, ok := netip.AddrFromSlice(raw)
	n, err := strconv.ParseUint(number, 16, 16)
	if err != nil || !ok {
		return netip.AddrPort{}, fmt.Errorf("%q is no address", text)
	}
	return netip.AddrPortFrom(addr, uint16(n)), nil
}

// owner finds the process with a socket.
func (m *Machine) owner(inode string) (process, bool) {
	for _, p := range m.processes() {
		if m.opens(p, "socket:["+inode+"]") {
			return p, true
		}
	}
	return process{}, false
}
