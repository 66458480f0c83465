package chaos

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

const (
	reportEvery = 10 * time.Second // the shortest time between two reports
	keepEnded   = 100              // rules that are over and are listed still
	shownActors = 5                // named in one report
	keepKills   = time.Hour        // longer than within any supervisor counts
)

// System is the running tree; *supervisors.System is one.
type System interface {
	Vitals() []supervisors.Vitals
	Nudge(messages.Address)
}

// Options configure an Engine.
type Options struct {
	Clock clock.WithDelayedExecution // nil: the real one
	// Pod finds a pod by its UID. It is called on mailboxes and must not wait.
	Pod func(uid string) (Pod, bool)
	// Report receives a sentence about a rule's effects, at most once per rule in reportEvery, and once at the rule's end. It
	// may be nil, and must not block.
	Report func(text string)
}

// Engine has the rules, and is the interceptor that carries them out. Safe for concurrent use.
type Engine struct {
	opts   Options
	active atomic.Pointer[[]*rule] // in force; all that a delivery reads while there is none

	mu     sync.Mutex
	system System
	rules  []*rule // the newest last
	last   uint64
	kills  map[messages.Address][]time.Time
}

// New is an engine without rules.
func New(o Options) *Engine {
	o.Clock = cmp.Or[clock.WithDelayedExecution](o.Clock, clock.RealClock{})
	return &Engine{opts: o, kills: map[messages.Address][]time.Time{}}
}

// Attach gives the engine the tree that it is the interceptor of.
func (e *Engine) Attach(s System) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.system = s
}

// Status is a rule with its effects so far.
type Status struct {
	ID uint64 `json:"id"`
	Rule
	Since time.Time `json:"since"`
	Until time.Time `json:"until"` // when it ends by itself, or has ended
	Over  bool      `json:"over"`
	Acted int       `json:"acted"`
	// Actors are those that it acted on, by path, and how often.
	Actors map[messages.Address]int `json:"actors,omitempty"`
	// Spared is how often it did not kill an actor because its supervisor would have given it up.
	Spared int `json:"spared,omitempty"`
}

type rule struct {
	target target
	over   chan struct{} // closed at the end of the rule; releases its holds
	timer  clock.Timer

	mu       sync.Mutex
	status   Status
	ordinals map[string]uint64 // by actor and type
	// chosen holds the actors that the seed chose when the rule was added, with the remaining number of effects on each. It
	// is nil when the rule acts on the first actor to receive a message.
	chosen   map[messages.Address]int
	reported int
	report   clock.Timer // nil: there is nothing to be reported
}

func (r *rule) isOver() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

func (r *rule) snapshot() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	s.Actors = maps.Clone(s.Actors)
	return s
}

// Targets are the actors that the rule, which must be complete, may act on now.
func (e *Engine) Targets(r Rule) []messages.Address {
	t, err := parseTarget(r.Target)
	e.mu.Lock()
	system := e.system
	e.mu.Unlock()
	out := []messages.Address{}
	if err != nil || system == nil {
		return out
	}
	for _, v := range system.Vitals() {
		if t.match(v.Path, v.Kind, e.opts.Pod) {
			out = append(out, v.Path)
		}
	}
	return out
}

// Add puts a rule in force. It returns an error if the rule is invalid.
func (e *Engine) Add(r Rule) (Status, error) {
	if err := r.Complete(); err != nil {
		return Status{}, err
	}
	t, err := parseTarget(r.Target)
	if err != nil {
		return Status{}, err
	}
	now := e.opts.Clock.Now()
	var first []messages.Address
	added := &rule{target: t, over: make(chan struct{}), ordinals: map[string]uint64{},
		status: Status{Rule: r, Since: now, Until: now.Add(r.For.Duration), Actors: map[messages.Address]int{}}}
	if (r.Verb == Kill || r.Verb == Pause) && r.Message == "" {
		first = e.first(added, e.Targets(r))
	}
	e.mu.Lock()
	e.last++
	added.status.ID = e.last
	e.rules = append(e.rules, added)
	added.timer = e.opts.Clock.AfterFunc(r.For.Duration, func() { go e.end(added) })
	e.publish()
	system := e.system
	e.mu.Unlock()
	status := added.snapshot()
	if system != nil {
		for _, a := range first {
			system.Nudge(a)
		}
	}
	return status, nil
}

// first are the actors that get a message to be killed or paused at, now, in an order of the seed's. Where the rule acts a number
// of times, and always, these are all that it acts on: which of two would get a message first is not the seed's.
func (e *Engine) first(r *rule, actors []messages.Address) []messages.Address {
	order := map[messages.Address]float64{}
	for _, a := range actors {
		_, order[a] = r.status.choose(e.identity(a), "", 0)
	}
	slices.SortStableFunc(actors, func(a, b messages.Address) int { return cmp.Compare(order[a], order[b]) })
	if r.status.Count < 0 || r.status.Probability < 1 || len(actors) == 0 {
		return actors
	}
	r.chosen = map[messages.Address]int{}
	for i := range r.status.Count {
		r.chosen[actors[i%len(actors)]]++
	}
	return actors[:min(r.status.Count, len(actors))]
}

// identity is an actor's path with the name of its pod in place of the UID, which is another in each run of an experiment.
func (e *Engine) identity(a messages.Address) string {
	uid := a.PodUID()
	if uid == "" {
		return string(a)
	}
	p, ok := e.opts.Pod(uid)
	if !ok {
		return string(a)
	}
	pod := messages.PodAddress(uid)
	return p.Namespace + "/" + p.Name + strings.TrimPrefix(string(a), string(pod))
}

// shown returns the name of an actor for people: its path, with the pod's name in place of its UID.
func (e *Engine) shown(a messages.Address) string {
	if name := e.identity(a); name != string(a) {
		return "pods/" + name
	}
	return a.String()
}

// List are the rules in force and those that ended last, the oldest first.
func (e *Engine) List() []Status {
	e.mu.Lock()
	rules := slices.Clone(e.rules)
	e.mu.Unlock()
	out := make([]Status, 0, len(rules))
	for _, r := range rules {
		out = append(out, r.snapshot())
	}
	return out
}

// Stop ends the rule with this ID, or all for 0, and returns the final status of the ended rules. Paused actors resume.
func (e *Engine) Stop(id uint64) []Status {
	out := []Status{}
	for _, r := range e.inForce() {
		if id == 0 || r.status.ID == id {
			e.end(r)
			out = append(out, r.snapshot())
		}
	}
	return out
}

// Close ends all rules. Each sends its last report.
func (e *Engine) Close() { e.Stop(0) }

func (e *Engine) inForce() []*rule {
	if rules := e.active.Load(); rules != nil {
		return *rules
	}
	return nil
}

// end ends a rule; once is enough, more do no harm.
func (e *Engine) end(r *rule) {
	r.mu.Lock()
	over := r.status.Over
	if !over {
		r.status.Over, r.status.Until = true, e.opts.Clock.Now()
		r.ordinals = nil
		close(r.over)
	}
	r.mu.Unlock()
	if over {
		return
	}
	e.reportActed(r) // it may be forgotten before the next report
	r.timer.Stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.publish()
}

// publish makes the rules that are not over those in force. The lock is held.
func (e *Engine) publish() {
	var active []*rule
	ended := 0
	for _, r := range e.rules {
		if r.isOver() {
			ended++
		} else {
			active = append(active, r)
		}
	}
	e.active.Store(&active)
	e.rules = slices.DeleteFunc(e.rules, func(r *rule) bool {
		if ended <= keepEnded || !r.isOver() {
			return false
		}
		ended--
		return true
	})
}
