package trace

import (
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/playlet-dev/playlet/supervisors"
)

// event is one of Chrome's trace events: "M" names a track, "X" is a slice, and an arrow goes from "s" to "f".
type event struct {
	Name  string         `json:"name"`
	Cat   string         `json:"cat,omitempty"`
	Phase string         `json:"ph"`
	At    float64        `json:"ts"` // microseconds
	Took  *float64       `json:"dur,omitempty"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	ID    uint64         `json:"id,omitempty"`
	Bind  string         `json:"bp,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

// track is one row: an actor's mailbox, or a worker of it. Slices of one track lie inside one another or apart.
type track struct {
	tid  int
	open []time.Time // ends of the slices that may still hold others
}

func (t *track) put(e *supervisors.Entry, inside bool) bool {
	for len(t.open) > 0 && !t.open[len(t.open)-1].After(e.Began) {
		t.open = t.open[:len(t.open)-1]
	}
	if n := len(t.open); n > 0 && (!inside || t.open[n-1].Before(e.Ended())) {
		return false
	}
	t.open = append(t.open, e.Ended())
	return true
}

// Perfetto writes Chrome's trace-event JSON for ui.perfetto.dev: a track for each actor, the tracks of its work below it, and
// an arrow from each cause.
func Perfetto(w io.Writer, entries []supervisors.Entry, names Names) error {
	events := []event{}
	mailboxes, workers, places := map[string]*track{}, map[string][]*track{}, map[uint64]*track{}
	tracks := 0
	add := func(name string) *track {
		tracks++
		events = append(events, event{Name: "thread_name", Phase: "M", PID: 1, TID: tracks, Args: map[string]any{"name": name}})
		return &track{tid: tracks}
	}
	sorted := slices.Clone(entries)
	slices.SortStableFunc(sorted, func(x, y supervisors.Entry) int { return x.Began.Compare(y.Began) })
	start := Start(entries)
	at := func(t time.Time) float64 { return float64(t.Sub(start)) / float64(time.Microsecond) }
	place := func(e *supervisors.Entry) *track {
		actor := names.Of(e.To)
		if e.Kind == supervisors.OfMessage || e.Kind == supervisors.OfTimer {
			if mailboxes[actor] == nil {
				mailboxes[actor] = add(actor)
			}
			return mailboxes[actor]
		}
		actor = names.Of(e.From)
		if of := places[e.Cause]; e.Kind == supervisors.OfCall && of != nil && of.put(e, true) {
			return of
		}
		for _, t := range workers[actor] {
			if t.put(e, false) {
				return t
			}
		}
		t := add(actor + " (work)")
		t.put(e, false)
		workers[actor] = append(workers[actor], t)
		return t
	}
	byID := map[uint64]*supervisors.Entry{}
	for i := range sorted {
		e := &sorted[i]
		t := place(e)
		places[e.ID], byID[e.ID] = t, e
		took, kind := at(e.Began.Add(e.Took))-at(e.Began), string(e.Kind)
		if kind == "" {
			kind = "message"
		}
		args := map[string]any{
			"id": e.ID, "from": names.Of(e.From), "to": names.receiver(e), "queued": e.Began.Sub(e.Sent).String(),
		}
		for key, text := range map[string]string{"digest": e.Digest, "panic": e.Panic} {
			if text != "" {
				args[key] = text
			}
		}
		events = append(events, event{
			Name: names.message(e), Cat: kind, Phase: "X", At: at(e.Began), Took: &took, PID: 1, TID: t.tid, Args: args,
		})
	}
	for i := range sorted {
		e := &sorted[i]
		cause := byID[e.Cause]
		if cause == nil || e.Kind == supervisors.OfCall {
			continue
		}
		sent := e.Sent // of an arrow's start, inside the slice that it belongs to
		if sent.After(cause.Ended()) {
			sent = cause.Ended()
		}
		arrow := event{Name: e.Message, Cat: "cause", PID: 1, ID: e.ID}
		from, to := arrow, arrow
		from.Phase, from.At, from.TID = "s", at(sent), places[cause.ID].tid
		to.Phase, to.At, to.TID, to.Bind = "f", at(e.Began), places[e.ID].tid, "e"
		events = append(events, from, to)
	}
	return json.NewEncoder(w).Encode(map[string]any{"traceEvents": events, "displayTimeUnit": "ms"})
}
