package runtime

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// cidrs is the pods' ranges of addresses, desired and actual. A runtime that has a template for it makes the network's
// configuration of them (containerd: cni.conf_template).
type cidrs struct {
	desired string // comma-separated; empty: none are known
	actual  string // what this runtime has taken since it was connected
	link    int    // counts the connections, each of which may be to another runtime
	telling bool
	failed  string // as the log was told last
	node    *atomic.Pointer[string]
}

// newCIDRs begins with those of the Node, where an earlier actor of this process heard of them, as node outlives the actor. Else
// it begins with those of the configuration.
func newCIDRs(configured string, node *atomic.Pointer[string]) cidrs {
	if known := node.Load(); known != nil {
		configured = *known
	}
	return cidrs{desired: configured, node: node}
}

type (
	cidrsPassed struct {
		cidrs string
		link  int // when it was begun
		err   error
	}
	cidrsDue struct{}
)

const (
	cidrsTimeout = 30 * time.Second
	cidrsRest    = 5 * time.Second
)

// wantCIDRs takes the Node's ranges. A Node that has none says nothing, as with the kubelet.
func (a *actor) wantCIDRs(ctx supervisors.Context, m messages.NodeObserved) {
	if m.Node == nil || len(m.Node.Spec.PodCIDRs) == 0 {
		return
	}
	ranges := strings.Join(m.Node.Spec.PodCIDRs, ",")
	a.cidrs.desired = ranges
	a.cidrs.node.Store(&ranges)
	a.tellCIDRs(ctx)
}

// tellCIDRs tells the runtime what it has not taken yet. It is an operation: one that an earlier actor began is joined.
func (a *actor) tellCIDRs(ctx supervisors.Context) {
	c := &a.cidrs
	if a.phase != connected || c.telling || c.desired == "" {
		return
	}
	if c.actual == c.desired {
		a.refused("") // what it did not take is wanted no more
		return
	}
	c.telling = true
	wanted, link, runtime, ops := c.desired, c.link, a.opts.CRI, a.opts.Operations
	ctx.Do(supervisors.Work{Name: "UpdateRuntimeConfig", Timeout: cidrsTimeout, Run: func(ctx context.Context) any {
		did, err := ops.Do(ctx, "pod-cidr", cidrsTimeout, func(ctx context.Context) (any, error) {
			return wanted, runtime.UpdateRuntimeConfig(ctx, wanted)
		})
		text, _ := did.(string)
		return cidrsPassed{text, link, err}
	}})
}

func (a *actor) passedCIDRs(ctx supervisors.Context, m cidrsPassed) {
	c := &a.cidrs
	c.telling = false
	switch {
	case m.link != c.link: // it is no word of the runtime that is there now
	case m.err == nil:
		c.actual, c.failed = m.cidrs, ""
		a.refused("")
		ctx.Log().Info("podCIDR was passed to the container runtime", "podCIDR", m.cidrs)
		if !a.link.snapshot.NetworkReady {
			a.check(ctx) // it may be, now
		}
	case cri.IsUnimplemented(m.err):
		if c.failed == "" {
			c.failed = m.err.Error()
			ctx.Log().Info("the container runtime does not implement UpdateRuntimeConfig; podCIDR was not passed to it")
		}
		c.actual = c.desired
		a.refused("")
		return
	default:
		if text := m.err.Error(); c.failed != text {
			c.failed = text
			ctx.Log().Warn("UpdateRuntimeConfig failed; will retry", "podCIDR", c.desired, "error", m.err)
		}
		a.refused("the container runtime does not take podCIDR " + c.desired + "; will retry: " + m.err.Error())
		ctx.After(cidrsRest, cidrsDue{})
		a.suspect(ctx, m.err)
		return
	}
	a.tellCIDRs(ctx) // they may have changed meanwhile
}

// refused publishes what the runtime does not take; empty: nothing.
func (a *actor) refused(what string) {
	if a.link.snapshot.Refused != what {
		a.link.snapshot.Refused = what
		a.publish()
	}
}
