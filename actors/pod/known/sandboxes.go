package known

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/find"
	"github.com/playlet-dev/playlet/messages"
)

// Sandboxes is the state of the pod's sandboxes.
type Sandboxes struct {
	All     []Sandbox // newest first
	Next    uint32    // attempt of the next one
	LastIPs []string  // of the last sandbox with an address
	HostNet bool      // the pod requests the host's network
}

// Sandbox is the state of one sandbox.
type Sandbox struct {
	messages.SandboxFact
	noticed time.Time // see Attempt
	Stopped bool      // its network was released
}

// Current returns the pod's sandbox, among those that are ready and fit: one with a running container, else one with an ended
// container, else the newest. A sandbox of a call that timed out may appear at any time, with any attempt.
func (s *State) Current() *Sandbox {
	var ran, newest *Sandbox
	for i := range s.Sandboxes.All {
		b := &s.Sandboxes.All[i]
		switch {
		case !b.Ready || !s.Sandboxes.fits(b):
		case s.RunsIn(b.ID):
			return b
		case ran == nil && s.ranIn(b.ID):
			ran = b
		case i == 0:
			newest = b
		}
	}
	return cmp.Or(ran, newest)
}

// RunsIn reports whether a container runs in the sandbox, or is being started there.
func (s *State) RunsIn(sandbox string) bool {
	return slices.ContainsFunc(s.Containers, func(c *Container) bool {
		return c.Alive() && c.Newest().SandboxID == sandbox || c.Stage() == messages.StageStarting && c.Sandbox == sandbox
	})
}

func (s *State) ranIn(sandbox string) bool {
	return slices.ContainsFunc(s.Containers, func(c *Container) bool { return c.MadeIn(sandbox) })
}

// NoteIPs records the addresses of the current sandbox, or else of the newest used one.
func (s *State) NoteIPs() {
	from := s.Current()
	for i := range s.Sandboxes.All {
		if b := &s.Sandboxes.All[i]; from == nil && s.ranIn(b.ID) {
			from = b
		}
	}
	if from == nil && len(s.Sandboxes.All) > 0 {
		from = &s.Sandboxes.All[0]
	}
	if from != nil && len(from.IPs) > 0 {
		s.Sandboxes.LastIPs = from.IPs
	}
}

// Unfit returns the newest sandbox if it is ready but has to be replaced, or nil.
func (b *Sandboxes) Unfit() *Sandbox {
	if len(b.All) > 0 && b.All[0].Ready && !b.fits(&b.All[0]) {
		return &b.All[0]
	}
	return nil
}

// fits reports whether a sandbox need not be replaced, by the kubelet's rule: it has the pod's kind of network, and an address
// there.
func (b *Sandboxes) fits(s *Sandbox) bool { return s.HostNet == b.HostNet && (b.HostNet || !s.NoIP) }

// Of returns the sandbox with this ID, or nil.
func (b *Sandboxes) Of(id string) *Sandbox {
	return find.In(b.All, func(s *Sandbox) bool { return s.ID == id })
}

// learn records the runtime's report on one sandbox, at a time of our own clock.
func (b *Sandboxes) learn(f messages.SandboxFact, at time.Time) {
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
}

// keep drops the sandboxes that a reading lacks, and returns their IDs.
func (b *Sandboxes) keep(f messages.PodFacts) (gone []string) {
	b.All = slices.DeleteFunc(b.All, func(s Sandbox) bool {
		lacks := !slices.ContainsFunc(f.Sandboxes, func(o messages.SandboxFact) bool { return o.ID == s.ID })
		if lacks = lacks && s.noticed.Before(f.ReadAt); lacks {
			gone = append(gone, s.ID)
		}
		return lacks
	})
	return gone
}

// LearnSandbox records the runtime's report on one sandbox, at a time of our own clock.
func (s *State) LearnSandbox(f messages.SandboxFact, at time.Time) {
	f.IPs = s.byFamily(f.IPs)
	s.Sandboxes.learn(f, at)
}

// LearnSandboxes records a reading of all sandboxes. It returns the IDs of those that are gone.
func (s *State) LearnSandboxes(f messages.PodFacts) (gone []string) {
	for i := range f.Sandboxes {
		s.LearnSandbox(f.Sandboxes[i], f.ReadAt)
		s.takeStart(&f.Sandboxes[i], f.ReadAt)
	}
	return s.Sandboxes.keep(f)
}

// takeStart restores the pod's start time. The first sandbox was created with it, and every later one carries it, too. A kubelet
// records none: then the oldest remaining sandbox determines it.
func (s *State) takeStart(f *messages.SandboxFact, now time.Time) {
	at := f.PodStarted
	if at.IsZero() {
		at = f.CreatedAt
	}
	s.SetStart(at, now)
}

// byFamily returns the addresses of a pod that are used and reported, as with the kubelet: the first of the node's first family,
// then the first of the other. A runtime may have more, in any order.
func (s *State) byFamily(ips []string) []string {
	host := s.Set.HostIPs()
	if len(ips) < 2 || len(host) == 0 {
		return ips
	}
	six := func(ip string) bool { return strings.Contains(ip, ":") }
	var out []string
	for _, want := range []bool{six(host[0]), !six(host[0])} {
		if i := slices.IndexFunc(ips, func(ip string) bool { return six(ip) == want }); i >= 0 {
			out = append(out, ips[i])
		}
	}
	return out
}

// IPs returns the addresses of the pod: the sandbox's, or the node's on the host's network.
func (s *State) IPs() []string {
	current := s.Current()
	switch {
	case current == nil:
		return nil
	case s.Pod.Spec.HostNetwork:
		return s.Set.HostIPs()
	default:
		return current.IPs
	}
}
