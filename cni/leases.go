package cni

import (
	"cmp"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// lease is an address that host-local has reserved on disk: a file named by it, which holds the container's ID and, on a
// second line, the interface.
type lease struct{ file, container, ifname string }

// defaultLeases is where host-local keeps them, a folder for each network.
const defaultLeases = "/var/lib/cni/networks"

// maxLease bounds a reservation, in bytes.
const maxLease = 4 << 10

// leases returns the leases of the network's host-local plugins. It skips leases that cannot be read.
func (n *Network) leases() []lease {
	var out []lease
	for _, p := range n.list.Plugins {
		var conf struct {
			IPAM struct {
				Type    string `json:"type"`
				DataDir string `json:"dataDir"`
			} `json:"ipam"`
		}
		if err := json.Unmarshal(p.Bytes, &conf); err != nil || conf.IPAM.Type != "host-local" {
			continue
		}
		dir := filepath.Join(cmp.Or(conf.IPAM.DataDir, defaultLeases), n.Name)
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if _, err := netip.ParseAddr(strings.ReplaceAll(e.Name(), "_", ":")); err != nil || !e.Type().IsRegular() {
				continue
			}
			text, err := readAtMost(filepath.Join(dir, e.Name()), maxLease)
			if err != nil {
				continue
			}
			id, ifname, _ := strings.Cut(string(text), "\n")
			out = append(out, lease{filepath.Join(dir, e.Name()), strings.TrimSpace(id), strings.TrimSpace(ifname)})
		}
	}
	return out
}

func has(prefixes []netip.Prefix, ip net.IP) bool {
	wanted, ok := netip.AddrFromSlice(ip)
	if !ok {
		return false
	}
	for _, p := range prefixes {
		if p.Addr() == wanted.Unmap() {
			return true
		}
	}
	return false
}
