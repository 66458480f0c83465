package supervisors

import (
	"fmt"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/playlet-dev/playlet/messages"
)

// Sizes of the flight recorder: how many messages of a pod and of the node it keeps at most, and how many bytes the stories of
// all pods together take. What is over that is forgotten oldest first, whichever pod's it is.
const (
	podEntries  = 64
	nodeEntries = 512
	podsBudget  = 8 << 20
)

// Entry is one message as the flight recorder keeps it: who, to whom, what kind, why and when, never its contents,
// which may hold secrets.
type Entry struct {
	ID      uint64           `json:"id"`
	Cause   uint64           `json:"cause,omitempty"`
	Flow    Flow             `json:"flow"`
	From    messages.Address `json:"from"`
	To      messages.Address `json:"to"`
	Message string           `json:"message"`
	Sent    time.Time        `json:"sent"`
	Began   time.Time        `json:"began"`
	Took    time.Duration    `json:"took"`
	Panic   string           `json:"panic,omitempty"`
}

func (e Entry) String() string {
	s := fmt.Sprintf("%s %d<-%d %s -> %s %s %s", e.Began.Format("15:04:05.000"), e.ID, e.Cause, e.From, e.To, e.Message, e.Took)
	if e.Panic != "" {
		s += " PANIC " + e.Panic
	}
	return s
}

// note is one entry in the list of all pods' entries, oldest first, and in that of its pod.
type note struct {
	Entry
	before, after *note
	younger       *note // of the same pod
}

// bytes is about what the note takes.
func (n *note) bytes() int {
	return int(unsafe.Sizeof(*n)) + len(n.From) + len(n.To) + len(n.Flow.Pod) + len(n.Panic)
}

// story are the entries of one pod.
type story struct {
	oldest, youngest *note
	count            int
}

// Recorder keeps the last messages of each pod and of the node in bounded memory. The zero value is an empty one. Safe for
// concurrent use.
type Recorder struct {
	mu               sync.Mutex
	node             []Entry // a ring, once it is full
	nodeAt           int     // the oldest of it
	pods             map[string]*story
	oldest, youngest *note // of all pods
	bytes, budget    int
}

func newRecorder() *Recorder { return &Recorder{pods: map[string]*story{}, budget: podsBudget} }

func (r *Recorder) record(to messages.Address, env *envelope, began, ended time.Time, panicked any) {
	if _, routine := env.msg.(messages.Routine); routine && panicked == nil {
		return
	}
	e := Entry{
		ID: env.id, Cause: env.cause, Flow: env.flow, From: env.from, To: to, Message: typeName(env.msg),
		Sent: env.sent, Began: began, Took: ended.Sub(began),
	}
	if panicked != nil {
		e.Panic = firstLine(fmt.Sprint(panicked))
	}
	r.add(e)
}

func (r *Recorder) add(e Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case e.Flow.Pod != "":
		r.addPod(e)
	case len(r.node) < nodeEntries:
		r.node = append(r.node, e)
	default:
		r.node[r.nodeAt] = e
		r.nodeAt = (r.nodeAt + 1) % nodeEntries
	}
}

func (r *Recorder) addPod(e Entry) {
	s := r.pods[e.Flow.Pod]
	if s == nil {
		s = &story{}
		r.pods[e.Flow.Pod] = s
	}
	var n *note
	if s.count == podEntries {
		n = r.drop(s)
	}
	for r.bytes > r.budget {
		n = r.drop(r.pods[r.oldest.Flow.Pod])
	}
	if n == nil {
		n = &note{}
	}
	*n = note{Entry: e, before: r.youngest}
	r.bytes += n.bytes()
	if r.youngest != nil {
		r.youngest.after = n
	} else {
		r.oldest = n
	}
	r.youngest = n
	if s.count == 0 {
		s.oldest = n
		r.pods[e.Flow.Pod] = s // its last entry may just have been dropped
	} else {
		s.youngest.younger = n
	}
	s.youngest = n
	s.count++
}

// drop forgets the oldest entry of a pod, and gives its note to be used again.
func (r *Recorder) drop(s *story) *note {
	n := s.oldest
	s.oldest = n.younger
	if s.count--; s.count == 0 {
		delete(r.pods, n.Flow.Pod)
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
	r.bytes -= n.bytes()
	return n
}

// Last lists the last messages of the pod with this UID, oldest first; of the node when uid is empty.
func (r *Recorder) Last(uid string) []Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	if uid == "" {
		return append(append([]Entry{}, r.node[r.nodeAt:]...), r.node[:r.nodeAt]...) // never nil: a server shows a list
	}
	var out []Entry
	if s := r.pods[uid]; s != nil {
		for n := s.oldest; n != nil; n = n.younger {
			out = append(out, n.Entry)
		}
	}
	return out
}

// Dump is Last as text, one line a message.
func (r *Recorder) Dump(uid string) string {
	var b strings.Builder
	for _, e := range r.Last(uid) {
		b.WriteString(e.String())
		b.WriteByte('\n')
	}
	return b.String()
}
