package trace

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/supervisors"
)

// SegmentKind classifies time on the critical path.
type SegmentKind string

// The kinds.
const (
	Queue   SegmentKind = "queue"    // a message waited in a mailbox, work for a processor, or a call for its turn
	InHand  SegmentKind = "handling" // an actor handled a message
	Working SegmentKind = "work"     // work outside the mailbox, without its calls
	Calling SegmentKind = "call"     // the container runtime, or the API server
	Waiting SegmentKind = "timer"    // an actor had put it off
	// Outside is time without a recorded message: a container runs, a probe is not due, or the cause is not recorded.
	Outside SegmentKind = "outside"
)

// Kinds are all of them.
var Kinds = []SegmentKind{Calling, Working, InHand, Queue, Waiting, Outside}

// Segment is a part of the critical path.
type Segment struct {
	Kind  SegmentKind   `json:"kind"`
	Actor string        `json:"actor"` // the actor that worked or waited
	Name  string        `json:"name"`  // the message, the work or the call
	ID    uint64        `json:"id"`    // of the entry
	Began time.Time     `json:"began"`
	Took  time.Duration `json:"took"` // nanoseconds
}

// Path is the critical path of a pod's start: each segment begins where the one before ends, so that they add up to Took.
type Path struct {
	Began    time.Time     `json:"began"` // when the first of its causes came
	Ready    time.Time     `json:"ready"` // when the pod's first ready status was handled
	Took     time.Duration `json:"took"`  // nanoseconds
	Segments []Segment     `json:"segments"`
	// Adopted reports that the agent found the pod running: the path is its adoption, and the start was earlier.
	Adopted bool `json:"adopted,omitempty"`
}

// Why there is no critical path.
var (
	ErrNotReady  = errors.New("it has not become ready yet")
	ErrForgotten = errors.New("the messages of its start are no longer recorded")
)

// creating are the calls of a start. An adoption makes none of them.
var creating = []string{"RunPodSandbox", "CreateContainer", "StartContainer"}

// CriticalPath walks back along the causes from the first PodStatusChanged with a ready pod to the beginning of the pod's
// story, and classifies the time. entries are those of one pod, and begin with their causes.
func CriticalPath(entries []supervisors.Entry, names Names) (*Path, error) {
	byID, calls := map[uint64]*supervisors.Entry{}, map[uint64][]*supervisors.Entry{}
	var last *supervisors.Entry
	forgotten, created := false, false
	for i := range entries {
		e := &entries[i]
		byID[e.ID] = e
		created = created || e.Kind == supervisors.OfCall && slices.Contains(creating, e.Message)
		if e.Kind == supervisors.OfCall {
			calls[e.Cause] = append(calls[e.Cause], e)
		}
		said := e.Message == "PodStatusChanged" && slices.Contains(strings.Fields(e.Digest), supervisors.Ready)
		if said && (last == nil || e.Sent.Before(last.Sent)) {
			last = e
		}
		forgotten = forgotten || e.Forgotten > 0
	}
	switch {
	case forgotten && (last == nil || !created):
		return nil, ErrForgotten
	case last == nil:
		return nil, ErrNotReady
	}
	p := &path{names: names, Path: Path{Began: begin(entries, byID, last.Flow.Pod), Adopted: !created}}
	chain := []*supervisors.Entry{last}
	for e := last; e != nil && e.Sent.After(p.Began); {
		cause := byID[e.Cause]
		if cause == nil || !cause.Ended().After(p.Began) {
			cause = before(entries, last.Flow.Pod, e)
		}
		if e = cause; e == nil || slices.Contains(chain, e) {
			break
		}
		chain = append(chain, e)
	}
	slices.Reverse(chain)
	p.at = p.Began
	for i, e := range chain {
		if i == 0 || e.Cause != chain[i-1].ID {
			p.until(e.Sent, Outside, e)
		}
		if e.Kind == supervisors.OfTimer {
			p.until(e.Sent, Waiting, e)
		}
		p.until(e.Began, Queue, e)
		left := e.Ended() // for the next of the chain
		if i+1 < len(chain) && chain[i+1].Sent.Before(left) {
			left = chain[i+1].Sent
		}
		if e.Kind != supervisors.OfWork {
			p.until(left, InHand, e)
			continue
		}
		slices.SortFunc(calls[e.ID], func(x, y *supervisors.Entry) int { return x.Began.Compare(y.Began) })
		for _, c := range calls[e.ID] {
			p.until(c.Sent, Working, e)
			p.until(c.Began, Queue, c)
			p.until(c.Ended(), Calling, c)
		}
		p.until(left, Working, e)
	}
	p.Ready, p.Took = p.at, p.at.Sub(p.Began)
	return &p.Path, nil
}

// before is the last message to or from the pod's actors that was done with when e was sent: after it, something
// outside was waited for.
func before(entries []supervisors.Entry, pod string, e *supervisors.Entry) (found *supervisors.Entry) {
	for i := range entries {
		x := &entries[i]
		own := x.Kind == supervisors.OfMessage && (x.To.PodUID() == pod || x.From.PodUID() == pod) && x.ID != e.ID
		if own && !x.Ended().After(e.Sent) && (found == nil || x.Ended().After(found.Ended())) {
			found = x
		}
	}
	return found
}

// begin returns when the first entry of the pod's story, or the first of its causes, was sent.
func begin(entries []supervisors.Entry, byID map[uint64]*supervisors.Entry, pod string) time.Time {
	var first *supervisors.Entry
	for i := range entries {
		if e := &entries[i]; e.Flow.Pod == pod && (first == nil || e.Sent.Before(first.Sent)) {
			first = e
		}
	}
	for cause := byID[first.Cause]; cause != nil && cause.Sent.Before(first.Sent); cause = byID[first.Cause] {
		first = cause
	}
	return first.Sent
}

type path struct {
	Path
	names Names
	at    time.Time // up to where it is explained
}

// until adds the time up to t to a segment. Overlapping time counts once.
func (p *path) until(t time.Time, kind SegmentKind, e *supervisors.Entry) {
	if !t.After(p.at) {
		return
	}
	if n := len(p.Segments); n > 0 && p.Segments[n-1].Kind == kind && p.Segments[n-1].ID == e.ID {
		p.Segments[n-1].Took += t.Sub(p.at)
	} else {
		p.Segments = append(p.Segments, Segment{
			Kind: kind, Actor: p.names.receiver(e), Name: p.names.message(e), ID: e.ID, Began: p.at, Took: t.Sub(p.at),
		})
	}
	p.at = t
}
