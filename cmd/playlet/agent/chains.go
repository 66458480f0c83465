package agent

import (
	"errors"

	"github.com/coreos/go-iptables/iptables"
	"k8s.io/utils/ptr"
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
func makeChains(v4, v6 packetFilter) error {
	err := makeChain(v4, "filter", firewallChain)
	if err == nil {
		err = errors.Join(
			v4.InsertUnique("filter", "OUTPUT", 1, "-j", firewallChain),
			v4.InsertUnique("filter", "INPUT", 1, "-j", firewallChain),
			v4.AppendUnique("filter", firewallChain, "!", "-s", "127.0.0.0/8", "-d", "127.0.0.0/8",
				"-m", "comment", "--comment", "block incoming localnet connections",
				"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP"))
	}
	return errors.Join(makeChain(v4, "mangle", hintChain), makeChain(v6, "mangle", hintChain), err)
}

func makeChain(in packetFilter, table, chain string) error {
	there, err := in.ChainExists(table, chain)
	if err == nil && !there {
		err = in.NewChain(table, chain)
	}
	return err
}

// keepChains makes the chains on this host, where that is wanted [makeIPTablesUtilChains].
func (a *Agent) keepChains() error {
	if !ptr.Deref(a.node.Kubelet.MakeIPTablesUtilChains, true) {
		return nil
	}
	v4, err4 := iptables.New(iptables.Timeout(iptablesTimeout))
	v6, err6 := iptables.New(iptables.IPFamily(iptables.ProtocolIPv6), iptables.Timeout(iptablesTimeout))
	if err := errors.Join(err4, err6); err != nil {
		return err
	}
	return makeChains(v4, v6)
}
