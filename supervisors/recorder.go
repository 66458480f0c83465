package supervisors

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// Sizes of the flight recorder: the entries of each pod or actor, those of a pod's start among them, and the bytes of all.
// Over the budget, a story with more than its fair share loses its own oldest entry. Otherwise the story that has been silent
// longest does. A pod's start is dropped last.
const (
	logEntries     = 256
	startEntries   = 96
	recorderBudget = 12 << 20
)

// entryLog holds the entries of one pod or actor, the oldest first.
type entryLog struct {
	name      string
	entries   []*Entry
	start     int // so many of the first are the pod's start, which is kept; 0 while nothing was forgotten, and for an actor
	forgotten int
	element   *list.Element // in Recorder.order
}

// Recorder keeps the last messages of each pod and of each actor that exists once in bounded memory. It belongs to the process,
// and so outlives the actors. Safe for concurrent use.
type Recorder struct {
	off           atomic.Bool
	mu            sync.Mutex
	seq           uint64
	logs          map[string]*entryLog
	order         list.List // of stories: first the one that has been silent longest
	count         int       // of entries
	bytes, budget int
	nextEntry     chan struct{} // closed at the next entry; nil without waiters
}

// NewRecorder is an empty one.
func NewRecorder() *Recorder { return &Recorder{logs: map[string]*entryLog{}, budget: recorderBudget} }

// TurnOff stops all recording, to measure its cost.
func (r *Recorder) TurnOff() { r.off.Store(true) }

func (r *Recorder) record(to messages.Address, env *envelope, began, ended time.Time, panicked any) {
	if _, routine := env.msg.(messages.Routine); routine && panicked == nil || r.off.Load() {
		return
	}
	e := Entry{
		ID: env.id, Cause: env.cause, Flow: env.flow, Kind: env.kind, From: env.from, To: to, Message: typeName(env.msg),
		Digest: digest(env.msg), Sent: env.sent, Began: began, Took: ended.Sub(began),
	}
	if panicked != nil {
		e.Panic = firstLine(fmt.Sprint(panicked))
	}
	r.Add(e)
}

// Add records an entry and gives it its Seq.
func (r *Recorder) Add(e Entry) {
	if r.off.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	e.Seq = r.seq
	var n *Entry // one that is forgotten is used again: each new one is work for the garbage collector
	name := e.logName()
	if s := r.logs[name]; s != nil {
		r.order.MoveToBack(s.element)
		if len(s.entries) == logEntries {
			n = r.drop(s)
		}
	}
	for r.bytes > r.budget {
		s := r.logs[name]
		if s == nil || len(s.entries)*len(r.logs) <= r.count {
			s = r.order.Front().Value.(*entryLog)
		}
		n = r.drop(s)
	}
	if n == nil {
		n = new(Entry)
	}
	*n = e
	s := r.logs[name]
	if s == nil {
		s = &entryLog{name: name}
		s.element = r.order.PushBack(s)
		r.logs[name] = s
	}
	s.entries = append(s.entries, n)
	r.bytes += n.bytes()
	r.count++
	if r.nextEntry != nil {
		close(r.nextEntry)
		r.nextEntry = nil
	}
}

// drop removes an entry of a story and returns it for reuse. The first drop fixes the length of a pod's start: at most half
// of its entries.
func (r *Recorder) drop(s *entryLog) *Entry {
	if s.forgotten == 0 && s.entries[0].Flow.Pod != "" {
		s.start = min(startEntries, len(s.entries)/2)
	}
	if s.start == len(s.entries) { // there is nothing else
		s.start = 0
	}
	n := s.entries[s.start]
	r.bytes -= n.bytes()
	r.count--
	s.forgotten++
	if s.entries = slices.Delete(s.entries, s.start, s.start+1); len(s.entries) == 0 {
		delete(r.logs, s.name)
		r.order.Remove(s.element)
	}
	return n
}

// Query chooses entries; an empty field chooses all.
type Query struct {
	Pod   string            // UID
	Actor *messages.Address // its sender or receiver
	Since time.Time         // when it was done with
	After uint64            // its Seq is greater
}

// match leaves After to Select, which finds it by the stories.
func (q *Query) match(e *Entry) bool {
	return (q.Pod == "" || e.Flow.Pod == q.Pod) &&
		(q.Actor == nil || e.To == *q.Actor || e.From == *q.Actor) && (q.Since.IsZero() || !e.Ended().Before(q.Since))
}

