package events

import (
	"encoding/json"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/messages"
)

const (
	// room is how many events wait to be written, at most: as many as with the kubelet.
	room = 1000
	// batch is how many are written in one piece of work.
	batch = 20
	// expiry is how long an event waits: the API server keeps one for as long.
	expiry = time.Hour
	// The pause after a try that did not reach the API server doubles from the first to the last.
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// item is one event that waits to be written. Immutable but for the book.
type item struct {
	event *v1.Event
	// patch makes an earlier state of it this one; nil where there is none.
	patch []byte
	// create says that the API server has not been given it yet.
	create bool
	since  time.Time
}

// name tells an Event apart.
type name struct{ namespace, name string }

func (i *item) name() name { return name{i.event.Namespace, i.event.Name} }

// Counts are what became of events since the process began to write them.
type Counts struct {
	Recorded uint64 `json:"recorded"` // asked for
	Filtered uint64 `json:"filtered"` // too many about one object
	Written  uint64 `json:"written"`
	Refused  uint64 `json:"refused"` // by the API server, for good
	Dropped  uint64 `json:"dropped"` // for want of room
	Expired  uint64 `json:"expired"` // waited for too long
}

// book is the pure core: what is asked for in, what is to be written out; no clock, no I/O. An event that is like one which
// still waits takes its place, so that room is for what differs.
type book struct {
	source     source
	clock      *stepped
	correlator *record.EventCorrelator
	combined   bool    // what the correlator was given last is told with similar events, as one
	queue      []*item // oldest first
	waiting    map[name]*item
	busy       bool // a batch is on its way
	fails      int  // tries in a row that did not reach the API server
	retryAt    time.Time
	trouble    string // why they did not; empty when there is none
	counts     Counts
}

func newBook(node string) *book {
	b := &book{source: source{node: node}, clock: &stepped{}, waiting: map[name]*item{}}
	b.correlator = record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{Clock: b.clock, MessageFunc: func(e *v1.Event) string {
		b.combined = true // it is asked for of such events only
		return record.EventAggregatorByReasonMessageFunc(e)
	}})
	return b
}

// record takes one event. Like ones are counted, similar ones combined, and too many about one object left out, as the
// kubelet's recorder does.
func (b *book) record(now time.Time, m messages.RecordEvent) {
	b.counts.Recorded++
	e := b.source.event(now, m)
	b.clock.step(now)
	b.combined = false
	result, err := b.correlator.EventCorrelate(e)
	switch {
	case err != nil: // of making the patch, which cannot be but for a bug; the event is told all the same
	case result.Skip:
		b.counts.Filtered++
		return
	}
	if b.combined {
		b.dated(now, result)
	}
	b.source.sign(result.Event)
	b.put(&item{event: result.Event, patch: result.Patch, create: result.Patch == nil, since: now})
}

// dated gives combined events the times of the node's clock: the last is now, and the first as long ago as the correlator counts.
// What changes of an Event that is there already is told anew, with that time.
func (b *book) dated(now time.Time, r *record.EventCorrelateResult) {
	e := r.Event
	e.FirstTimestamp = metav1.NewTime(now.Add(-b.clock.Since(e.FirstTimestamp.Time)))
	e.LastTimestamp = metav1.NewTime(now)
	if r.Patch != nil {
		r.Patch, _ = json.Marshal(map[string]any{"count": e.Count, "lastTimestamp": e.LastTimestamp, "message": e.Message}) // these can be encoded
	}
}

// put has an item wait, in the place of an earlier state of the same event.
func (b *book) put(i *item) {
	if was := b.waiting[i.name()]; was != nil {
		was.event, was.patch = i.event, i.patch
		return
	}
	b.queue = append(b.queue, i)
	b.waiting[i.name()] = i
	if len(b.queue) > room {
		b.counts.Dropped++
		b.shift()
	}
}

// shift takes the oldest out.
func (b *book) shift() *item {
	i := b.queue[0]
	b.queue[0] = nil
	b.queue = b.queue[1:]
	delete(b.waiting, i.name())
	return i
}

// next is the batch to be written now; none while one is on its way, or during a pause.
func (b *book) next(now time.Time) []*item {
	if b.busy || now.Before(b.retryAt) {
		return nil
	}
	var out []*item
	for len(b.queue) > 0 && len(out) < batch {
		i := b.shift()
		if now.Sub(i.since) > expiry {
			b.counts.Expired++
			continue
		}
		out = append(out, i)
	}
	b.busy = len(out) > 0
	return out
}

// idle says that nothing waits, nor is on its way.
func (b *book) idle() bool { return !b.busy && len(b.queue) == 0 }

// wrote takes what became of a batch. What did not reach the API server waits on, in its place; random, in [0,1), keeps nodes
// that lost it together from coming back together.
func (b *book) wrote(now time.Time, r written, random float64) {
	b.busy = false
	b.counts.Written += r.done
	b.counts.Refused += r.refused
	b.back(r.left)
	b.trouble = ""
	if r.unreached == nil {
		b.fails, b.retryAt = 0, time.Time{}
		return
	}
	pause := min(firstPause<<min(b.fails, 5), lastPause)
	b.fails++
	b.trouble = apiclient.Explain(r.unreached, b.source.node)
	b.retryAt = now.Add(pause/2 + time.Duration(random*float64(pause/2)))
}

// back puts items before all others again. One of which a later state came meanwhile becomes that.
func (b *book) back(left []*item) {
	var first []*item
	for _, i := range left {
		if newer := b.waiting[i.name()]; newer != nil {
			newer.create = newer.create || i.create
			continue
		}
		b.waiting[i.name()] = i
		first = append(first, i)
	}
	b.queue = append(first, b.queue...)
	for len(b.queue) > room {
		b.counts.Dropped++
		b.shift()
	}
}
