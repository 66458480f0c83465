package registration

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/guard"
)

const (
	// machineTimeout bounds one reading of the machine and its addresses.
	machineTimeout = 10 * time.Second
	// networkTimeout bounds one check of the network plugins.
	networkTimeout = 4 * time.Second
	// imagesTimeout bounds one list of images. imagesEvery is the period between lists, the kubelet's.
	imagesTimeout = 2 * time.Minute
	imagesEvery   = 30 * time.Second
)

// The results arrive in parts, so that readiness waits for none of them.
type (
	machineResult struct {
		machine   Machine
		err       error
		addresses []netip.Addr
		unknown   error // the reading of the addresses failed
	}
	networkResult struct{ problem error }
	imagesResult  struct {
		images []v1.ContainerImage
		err    error
	}
)

// gather reads the runtime's state and begins all other readings. One reading of each kind is in progress at a time.
func (a *actor) gather(ctx supervisors.Context) {
	f := &a.state.facts
	f.runtime = a.opts.Runtime()
	if f.runtime.NetworkReady {
		f.network = ""
	}
	a.awaitGrace(ctx)
	a.lookAtMachine(ctx)
	a.askNetwork(ctx)
	a.listImages(ctx)
}

// awaitGrace schedules a gathering for the end of the runtime's grace period: the next regular one may be minutes away.
func (a *actor) awaitGrace(ctx supervisors.Context) {
	if a.grace != nil {
		a.grace.Cancel()
		a.grace = nil
	}
	r := a.state.facts.runtime
	since := r.Since
	if since.IsZero() {
		since = a.state.began
	}
	if left := since.Add(runtimeGrace).Sub(ctx.Now()); !r.Ready && left > 0 {
		a.grace = ctx.After(left, graceDue{})
	}
}

func (a *actor) lookAtMachine(ctx supervisors.Context) {
	if a.looking {
		return
	}
	a.looking = true
	o := a.opts
	ctx.Do(supervisors.Work{Name: "LookAtMachine", Timeout: machineTimeout, Run: func(ctx context.Context) any {
		var m machineResult
		var addresses sync.WaitGroup
		addresses.Go(func() {
			m.unknown = guard.Call(supervisors.LogOf(ctx), "the node's addresses", func() (err error) {
				m.addresses, err = o.Addresses(ctx)
				return err
			})
		})
		m.machine, m.err = o.Machine(ctx)
		addresses.Wait()
		return m
	}})
}

func (a *actor) onMachine(ctx supervisors.Context, m machineResult) {
	a.looking = false
	f := &a.state.facts
	switch was := f.machineErr; {
	case m.err != nil && (was == nil || was.Error() != m.err.Error()):
		ctx.Log().Warn("some properties of the machine could not be read; using the last known values", "error", m.err)
	case m.err == nil && was != nil:
		ctx.Log().Info("the machine can be read again")
	}
	f.machine, f.machineErr = m.machine, m.err
	if m.unknown != nil {
		if f.addressErr == nil || f.addressErr.Error() != m.unknown.Error() {
			ctx.Log().Warn("the node's addresses were not updated", "reason", m.unknown)
		}
	} else {
		f.addresses = m.addresses
	}
	f.addressErr = m.unknown
	a.state.gathered = true
	a.act(ctx)
}

// askNetwork looks for the cause when the runtime reports that the network is not ready.
func (a *actor) askNetwork(ctx supervisors.Context) {
	r := a.state.facts.runtime
	if !r.Ready || r.NetworkReady || a.opts.Network == nil {
		return
	}
	if a.asking {
		a.askAgain = true
		return
	}
	a.asking = true
	ask := a.opts.Network
	ctx.Do(supervisors.Work{Name: "AskNetwork", Timeout: networkTimeout, Run: func(ctx context.Context) any {
		return networkResult{ask(ctx)}
	}})
}

func (a *actor) onNetwork(ctx supervisors.Context, m networkResult) {
	a.asking = false
	switch f := &a.state.facts; {
	case f.runtime.NetworkReady, errors.Is(m.problem, ErrNotKnown):
	case m.problem != nil:
		f.network = m.problem.Error()
	default:
		f.network = ""
	}
	if a.askAgain {
		a.askAgain = false
		a.askNetwork(ctx)
	}
	a.act(ctx)
}

func (a *actor) listImages(ctx supervisors.Context) {
	now := ctx.Now()
	if a.listing || !a.state.facts.runtime.Ready || !a.imagesAt.IsZero() && now.Sub(a.imagesAt) < imagesEvery {
		return
	}
	a.listing, a.imagesAt = true, now
	images, limit := a.opts.Images, a.opts.Desired.MaxImages
	ctx.Do(supervisors.Work{Name: "ListImages", Timeout: imagesTimeout, Run: func(ctx context.Context) any {
		all, err := images.ListImages(ctx, nil)
		return imagesResult{imagesOf(all, limit), err}
	}})
}

func (a *actor) onImages(ctx supervisors.Context, m imagesResult) {
	a.listing = false
	if m.err != nil { // the actor runtime reports it
		return
	}
	a.state.facts.images, a.state.facts.imagesRead = m.images, true
	a.act(ctx)
}
