package known

import (
	"slices"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/find"
	"github.com/playlet-dev/playlet/messages"
)

// Sandboxes is what the pod knows of its sandboxes.
type Sandboxes struct {
	All     []Sandbox // newest first
	Next    uint32    // attempt of the next one
	LastIPs []string  // of the last one that had any
	HostNet bool      // the pod wants the host's network
}

// Sandbox is one of them.
type Sandbox struct {
	messages.SandboxFact
	noticed time.Time // see attempt
	Stopped bool      // its network was given back
}

// Current is the newest sandbox, when it is ready and of use to the pod.
func (b *Sandboxes) Current() *Sandbox {
	if len(b.All) > 0 && b.All[0].Ready && b.fits(&b.All[0]) {
		return &b.All[0]
	}
	return nil
}

// Unfit is the newest sandbox, when it is ready and yet has to be replaced.
func (b *Sandboxes) Unfit() *Sandbox {
	if len(b.All) > 0 && b.All[0].Ready && !b.fits(&b.All[0]) {
		return &b.All[0]
	}
	return nil
}

// fits is the kubelet's rule for a sandbox that need not be replaced: it is on the network that the pod wants, and has an
// address there.
func (b *Sandboxes) fits(s *Sandbox) bool { return s.HostNet == b.HostNet && (b.HostNet || !s.NoIP) }

// Of is the sandbox with this ID; nil where there is none.
func (b *Sandboxes) Of(id string) *Sandbox {
	return find.In(b.All, func(s *Sandbox) bool { return s.ID == id })
}

// Learn takes the runtime's word on one sandbox, at a time of our own clock.
func (b *Sandboxes) Learn(f messages.SandboxFact, at time.Time) {
	b.Next = max(b.Next, f.Attempt+1)
	if s := b.Of(f.ID); s != nil {
		if len(f.IPs) == 0 {
			f.IPs = s.IPs
		}
		f.Ready = f.Ready && !s.Stopped
		s.SandboxFact = f
	} else {
		i, _ := slices.BinarySearchFunc(b.All, f, func(a Sandbox, f messages.SandboxFact) int {
			return int(f.Attempt) - int(a.Attempt)
		})
		b.All = slices.Insert(b.All, i, Sandbox{SandboxFact: f, noticed: at})
	}
	if newest := b.All[0]; len(newest.IPs) > 0 {
		b.LastIPs = newest.IPs
	}
}

// Keep forgets the sandboxes that a reading lacks, and gives their IDs.
func (b *Sandboxes) Keep(f messages.PodFacts) (gone []string) {
	b.All = slices.DeleteFunc(b.All, func(s Sandbox) bool {
		lacks := !slices.ContainsFunc(f.Sandboxes, func(o messages.SandboxFact) bool { return o.ID == s.ID })
		if lacks = lacks && s.noticed.Before(f.ReadAt); lacks {
			gone = append(gone, s.ID)
		}
		return lacks
	})
	return gone
}
