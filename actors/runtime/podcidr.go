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

// cidrs holds the pods' address ranges, desired and actual. A runtime with a template generates the network configuration from
// them (containerd: cni.conf_template).
type cidrs struct {
	desired string // comma-separated; empty: unknown
	actual  string // accepted by this runtime since it was connected
	link    int    // counts the connections, each of which may be to another runtime
	telling bool
	failed  string // as logged last
	node    *atomic.Pointer[string]
}

// newCIDRs starts with the Node's ranges if an earlier actor of this process received them, since node outlives the actor.
// Otherwise it starts with the configured ones.
func newCIDRs(configured string, node *atomic.Pointer[string]) cidrs {
	if known := node.Load(); known != nil {
		configured = *known
	}
	return cidrs{desired: configured, node: node}
}

type (
	cidrsSent struct {
		cidrs string
		link  int // the link at its start
		err   error
	}
	cidrsDue struct{}
)

const (
	cidrsTimeout = 30 * time.Second
	cidrsRest    = 5 * time.Second
)

// requestCIDRs handles the Node's ranges. A Node without any changes nothing, as with the kubelet.
func (a *actor) requestCIDRs(ctx supervisors.Context, m messages.NodeObserved) {
	if m.Node == nil || len(m.Node.Spec.PodCIDRs) == 0 {
		return
	}
	ranges := strings.Join(m.Node.Spec.PodCIDRs, ",")
	a.cidrs.desired = ranges
	a.cidrs.node.Store(&ranges)
	a.sendCIDRs(ctx)
}

// sendCIDRs sends the runtime ranges that it has not accepted yet. It joins an operation that an earlier actor started.
func (a *actor) sendCIDRs(ctx supervisors.Context) {
	c := &a.cidrs
	if a.phase != connected || c.telling || c.desired == "" {
		return
	}
	if c.actual == c.desired {
		a.refused("") // the refused range is no longer desired
		return
	}
	c.telling = true
	wanted, link, runtime, ops := c.desired, c.link, a.opts.CRI, a.opts.Operations
	ctx.Do(supervisors.Work{Name: "UpdateRuntimeConfig", Timeout: cidrsTimeout, Run: func(ctx context.Context) any {
		did, err := ops.Do(ctx, "pod-cidr", cidrsTimeout, func(ctx context.Context) (any, error) {
			return wanted, runtime.UpdateRuntimeConfig(ctx, wanted)
		})
		text, _ := did.(string)
		return cidrsSent{text, link, err}
	}})
}

func (a *actor) passedCIDRs(ctx supervisors.Context, m cidrsSent) {
	c := &a.cidrs
	c.telling = false
	switch {
	case m.link != c.link: // an answer of a previous runtime
	case m.err == nil:
		c.actual, c.failed = m.cidrs, ""
		a.refused("")
		ctx.Log().Info("passed podCIDR to the container runtime", "podCIDR", m.cidrs)
		if !a.link.snapshot.NetworkReady {
			a.check(ctx) // the network may be ready now
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
	a.sendCIDRs(ctx) // the ranges may have changed meanwhile
}

// refused publishes why the runtime rejects the ranges; empty: it does not.
func (a *actor) refused(what string) {
	if a.link.snapshot.Refused != what {
		a.link.snapshot.Refused = what
		a.publish()
	}
}
