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

// hintChain shows other programs, which bundle their own iptables, whether this host uses the nftables or the legacy variant
// (KEP-3178). firewallChain drops packets to 127.0.0.0/8 that come from other hosts (CVE-2020-8558).
const (
	hintChain     = "KUBE-IPTABLES-HINT"
	firewallChain = "KUBE-FIREWALL"

	// iptablesTimeout is how many seconds the lock of iptables is waited for.
	iptablesTimeout = 10
)

// packetFilter is the part of iptables that chains need, for one address family.
type packetFilter interface {
	ChainExists(table, chain string) (bool, error)
	NewChain(table, chain string) error
	InsertUnique(table, chain string, position int, rule ...string) error
	AppendUnique(table, chain string, rule ...string) error
}

// makeChains creates missing chains and their missing rules.
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

// Keep creates the chains that this host lacks, and their missing rules.
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
