package logs

import (
	"slices"
	"time"
)

// container is one container with a log, as the runtime lists it.
type container struct {
	id, uid string // the pod's
	running bool
	log     string // below the folder of all pods' logs
	link    string // its name among the links
}

// sight is what a look found of one container's log.
type sight struct {
	container
	size    int64 // in bytes; -1: it is not there
	left    bool  // a crash left unfinished files
	problem error // it cannot be looked at
}

// phase is what the book does about looking.
type phase string

const (
	resting phase = "resting" // a timer runs
	looking phase = "looking"
)

// book decides: which logs are rotated, when, and how many at once. It is pure.
type book struct {
	maxSize int64 // in bytes; negative: nothing is rotated
	workers int
	every   time.Duration

	phase  phase
	turn   uint64 // of the timer that counts
	again  bool   // something changed while looking
	queue  []container
	active map[string]bool // by container
	told   map[string]string
	first  bool // crashes may have left something
}

// soon is how long changes are gathered before they are looked at.
const soon = 200 * time.Millisecond

type (
	effect any
	// look asks for a sight of every log, and for the links to be put right.
	look struct{ thorough bool }
	// lookAfter asks for lookDue.
	lookAfter struct {
		after time.Duration
		turn  uint64
	}
	// tend asks for one log to be rotated, or tidied up.
	tend struct{ container }
	// warn is for the log of the agent.
	warn struct {
		container
		problem error
	}
)

func newBook(maxSize int64, workers int, every time.Duration) *book {
	return &book{
		maxSize: maxSize, workers: max(workers, 1), every: every, phase: resting, first: true,
		active: map[string]bool{}, told: map[string]string{},
	}
}

func (b *book) begin() []effect {
	b.phase, b.again = looking, false
	b.turn++ // a timer that runs is of no use any more
	return []effect{look{thorough: b.first}}
}

// changed takes the word that containers changed.
func (b *book) changed() []effect {
	if b.phase == looking {
		b.again = true
		return nil
	}
	if b.again {
		return nil // the timer for it runs
	}
	b.again = true
	b.turn++
	return []effect{lookAfter{soon, b.turn}}
}

func (b *book) due(turn uint64) []effect {
	if turn != b.turn || b.phase == looking {
		return nil
	}
	return b.begin()
}

// looked takes what was found; whole is false where the runtime could not be asked.
func (b *book) looked(found []sight, whole bool) []effect {
	b.phase = resting
	b.turn++
	after := b.every
	if b.again {
		after = soon
	}
	b.again = b.again && whole
	if !whole {
		return []effect{lookAfter{b.every, b.turn}}
	}
	out := []effect{lookAfter{after, b.turn}}
	b.first = false
	there := map[string]bool{}
	for _, s := range found {
		there[s.id] = true
		switch {
		case s.problem != nil:
			out = append(out, b.warn(s.container, s.problem)...)
		case b.waits(s.id):
		case s.left || b.maxSize >= 0 && s.running && (s.size < 0 || s.size >= b.maxSize):
			b.queue = append(b.queue, s.container)
		default:
			delete(b.told, s.id) // whatever it was, it is over
		}
	}
	for id := range b.told {
		if !there[id] {
			delete(b.told, id)
		}
	}
	b.queue = slices.DeleteFunc(b.queue, func(c container) bool { return !there[c.id] })
	return append(out, b.next()...)
}

func (b *book) waits(id string) bool {
	return b.active[id] || slices.ContainsFunc(b.queue, func(c container) bool { return c.id == id })
}

// tended takes the end of work on one log.
func (b *book) tended(c container, problem error) []effect {
	delete(b.active, c.id)
	var out []effect
	if problem != nil {
		out = b.warn(c, problem)
	} else {
		delete(b.told, c.id)
	}
	return append(out, b.next()...)
}

// warn says what is new.
func (b *book) warn(c container, problem error) []effect {
	if b.told[c.id] == problem.Error() {
		return nil
	}
	b.told[c.id] = problem.Error()
	return []effect{warn{c, problem}}
}

func (b *book) next() []effect {
	var out []effect
	for len(b.active) < b.workers && len(b.queue) > 0 {
		c := b.queue[0]
		b.queue = b.queue[1:]
		b.active[c.id] = true
		out = append(out, tend{c})
	}
	return out
}
