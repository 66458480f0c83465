package csi

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/playlet-dev/playlet/messages"
)

// Call is a call of a driver that changes something and has not ended yet. It implements messages.CauseError.
type Call struct {
	Driver, Method string
	Volume         string // the name from Owner
}

// Error implements error. The text does not change while calls of one kind are repeated.
func (c Call) Error() string {
	return fmt.Sprintf("CSI driver %s has not answered %s for volume %s yet", c.Driver, c.Method, c.Volume)
}

// Cause implements messages.CauseError.
func (c Call) Cause() messages.Cause {
	return messages.Cause{Code: messages.CauseDriverCall, Name: c.Driver}
}

// pending holds the calls in progress. It is safe for concurrent use.
type pending struct {
	mu    sync.Mutex
	calls map[*Call]string // the owners' IDs
}

// add adds a call of the owner. The caller calls remove at its end.
func (p *pending) add(c Call, owner string) (remove func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[&c] = owner
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.calls, &c)
	}
}

// Calls returns the calls in progress of an owner, by Owner.ID, sorted by volume and method.
func (d *Drivers) Calls(owner string) (out []Call) {
	d.pending.mu.Lock()
	defer d.pending.mu.Unlock()
	for c, of := range d.pending.calls {
		if of == owner {
			out = append(out, *c)
		}
	}
	slices.SortFunc(out, func(a, b Call) int { return strings.Compare(a.Volume+a.Method, b.Volume+b.Method) })
	return out
}
