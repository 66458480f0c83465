package main

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/playlet-dev/playlet/actors/registration"
	"github.com/playlet-dev/playlet/config"
)

// externalCloud is the --cloud-provider with which a cloud controller manager completes the Node.
const externalCloud = "external"

// nodeAddresses finds the node's addresses.
func nodeAddresses(node *config.Node) registration.Addresses {
	return registration.Addresses{Given: node.NodeIPs, Name: node.NodeName}
}

// nodeIPs are the node's addresses. Those of --node-ip count here also while this machine has them not.
func nodeIPs(node *config.Node, log *slog.Logger) []netip.Addr {
	found, err := nodeAddresses(node).Find(context.Background())
	if err != nil {
		log.Warn("this node's addresses cannot be had as they are wanted", "reason", err)
		found = slices.DeleteFunc(slices.Clone(node.NodeIPs), netip.Addr.IsUnspecified)
	}
	return found
}

// addressBook has the node's addresses as they were found last. Safe for concurrent use.
type addressBook struct {
	p atomic.Pointer[knownAddresses]
}

type knownAddresses struct {
	found []netip.Addr
	texts []string
}

// load is what is known now. It must not be changed.
func (b *addressBook) load() []string {
	if p := b.p.Load(); p != nil {
		return p.texts
	}
	return nil
}

// last is load as addresses.
func (b *addressBook) last() []netip.Addr {
	if p := b.p.Load(); p != nil {
		return p.found
	}
	return nil
}

func (b *addressBook) store(found []netip.Addr) {
	out := make([]string, 0, len(found))
	for _, ip := range found {
		out = append(out, ip.String())
	}
	b.p.Store(&knownAddresses{found, out})
}

// addresses are this node's as they are now, for the Node and for pods.
func (a *agent) addresses(ctx context.Context) ([]netip.Addr, error) {
	look := nodeAddresses(a.node)
	look.Last = a.addressBook.last()
	found, err := look.Find(ctx)
	if err == nil {
		a.addressBook.store(found)
	}
	return found, err
}

// hostIPs are the addresses that pods tell of this node. Those that a cloud controller manager gave the Node count, which need not be on
// this machine; as long as it gave none, those of the machine do, so that what brings up a cluster waits for none.
func (a *agent) hostIPs() []string {
	if a.node.CloudProvider == externalCloud {
		if told := a.registered.Load().Addresses; len(told) > 0 {
			return told
		}
	}
	return a.addressBook.load()
}

// unsettledIPs says that the Node has not been heard of yet, whose addresses count.
func (a *agent) unsettledIPs() bool {
	return a.node.CloudProvider == externalCloud && a.api != nil && !a.registered.Load().Registered
}

// followAddresses looks for this node's addresses until ctx ends: a machine may have none yet when the agent starts.
func (a *agent) followAddresses(ctx context.Context) {
	tick := time.NewTicker(a.node.Kubelet.NodeStatusUpdateFrequency.Duration)
	defer tick.Stop()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		told = a.lookForAddresses(ctx, told)
	}
}

// lookForAddresses says what changed, and why none are found where that was not told last; it returns the latter.
func (a *agent) lookForAddresses(ctx context.Context, told string) string {
	was := a.addressBook.last()
	found, err := a.addresses(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		if err.Error() != told {
			a.log.Warn("the node's addresses are left as they were", "reason", err)
		}
		return err.Error()
	case !slices.Equal(found, was):
		a.log.Info("the node's addresses are others now", "addresses", found, "before", was)
	}
	return ""
}
