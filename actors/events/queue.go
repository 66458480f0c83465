package events

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/actors/internal/eventlog"
	"github.com/playlet-dev/playlet/actors/internal/shares"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

const (
	// maxWaiting is how many events wait to be written, at most: as many as with the kubelet.
	maxWaiting = 1000
	// batch is how many are written in one piece of work.
	batch = 20
	// expiry is how long an event waits: the API server keeps one for as long.
	expiry = time.Hour
)

// retry is the pause after a try that did not reach the API server.
var retry = backoff.Policy{First: time.Second, Max: 30 * time.Second, Jitter: backoff.Half}

// item is one event that waits to be written. Only the queue changes it.
type item struct {
	event *v1.Event
	// patch makes an earlier state of it this one; nil where there is none.
	patch []byte
	// create is true until the event exists in the API server.
	create bool
	since  time.Time
	keys   []string
}

func (i *item) name() types.NamespacedName {
	return types.NamespacedName{Namespace: i.event.Namespace, Name: i.event.Name}
}

// Counts are the results of writes since the process started.
type Counts struct {
	Recorded uint64 `json:"recorded"` // asked for
	Filtered uint64 `json:"filtered"` // too many about one object
	Written  uint64 `json:"written"`
	Refused  uint64 `json:"refused"` // by the API server, for good
	Dropped  uint64 `json:"dropped"` // the queue was full
	Expired  uint64 `json:"expired"` // waited for too long
}

// queue is the pure core: events in, batches out; no clock, no I/O. An event takes the place of an earlier state of itself that
// still waits.
type queue struct {
	source     source
	clock      *clock
	correlator *record.EventCorrelator
	sends      bool    // there is an API server
	items      []*item // oldest first
	waiting    map[types.NamespacedName]*item
	busy       bool // a batch is on its way
	fails      int  // tries in a row that did not reach the API server
	retryAt    time.Time
	trouble    string // why they did not; empty when there is none
	counts     Counts
}

func newQueue(node string, sends bool) *queue {
	q := &queue{sends: sends, source: source{node: node}, clock: &clock{}, waiting: map[types.NamespacedName]*item{}}
	q.correlator = record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{Clock: q.clock})
	return q
}

// record takes one event. Like ones are counted, similar ones combined, and too many about one object left out, as the
// kubelet's recorder does. It gives the state of the event that this leads to; nil where it is left out.
func (q *queue) record(now time.Time, m messages.RecordEvent) *v1.Event {
	q.counts.Recorded++
	e := q.source.event(now, m)
	q.clock.now = now
	result, err := q.correlator.EventCorrelate(e)
	switch {
	case err != nil: // the patch could not be made, which is a bug; the event is recorded all the same
	case result.Skip:
		q.counts.Filtered++
		return nil
	}
	// Set here as well, because the correlator may return a new event for several.
	result.Event.ReportingController, result.Event.ReportingInstance = component, q.source.node
	if q.sends {
		q.put(&item{event: result.Event, patch: result.Patch, create: result.Patch == nil, since: now,
			keys: eventlog.Keys(result.Event)})
	}
	return result.Event
}

// put has an item wait, in the place of an earlier state of the same event.
func (q *queue) put(i *item) {
	if was := q.waiting[i.name()]; was != nil {
		was.event, was.patch = i.event, i.patch
		return
	}
	q.waiting[i.name()] = i
	q.hold(append(q.items, i))
}

// hold adds items. Over the limit, it drops the oldest of the namespace and object with the most.
func (q *queue) hold(items []*item) {
	for q.items = items; len(q.items) > maxWaiting; q.counts.Dropped++ {
		work := make([][]string, len(q.items))
		for i, item := range q.items {
			work[i] = item.keys
		}
		i := shares.Excess(work)
		delete(q.waiting, q.items[i].name())
		q.items = slices.Delete(q.items, i, i+1)
	}
}

// shift takes the oldest out.
func (q *queue) shift() *item {
	i := q.items[0]
	q.items[0] = nil
	q.items = q.items[1:]
	delete(q.waiting, i.name())
	return i
}

// mayYield reports whether events wait that may wait longer: they are few, so that none is dropped for want of space, and each
// has waited for less than yieldFor.
func (q *queue) mayYield(now time.Time) bool {
	return !q.busy && len(q.items) > 0 && len(q.items) <= maxWaiting/2 && now.Sub(q.items[0].since) < yieldFor
}

// next is the batch to be written now; none while one is on its way, or during a pause.
func (q *queue) next(now time.Time) []*item {
	if q.busy || now.Before(q.retryAt) {
		return nil
	}
	var out []*item
	for len(q.items) > 0 && len(out) < batch {
		i := q.shift()
		if now.Sub(i.since) > expiry {
			q.counts.Expired++
			continue
		}
		out = append(out, i)
	}
	q.busy = len(out) > 0
	return out
}

// wrote handles the result of a batch. Unwritten items keep their place. random, in [0,1), spreads the retries of nodes that
// lost the API server together.
func (q *queue) wrote(now time.Time, r batchResult, random float64) {
	q.busy = false
	q.counts.Written += r.done
	q.counts.Refused += r.refused
	q.back(r.left)
	q.trouble = ""
	if r.unreached == nil {
		q.fails, q.retryAt = 0, time.Time{}
		return
	}
	q.fails++
	q.trouble = apiclient.Explain(r.unreached, q.source.node)
	q.retryAt = now.Add(retry.After(q.fails, random))
}

// back puts items before all others again. A later state of the same event replaces the item.
func (q *queue) back(left []*item) {
	var first []*item
	for _, i := range left {
		if newer := q.waiting[i.name()]; newer != nil {
			newer.create = newer.create || i.create
			continue
		}
		q.waiting[i.name()] = i
		first = append(first, i)
	}
	q.hold(append(first, q.items...))
}
