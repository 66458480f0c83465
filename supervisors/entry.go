package supervisors

import (
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/playlet-dev/playlet/messages"
)

// EntryKind is what an entry of the flight recorder is about.
type EntryKind string

// The kinds.
const (
	OfMessage EntryKind = ""
	OfTimer   EntryKind = "timer" // a message that the actor sent itself for later; sent is when its time came
	OfWork    EntryKind = "work"  // done outside the mailbox; the result is the message that it causes
	OfChaos   EntryKind = "chaos" // what an interceptor did to a message on its way
	OfCall    EntryKind = "call"  // a request to the container runtime or the API server, made by work; sent is when it queued
)

// Entry is one message, piece of work or call as the flight recorder keeps it: who, to whom, what kind, why and when, and a
// digest of names and reasons; never its contents, which may hold secrets.
type Entry struct {
	Seq     uint64           `json:"seq"` // counts the entries in the order in which they were recorded
	ID      uint64           `json:"id"`
	Cause   uint64           `json:"cause,omitempty"` // the ID of what led to it
	Flow    Flow             `json:"flow"`
	Kind    EntryKind        `json:"kind,omitempty"`
	From    messages.Address `json:"from"`
	To      messages.Address `json:"to"` // for a call: Runtime or APIServer, which stand for what they speak to
	Message string           `json:"message"`
	Digest  string           `json:"digest,omitempty"`
	Sent    time.Time        `json:"sent"`
	Began   time.Time        `json:"began"` // when it left the mailbox or the queue
	Took    time.Duration    `json:"took"`  // nanoseconds of handling
	Panic   string           `json:"panic,omitempty"`
	// Forgotten are so many entries of the same story that came before this one and are kept no longer.
	Forgotten int `json:"forgotten,omitempty"`
}

// Ended is when it was done with.
func (e *Entry) Ended() time.Time { return e.Began.Add(e.Took) }

func (e Entry) String() string {
	s := fmt.Sprintf("%s %d<-%d %s -> %s %s", e.Began.Format("15:04:05.000"), e.ID, e.Cause, e.From, e.To, e.Message)
	if e.Digest != "" {
		s += " (" + e.Digest + ")"
	}
	if s += " " + e.Took.String(); e.Panic != "" {
		s += " PANIC " + e.Panic
	}
	return s
}

// note is one entry in the list of all entries, oldest first, and in that of its story. Its words are in one text, and its times
// are numbers: thousands of entries with a dozen pointers each are what the garbage collector would be busy with.
type note struct {
	text          []byte // sender, receiver, pod, message, digest and panic; its room is used again
	of            *story
	before, after *note
	younger       *note // of the same story

	seq, id, cause, flow uint64
	sent, began          int64 // nanoseconds since 1970; 0: not known
	took                 time.Duration
	ends                 [5]uint32 // of the words in the text but the last
	kind                 uint8     // in kinds
}

var kinds = []EntryKind{OfMessage, OfTimer, OfWork, OfChaos, OfCall}

// The words of a note's text.
const (
	wordFrom = iota
	wordTo
	wordPod
	wordMessage
	wordDigest
	wordPanic
)

// fill makes the note one of an entry whose digest is told apart.
func (n *note) fill(e *Entry, digest []byte) {
	text, end := n.text[:0], uint32(0)
	*n = note{
		seq: e.Seq, id: e.ID, cause: e.Cause, flow: e.Flow.ID, sent: nanos(e.Sent), began: nanos(e.Began), took: e.Took,
		kind: uint8(max(slices.Index(kinds, e.Kind), 0)), //nolint:gosec // one of five
	}
	if need := len(e.From) + len(e.To) + len(e.Flow.Pod) + len(e.Message) + len(digest) + len(e.Panic); need > cap(text) {
		text = make([]byte, 0, need)
	}
	for i, length := range [...]int{len(e.From), len(e.To), len(e.Flow.Pod), len(e.Message), len(digest)} {
		end += uint32(length) //nolint:gosec // of words
		n.ends[i] = end
	}
	text = append(append(append(append(text, e.From...), e.To...), e.Flow.Pod...), e.Message...)
	n.text = append(append(text, digest...), e.Panic...)
}

// word is one of the text, which it shares.
func (n *note) word(i int) []byte {
	begin, end := uint32(0), uint32(len(n.text)) //nolint:gosec // of words
	if i > 0 {
		begin = n.ends[i-1]
	}
	if i < len(n.ends) {
		end = n.ends[i]
	}
	return n.text[begin:end]
}

func (n *note) entry() Entry {
	return Entry{
		Seq: n.seq, ID: n.id, Cause: n.cause, Flow: Flow{ID: n.flow, Pod: string(n.word(wordPod))},
		Kind: kinds[n.kind], From: messages.Address(n.word(wordFrom)), To: messages.Address(n.word(wordTo)),
		Message: string(n.word(wordMessage)), Digest: string(n.word(wordDigest)), Sent: timeOf(n.sent), Began: timeOf(n.began),
		Took: n.took, Panic: string(n.word(wordPanic)),
	}
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func timeOf(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos)
}

// bytes is about what the note takes.
func (n *note) bytes() int { return int(unsafe.Sizeof(*n)) + cap(n.text) }
