package supervisors

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// Sizes of the flight recorder: what a pod's story and the node's keep at most. A pod's entries take about 8 KiB.
const (
	podEntries  = 64
	nodeEntries = 512
	podsKept    = 512
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

type ring struct {
	entries []Entry
	size    int
	at      int
}

func (r *ring) add(e Entry) {
	if len(r.entries) < r.size {
		r.entries = append(r.entries, e)
		return
	}
	r.entries[r.at] = e
	r.at = (r.at + 1) % r.size
}

func (r *ring) list() []Entry {
	out := make([]Entry, 0, len(r.entries))
	out = append(out, r.entries[r.at:]...)
	return append(out, r.entries[:r.at]...)
}

// Recorder keeps the last messages of each pod and of the node in bounded memory. Safe for concurrent use.
type Recorder struct {
	mu    sync.Mutex
	node  ring
	pods  map[string]*ring
	order []string // pods by first message, for dropping the oldest
}

func newRecorder() *Recorder {
	return &Recorder{node: ring{size: nodeEntries}, pods: map[string]*ring{}}
}

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
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Flow.Pod == "" {
		r.node.add(e)
		return
	}
	ring := r.pods[e.Flow.Pod]
	if ring == nil {
		ring = r.admit(e.Flow.Pod)
	}
	ring.add(e)
}

func (r *Recorder) admit(pod string) *ring {
	if len(r.order) >= podsKept {
		delete(r.pods, r.order[0])
		r.order = r.order[1:]
	}
	p := &ring{size: podEntries}
	r.pods[pod] = p
	r.order = append(r.order, pod)
	return p
}

// Last lists the last messages of the pod with this UID, oldest first; of the node when uid is empty.
func (r *Recorder) Last(uid string) []Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	if uid == "" {
		return r.node.list()
	}
	if p := r.pods[uid]; p != nil {
		return p.list()
	}
	return nil
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