// Select returns the recorded entries, oldest first. A pod's entries begin with their chain of causes, up to the work of a
// source. Other pods' causes, such as a shared pull, are included.
func (r *Recorder) Select(q Query) []Entry {
	out := []Entry{} // never nil: a server shows a list
	var led []Entry
	r.mu.Lock()
	for name, s := range r.logs {
		if q.Pod != "" && q.Pod != name {
			continue
		}
		for i := len(s.entries) - 1; i >= 0 && s.entries[i].Seq > q.After; i-- {
			if e := s.entries[i]; q.match(e) {
				out = append(out, *e)
				if i == s.start {
					out[len(out)-1].Forgotten = s.forgotten
				}
			}
		}
	}
	if q.Pod != "" && q.After == 0 && q.Since.IsZero() {
		led = r.causes(out)
	}
	r.mu.Unlock() // sorting takes a while
	slices.SortFunc(out, func(x, y Entry) int { return cmp.Compare(x.Seq, y.Seq) })
	if len(led) > 0 {
		out = append(led, out...)
	}
	return out
}

// causes returns the causes of the entries that are not among them, in order of sending. Each chain ends with the work that
// began it and with that work's calls, which are in the same story.
func (r *Recorder) causes(of []Entry) (out []Entry) {
	type keptEntry struct {
		*Entry
		in *entryLog
	}
	all := make(map[uint64]keptEntry, r.count)
	for _, s := range r.logs {
		for _, e := range s.entries {
			all[e.ID] = keptEntry{e, s}
		}
	}
	here := map[uint64]bool{}
	for i := range of {
		here[of[i].ID] = true
	}
	take := func(e *Entry) {
		if !here[e.ID] {
			out, here[e.ID] = append(out, *e), true
		}
	}
	for i := range of {
		cause, ok := all[of[i].Cause]
		for ; ok && !here[cause.ID]; cause, ok = all[cause.Cause] {
			take(cause.Entry)
			if cause.Kind == OfWork {
				for _, call := range cause.in.entries {
					if call.Kind == OfCall && call.Cause == cause.ID {
						take(call)
					}
				}
			}
			if cause.Kind != OfMessage {
				break
			}
		}
	}
	slices.SortFunc(out, func(x, y Entry) int { return cmp.Compare(x.ID, y.ID) })
	return out
}

// Last lists the last entries of the pod with this UID, oldest first; of all pods and actors when uid is empty.
func (r *Recorder) Last(uid string) []Entry { return r.Select(Query{Pod: uid}) }

// Wait waits until an entry with a greater Seq is there, or for the end of ctx, which is its error.
func (r *Recorder) Wait(ctx context.Context, after uint64) error {
	for {
		r.mu.Lock()
		if r.seq > after {
			r.mu.Unlock()
			return nil
		}
		if r.nextEntry == nil {
			r.nextEntry = make(chan struct{})
		}
		news := r.nextEntry
		r.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// RecorderSize is how much the recorder keeps, and at most.
type RecorderSize struct {
	Seq     uint64 `json:"seq"`     // of the newest entry
	Stories int    `json:"stories"` // pods and actors
	Entries int    `json:"entries"`
	Bytes   int    `json:"bytes"`
	Budget  int    `json:"budget"` // bytes
}

// Size is how much it keeps now.
func (r *Recorder) Size() RecorderSize {
	r.mu.Lock()
	defer r.mu.Unlock()
	return RecorderSize{Seq: r.seq, Stories: len(r.logs), Entries: r.count, Bytes: r.bytes, Budget: r.budget}
}

// maxDumped is how many entries a panic's log record has: a journal splits long ones, and drops many.
const maxDumped = 200

// dumpLast is the end of the story of a pod, or of the actor that panicked over none.
func (r *Recorder) dumpLast(uid string, self messages.Address) string {
	q := Query{Pod: uid}
	if uid == "" {
		q = Query{Actor: &self}
	}
	entries := r.Select(q)
	return text(entries[max(0, len(entries)-maxDumped):])
}

// Dump is Last as text, one line an entry.
func (r *Recorder) Dump(uid string) string { return text(r.Last(uid)) }

func text(entries []Entry) string {
	var b strings.Builder
	for _, e := range entries {
		b.WriteString(e.String())
		b.WriteByte('\n')
	}
	return b.String()
}
