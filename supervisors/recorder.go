package supervisors

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// Sizes of the flight recorder: how many entries of a pod, or of an actor that exists once, it keeps at most, how many of a pod's
// are those of its start, and how many bytes all of them together take. Over that, who has more than a fair share forgets its own
// oldest entry, else who has been silent longest does. A pod's start is forgotten last.
const (
	storyEntries   = 256
	startEntries   = 96
	recorderBudget = 12 << 20
)

// story names whose last entries an entry is among: a pod's, by UID, or those of an actor that exists once.
func (e *Entry) story() string {
	switch {
	case e.Flow.Pod != "":
		return e.Flow.Pod
	case e.Kind == OfCall:
		return e.From.String()
	default:
		return e.To.String()
	}
}

// story are the entries of one pod or actor. It is in the list of all stories, the one that has been silent longest first.
type story struct {
	name             string
	oldest, youngest *note
	started          *note // the last of the start, which is kept; nil while nothing was forgotten, and for an actor
	count, forgotten int
	before, after    *story
}

// next is the entry that is forgotten next. At the first time it is settled what the start is: half of what there is, at most.
func (s *story) next() *note {
	if s.forgotten == 0 && len(s.oldest.word(wordPod)) > 0 {
		s.started = s.oldest
		for range min(startEntries, s.count/2) - 1 {
			s.started = s.started.younger
		}
	}
	if s.started != nil && s.started.younger != nil {
		return s.started.younger
	}
	return s.oldest
}

// Recorder keeps the last messages of each pod and of each actor that exists once in bounded memory. It belongs to the process,
// and so outlives the actors. Safe for concurrent use.
type Recorder struct {
	off              atomic.Bool
	mu               sync.Mutex
	seq              uint64
	stories          map[string]*story
	oldest, youngest *note  // of all
	silent, loud     *story // the story that has been silent longest, and the one that spoke last
	count            int
	bytes, budget    int
	news             chan struct{} // closed at the next entry; nil while nobody waits
}

// NewRecorder is an empty one.
func NewRecorder() *Recorder { return &Recorder{stories: map[string]*story{}, budget: recorderBudget} }

// TurnOff has nothing recorded any more: so it is measured what recording costs.
func (r *Recorder) TurnOff() { r.off.Store(true) }

func (r *Recorder) record(to messages.Address, env *envelope, began, ended time.Time, panicked any) {
	if _, routine := env.msg.(messages.Routine); routine && panicked == nil || r.off.Load() {
		return
	}
	e := Entry{
		ID: env.id, Cause: env.cause, Flow: env.flow, Kind: env.kind, From: env.from, To: to, Message: typeName(env.msg),
		Sent: env.sent, Began: began, Took: ended.Sub(began),
	}
	if panicked != nil {
		e.Panic = firstLine(fmt.Sprint(panicked))
	}
	buffer := buffers.Get().(*[]byte)
	*buffer = appendDigest((*buffer)[:0], env.msg)
	r.add(e, *buffer)
	buffers.Put(buffer)
}

// Add records an entry and gives it its Seq.
func (r *Recorder) Add(e Entry) {
	if !r.off.Load() {
		r.add(e, []byte(e.Digest))
	}
}

func (r *Recorder) add(e Entry, digest []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	e.Seq = r.seq
	name := e.story()
	s := r.stories[name]
	if s == nil {
		s = &story{name: name}
		r.stories[name] = s
	} else {
		r.unlink(s)
	}
	r.link(s)
	var n *note // one that is forgotten is used again
	if s.count == storyEntries {
		n = r.drop(s)
	}
	for r.bytes > r.budget {
		if s.count*len(r.stories) > r.count {
			n = r.drop(s)
		} else {
			n = r.drop(r.silent)
		}
	}
	if n == nil {
		n = new(note)
	}
	n.fill(&e, digest)
	n.of, n.before = s, r.youngest
	r.bytes += n.bytes()
	r.count++
	if r.youngest != nil {
		r.youngest.after = n
	} else {
		r.oldest = n
	}
	r.youngest = n
	if s.count == 0 {
		s.oldest = n
		if r.stories[name] == nil { // its last entry has just been dropped
			r.stories[name] = s
			r.link(s)
		}
	} else {
		s.youngest.younger = n
	}
	s.youngest = n
	s.count++
	if r.news != nil {
		close(r.news)
		r.news = nil
	}
}

