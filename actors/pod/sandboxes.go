package pod

import (
	"slices"
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// sandboxes is what the pod knows of its sandboxes.
type sandboxes struct {
	all         []messages.SandboxFact // newest first
	failed      *messages.Reason       // of the last attempt to start one
	tries       int                    // failed in a row
	retry       time.Time
	next        uint32   // attempt of the next one
	lastIPs     []string // of the last one that had any
	hostNet     bool     // the pod wants the host's network
	changed     bool     // an Event says that it has to be replaced
	unconnected string   // why it has no network, as recorded
	settled     string   // the sandbox of no use that was read again, before it is stopped
	// stopped has the sandboxes whose network was given back.
	stopped map[string]bool
}

// current is the newest sandbox, when it is ready and of use to the pod.
func (b *sandboxes) current() *messages.SandboxFact {
	if len(b.all) > 0 && b.all[0].Ready && b.fits(&b.all[0]) {
		return &b.all[0]
	}
	return nil
}

// unfit is the newest sandbox, when it is ready and yet has to be replaced.
func (b *sandboxes) unfit() *messages.SandboxFact {
	if len(b.all) > 0 && b.all[0].Ready && !b.fits(&b.all[0]) {
		return &b.all[0]
	}
	return nil
}

// fits is the kubelet's rule for a sandbox that need not be replaced: it is on the network that the pod wants, and has an
// address there.
func (b *sandboxes) fits(s *messages.SandboxFact) bool {
	return s.HostNet == b.hostNet && (b.hostNet || !s.NoIP)
}

// learn takes one sandbox of a reading.
func (b *sandboxes) learn(s messages.SandboxFact) {
	b.next = max(b.next, s.Attempt+1)
	if i := slices.IndexFunc(b.all, func(o messages.SandboxFact) bool { return o.ID == s.ID }); i >= 0 {
		if len(s.IPs) == 0 {
			s.IPs = b.all[i].IPs
		}
		s.Ready = s.Ready && !b.stopped[s.ID]
		b.all[i] = s
	} else {
		at, _ := slices.BinarySearchFunc(b.all, s, func(a, c messages.SandboxFact) int { return int(c.Attempt) - int(a.Attempt) })
		b.all = slices.Insert(b.all, at, s)
	}
	if newest := b.all[0]; len(newest.IPs) > 0 {
		b.lastIPs = newest.IPs
	}
}
