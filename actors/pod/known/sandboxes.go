package known

import (
	"slices"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/find"
	"github.com/playlet-dev/playlet/messages"
)

// sandboxes is what the pod knows of its sandboxes.
type sandboxes struct {
	All     []sandbox // newest first
	Next    uint32    // attempt of the next one
	LastIPs []string  // of the last one that had any
	HostNet bool      // the pod wants the host's network
}

// sandbox is one of them.
type sandbox struct {
	messages.SandboxFact
	noticed time.Time // see attempt
	Stopped bool      // its network was given back
}

// Current is the newest sandbox, when it is ready and of use to the pod.
func (b *sandboxes) Current() *sandbox {
	if len(b.All) > 0 && b.All[0].Ready && b.fits(&b.All[0]) {
		return &b.All[0]
	}
	return nil
}

// Unfit is the newest sandbox, when it is ready and yet has to be replaced.
func (b *sandboxes) Unfit() *sandbox {
	if len(b.All) > 0 && b.All[0].Ready && !b.fits(&b.All[0]) {
		return &b.All[0]
	}
	return nil
}

// fits is the kubelet's rule for a sandbox that need not be replaced: it is on the network that the pod wants, and has an
// address there.
func (b *sandboxes) fits(s *sandbox) bool { return s.HostNet == b.HostNet && (b.HostNet || !s.NoIP) }

// Of is the sandbox with this ID; nil where there is none.
func (b *sandboxes) Of(id string) *sandbox {
	return find.In(b.All, func(s *sandbox) bool { return s.ID == id })
}

// Learn takes the runtime's word on one sandbox, at a time of our own clock.
func (b *sandboxes) Learn(f messages.SandboxFact, at time.Time) {
	b.Next = max(b.Next, f.Attempt+1)
	if s := b.Of(f.ID); s != nil {
		if len(f.IPs) == 0 {
			f.IPs = s.IPs
		}
		f.Ready = f.Ready && !s.Stopped
		s.SandboxFact = f
	} else {
		i, _ := slices.BinarySearchFunc(b.All, f, func(a sandbox, f messages.SandboxFact) int {
			return int(f.Attempt) - int(a.Attempt)
		})
		b.All = slices.Insert(b.All, i, sandbox{SandboxFact: f, noticed: at})
	}
	if newest := b.All[0]; len(newest.IPs) > 0 {
		b.LastIPs = newest.IPs
	}
}

// Keep forgets the sandboxes that a reading lacks, and gives their IDs.
func (b *sandboxes) Keep(f messages.PodFacts) (gone []string) {
	b.All = slices.DeleteFunc(b.All, func(s sandbox) bool {
		lacks := !slices.ContainsFunc(f.Sandboxes, func(o messages.SandboxFact) bool { return o.ID == s.ID })
		if lacks = lacks && s.noticed.Before(f.ReadAt); lacks {
			gone = append(gone, s.ID)
		}
		return lacks
	})
	return gone
}