// link puts a story last, as the one that spoke last.
func (r *Recorder) link(s *story) {
	if s.before, s.after = r.loud, nil; r.loud != nil {
		r.loud.after = s
	} else {
		r.silent = s
	}
	r.loud = s
}

func (r *Recorder) unlink(s *story) {
	if s.before != nil {
		s.before.after = s.after
	} else {
		r.silent = s.after
	}
	if s.after != nil {
		s.after.before = s.before
	} else {
		r.loud = s.before
	}
}

// drop forgets an entry of a story, and gives its note to be used again.
func (r *Recorder) drop(s *story) *note {
	n := s.next()
	if n == s.oldest {
		s.oldest, s.started = n.younger, nil
	} else if s.started.younger = n.younger; n == s.youngest {
		s.youngest = s.started
	}
	s.forgotten++
	if s.count--; s.count == 0 {
		delete(r.stories, s.name)
		r.unlink(s)
		s.forgotten = 0
	}
	if n.before != nil {
		n.before.after = n.after
	} else {
		r.oldest = n.after
	}
	if n.after != nil {
		n.after.before = n.before
	} else {
		r.youngest = n.before
	}
	r.count--
	r.bytes -= n.bytes()
	return n
}

// Query chooses entries; an empty field chooses all.
type Query struct {
	Pod   string            // UID
	Actor *messages.Address // who sent or got it
	Since time.Time         // when it was done with
	After uint64            // its Seq is greater
}

func (q *Query) match(n *note) bool {
	return n.seq > q.After && (q.Pod == "" || string(n.word(wordPod)) == q.Pod) &&
		(q.Actor == nil || string(n.word(wordTo)) == string(*q.Actor) || string(n.word(wordFrom)) == string(*q.Actor)) &&
		(q.Since.IsZero() || !timeOf(n.began).Add(n.took).Before(q.Since))
}

// Select lists what is kept, oldest first. A pod's begins with what led to it: the chain of causes up to the work that some
// source has done. What others did that led to something of it, as a pull for another pod, is there as well.
func (r *Recorder) Select(q Query) []Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []Entry{} // never nil: a server shows a list
	for n := r.youngest; n != nil && n.seq > q.After; n = n.before {
		if q.match(n) {
			out = append(out, n.shown())
		}
	}
	slices.Reverse(out)
	if q.Pod != "" && q.After == 0 && q.Since.IsZero() {
		out = append(r.causes(out), out...)
	}
	return out
}

// shown is the entry, with what was forgotten before it.
func (n *note) shown() Entry {
	e := n.entry()
	if s := n.of; s.forgotten > 0 && (s.started == nil && n == s.oldest || s.started != nil && n == s.started.younger) {
		e.Forgotten = s.forgotten
	}
	return e
}

// causePasses bounds how often all entries are looked through for causes.
const causePasses = 4

// causes are what led to entries of a pod's story and is not among them, as it was sent: chains of causes up to the work that
// begins them, with the calls of that.
func (r *Recorder) causes(of []Entry) (out []Entry) {
	here, wanted, work := map[uint64]bool{}, map[uint64]bool{}, map[uint64]bool{}
	for i := range of {
		here[of[i].ID], wanted[of[i].Cause] = true, true
	}
	for range causePasses { // a cause may have been recorded after what it led to
		before := len(out)
		for n := r.youngest; n != nil; n = n.before {
			kind := kinds[n.kind]
			if here[n.id] || !wanted[n.id] && (kind != OfCall || !work[n.cause]) {
				continue
			}
			out, here[n.id] = append(out, n.entry()), true
			switch kind {
			case OfMessage:
				wanted[n.cause] = true
			case OfWork:
				work[n.id] = true
			case OfTimer, OfCall, OfChaos:
			}
		}
		if len(out) == before {
			break
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
		if r.news == nil {
			r.news = make(chan struct{})
		}
		news := r.news
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
	return RecorderSize{Seq: r.seq, Stories: len(r.stories), Entries: r.count, Bytes: r.bytes, Budget: r.budget}
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
