package supervisors

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// State is where an actor is in the one restart mechanism.
type State string

// The states.
const (
	Running     State = "running"
	Ending      State = "ending"      // asked to stop, or fallen; its end is awaited
	Restarting  State = "restarting"  // ended; to be spawned when its back-off is over
	Exited      State = "exited"      // ended itself; to be spawned with its next desired state
	Quarantined State = "quarantined" // ended; to be tried again when the quarantine is over
)

// Vitals are the layer's own record of an actor. They need no answer from it, so that a hung actor has them too.
type Vitals struct {
	Path     messages.Address `json:"path"` // empty for the root
	Kind     Kind             `json:"kind"`
	State    State            `json:"state"`
	Since    time.Time        `json:"since"`          // the start of its present life, or of its last one
	Until    time.Time        `json:"until,omitzero"` // the next start, where one is waited for
	Restarts int              `json:"restarts"`       // since its supervisor started, for whatever reason
	// Desired describes the desired state in its supervisor's record, with which it would be restarted now; empty: none.
	Desired string `json:"desired,omitempty"`
	// Waiting are the messages in its mailbox, without the one being handled; MaxWaiting is the most of its present life.
	Waiting    int64 `json:"waiting"`
	MaxWaiting int64 `json:"maxWaiting"`
	// Handled counts the messages of its present life, with the one being handled; Spent is the time of handling them.
	Handled  uint64          `json:"handled"`
	Spent    time.Duration   `json:"handlingNanoseconds"`
	Handling *HandledMessage `json:"handling,omitempty"` // a mailbox is first in, first out: its oldest message that is not done
	Failure  *Failure        `json:"failure,omitempty"`  // the last
}

// HandledMessage is a message that is being handled.
type HandledMessage struct {
	Message string           `json:"message"`
	From    messages.Address `json:"from"`
	Sent    time.Time        `json:"sent"`
	Began   time.Time        `json:"began"`
}

// Failure is a panic of an actor.
type Failure struct {
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// life is the public record of one actor across restarts. Its supervisor writes it; others read it under the lock.
type life struct {
	mu sync.Mutex
	v  Vitals
	c  *cell // of the latest incarnation
	// desired is the desired state of the next incarnation; nil: none.
	desired any
}

func (s *System) newLife(path messages.Address, kind Kind) *life {
	l := &life{v: Vitals{Path: path, Kind: kind}}
	s.lives.Store(path, l)
	return l
}

// begin records a new incarnation, and returns whether there was one before.
func (l *life) begin(c *cell) (again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if again = l.c != nil; again {
		l.v.Restarts++
	}
	l.c, l.v.State, l.v.Since, l.v.Until = c, Running, c.sys.clock.Now(), time.Time{}
	return again
}

func (l *life) desire(state any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.desired = state
}

func (l *life) enter(s State, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.v.State, l.v.Until = s, until
}

func (l *life) failed(reason string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.v.Failure = &Failure{Reason: firstLine(reason), At: at}
}

// runs reports whether an incarnation exists, including one that is ending.
func (l *life) runs() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.c != nil && !l.c.ended.Load()
}

func (l *life) vitals() Vitals {
	l.mu.Lock()
	v, c, desired := l.v, l.c, l.desired
	l.mu.Unlock()
	if desired != nil {
		v.Desired = digest(messages.Started{Desired: desired})
	}
	if v.State != Running && v.State != Ending {
		return v
	}
	v.Waiting, v.MaxWaiting = c.mailbox.now.Load(), c.mailbox.max.Load()
	v.Handled, v.Spent = c.handled.Load(), time.Duration(c.spent.Load())
	if env := c.handling.Load(); env != nil {
		v.Waiting--
		v.Handling = &HandledMessage{Message: typeName(env.msg), From: env.from, Sent: env.sent, Began: time.Unix(0, env.began)}
	}
	v.Waiting = max(v.Waiting, 0) // the two are read one after the other
	return v
}

// forget drops the record of a child that will not be spawned again.
func (c *cell) forget(name string, ch *child) {
	delete(c.children, name)
	c.sys.lives.CompareAndDelete(c.self.Child(name), ch.life)
}

// Vitals lists all actors that run or are to run again, each before its children. It asks none of them.
func (s *System) Vitals() []Vitals {
	var out []Vitals
	s.lives.Range(func(_, l any) bool {
		out = append(out, l.(*life).vitals())
		return true
	})
	key := func(a messages.Address) string { return strings.ReplaceAll(string(a), "/", "\x00") }
	slices.SortFunc(out, func(x, y Vitals) int { return cmp.Compare(key(x.Path), key(y.Path)) })
	return out
}

// VitalsOf returns the vitals of one actor, if it exists.
func (s *System) VitalsOf(a messages.Address) (Vitals, bool) {
	if l, ok := s.lives.Load(a); ok {
		return l.(*life).vitals(), true
	}
	return Vitals{}, false
}

// Quarantined lists the actors that are in quarantine now.
func (s *System) Quarantined() map[messages.Address]messages.ChildQuarantined {
	out := map[messages.Address]messages.ChildQuarantined{}
	for _, v := range s.Vitals() {
		if v.State == Quarantined {
			out[v.Path] = messages.ChildQuarantined{Name: v.Path.Name(), Reason: v.Failure.Reason, Until: v.Until}
		}
	}
	return out
}

// Busy explains why the actor cannot answer; empty if no reason is known.
func (v *Vitals) Busy(now time.Time) string {
	ago := func(t time.Time) string { return now.Sub(t).Round(time.Millisecond).String() }
	switch {
	case v.State == Quarantined:
		return fmt.Sprintf("it is in quarantine until %s: %s", v.Until.Format(time.RFC3339), v.Failure.Reason)
	case v.State == Restarting:
		return "it is restarted at " + v.Until.Format(time.RFC3339)
	case v.State == Exited:
		return "its run is over, and the next one has not been ordered yet"
	case v.Handling != nil:
		return fmt.Sprintf("it is busy with %s of %s since %s (%s); %d more wait", v.Handling.Message, v.Handling.From,
			v.Handling.Began.Format(time.RFC3339), ago(v.Handling.Began), v.Waiting)
	case v.State == Ending:
		return "it is ending"
	}
	return ""
}
