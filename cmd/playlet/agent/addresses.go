package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/registration"
	"github.com/playlet-dev/playlet/config"
)

// externalCloud is the --cloud-provider with which a cloud controller manager completes the Node.
const externalCloud = "external"

// NodeIPs returns the addresses of the node. An address of --node-ip is included even while this machine lacks it.
func NodeIPs(node *config.Node, log *slog.Logger) []netip.Addr {
	found, err := registration.Addresses{Given: node.NodeIPs, Name: node.NodeName}.Find(context.Background())
	if err != nil {
		log.Warn("this node's addresses cannot be determined", "error", err)
		found = slices.DeleteFunc(slices.Clone(node.NodeIPs), netip.Addr.IsUnspecified)
	}
	return found
}

// nodeAddresses finds this node's addresses and keeps those found last. Safe for concurrent use.
type nodeAddresses struct {
	node    *config.Node
	log     *slog.Logger
	cluster *cluster // nil on a standalone node
	found   atomic.Pointer[[]netip.Addr]
}

// newAddresses has this node's addresses as they are now.
func newAddresses(node *config.Node, c *cluster, log *slog.Logger) *nodeAddresses {
	n, found := &nodeAddresses{node: node, log: log, cluster: c}, NodeIPs(node, log)
	n.found.Store(&found)
	return n
}

// last are the addresses found last. They must not be changed.
func (n *nodeAddresses) last() []netip.Addr { return ptr.Deref(n.found.Load(), nil) }

// find looks for the addresses as they are now, for the Node and for pods.
func (n *nodeAddresses) find(ctx context.Context) ([]netip.Addr, error) {
	found, err := registration.Addresses{Given: n.node.NodeIPs, Name: n.node.NodeName, Last: n.last()}.Find(ctx)
	if err == nil {
		n.found.Store(&found)
	}
	return found, err
}

// hostIPs returns the node addresses that pods report. These are the Node's addresses from the cloud controller manager, which
// need not belong to this machine. Until it sets any, the machine's addresses are used, so that the pods that bring up a cluster
// do not wait.
func (n *nodeAddresses) hostIPs() (out []string) {
	if n.node.CloudProvider == externalCloud && n.cluster != nil {
		if given := n.cluster.registered.Load().Addresses; len(given) > 0 {
			return given
		}
	}
	for _, ip := range n.last() {
		out = append(out, ip.String())
	}
	return out
}

// unsettled reports whether the Node's addresses are needed but have not been read yet.
func (n *nodeAddresses) unsettled() bool {
	return n.node.CloudProvider == externalCloud && n.cluster != nil && !n.cluster.registered.Load().Registered
}

// look reads the addresses and logs changes: a machine may have none yet when the agent starts.
func (n *nodeAddresses) look(ctx context.Context) error {
	was := n.last()
	found, err := n.find(ctx)
	if err == nil && !slices.Equal(found, was) {
		n.log.Info("the node's addresses have changed", "addresses", found, "before", was)
	}
	return err
}

// certified are the addresses that the serving certificate is asked for; none until they are known.
func (n *nodeAddresses) certified() []v1.NodeAddress {
	if n.unsettled() {
		return nil
	}
	out := []v1.NodeAddress{{Type: v1.NodeHostName, Address: n.node.NodeName}}
	for _, ip := range n.hostIPs() {
		out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	return out
}
