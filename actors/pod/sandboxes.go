package pod

import (
	"slices"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/find"
	"github.com/playlet-dev/playlet/messages"
)

// sandboxes is what the pod knows of its sandboxes.
type sandboxes struct {
	all     []sandbox // newest first
	next    uint32    // attempt of the next one
	lastIPs []string  // of the last one that had any
	hostNet bool      // the pod wants the host's network
}

// sandbox is one of them.
type sandbox struct {
	messages.SandboxFact
	noticed time.Time // see attempt
	stopped bool      // its network was given back
}

// current is the newest sandbox, when it is ready and of use to the pod.
func (b *sandboxes) current() *sandbox {
	if len(b.all) > 0 && b.all[0].Ready && b.fits(&b.all[0]) {
		return &b.all[0]
	}
	return nil
}

// unfit is the newest sandbox, when it is ready and yet has to be replaced.
func (b *sandboxes) unfit() *sandbox {
	if len(b.all) > 0 && b.all[0].Ready && !b.fits(&b.all[0]) {
		return &b.all[0]
	}
	return nil
}

// fits is the kubelet's rule for a sandbox that need not be replaced: it is on the network that the pod wants, and has an
// address there.
func (b *sandboxes) fits(s *sandbox) bool { return s.HostNet == b.hostNet && (b.hostNet || !s.NoIP) }

// of is the sandbox with this ID; nil where there is none.
func (b *sandboxes) of(id string) *sandbox {
	return find.In(b.all, func(s *sandbox) bool { return s.ID == id })
}

// learn takes the runtime's word on one sandbox, at a time of our own clock.
func (b *sandboxes) learn(f messages.SandboxFact, at time.Time) {
	b.next = max(b.next, f.Attempt+1)
	if s := b.of(f.ID); s != nil {
		if len(f.IPs) == 0 {
			f.IPs = s.IPs
		}
		f.Ready = f.Ready && !s.stopped
		s.SandboxFact = f
	} else {
		i, _ := slices.BinarySearchFunc(b.all, f, func(a sandbox, f messages.SandboxFact) int {
			return int(f.Attempt) - int(a.Attempt)
		})
		b.all = slices.Insert(b.all, i, sandbox{SandboxFact: f, noticed: at})
	}
	if newest := b.all[0]; len(newest.IPs) > 0 {
		b.lastIPs = newest.IPs
	}
}

// keep forgets the sandboxes that a reading lacks, and gives their IDs.
func (b *sandboxes) keep(f messages.PodFacts) (gone []string) {
	b.all = slices.DeleteFunc(b.all, func(s sandbox) bool {
		lacks := !slices.ContainsFunc(f.Sandboxes, func(o messages.SandboxFact) bool { return o.ID == s.ID })
		if lacks = lacks && s.noticed.Before(f.ReadAt); lacks {
			gone = append(gone, s.ID)
		}
		return lacks
	})
	return gone
}
