// Package chains makes the chains of iptables that Kubernetes has on each node, and mends them.
package chains

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/coreos/go-iptables/iptables"
)

// hintChain tells other programs, which bring an iptables of their own, whether this host has that of nftables or the one before
// it (KEP-3178). firewallChain keeps packets to 127.0.0.0/8 out that come from elsewhere (CVE-2020-8558).
const (
	hintChain     = "KUBE-IPTABLES-HINT"
	firewallChain = "KUBE-FIREWALL"

	// iptablesTimeout is how many seconds the lock of iptables is waited for.
	iptablesTimeout = 10
)

// packetFilter is what is needed of iptables, of one family of addresses.
type packetFilter interface {
	ChainExists(table, chain string) (bool, error)
	NewChain(table, chain string) error
	InsertUnique(table, chain string, position int, rule ...string) error
	AppendUnique(table, chain string, rule ...string) error
}

// makeChains makes the chains that are not there, and what is missing in them.
func makeChains(in packetFilter, of iptables.Protocol) error {
	err := makeChain(in, "mangle", hintChain)
	if of == iptables.ProtocolIPv6 { // which has no such network
		return err
	}
	if err := errors.Join(err, makeChain(in, "filter", firewallChain)); err != nil {
		return err
	}
	return errors.Join(
		in.InsertUnique("filter", "OUTPUT", 1, "-j", firewallChain),
		in.InsertUnique("filter", "INPUT", 1, "-j", firewallChain),
		in.AppendUnique("filter", firewallChain, "!", "-s", "127.0.0.0/8", "-d", "127.0.0.0/8",
			"-m", "comment", "--comment", "block incoming localnet connections",
			"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP"))
}

func makeChain(in packetFilter, table, chain string) error {
	there, err := in.ChainExists(table, chain)
	if err != nil || there {
		return err
	}
	if err := in.NewChain(table, chain); err != nil {
		if there, _ := in.ChainExists(table, chain); !there { // kube-proxy makes the same
			return err
		}
	}
	return nil
}

// Keep makes the chains that this host lacks, and what is missing in them.
func Keep(context.Context) error {
	err := keepFamily("IPv4", iptables.ProtocolIPv4)
	if _, none := os.Stat("/proc/sys/net/ipv6"); none == nil {
		err = errors.Join(err, keepFamily("IPv6", iptables.ProtocolIPv6))
	}
	return err
}

// keepFamily does so where there is an iptables for it: a host may have nftables alone.
func keepFamily(name string, of iptables.Protocol) error {
	filter, err := iptables.New(iptables.IPFamily(of), iptables.Timeout(iptablesTimeout))
	if errors.Is(err, exec.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = makeChains(filter, of)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
