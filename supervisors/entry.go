package supervisors

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/playlet-dev/playlet/messages"
)

// EntryKind is the kind of a flight recorder entry.
type EntryKind string

// The kinds.
const (
	OfMessage EntryKind = ""
	OfTimer   EntryKind = "timer" // a message that the actor sent itself for later; sent is when its time came
	OfWork    EntryKind = "work"  // done outside the mailbox; the result is the message that it causes
	OfChaos   EntryKind = "chaos" // an effect of the interceptor on a message
	OfCall    EntryKind = "call"  // a request to the container runtime or the API server, made by work; sent is when it queued
)

// Entry is one message, piece of work or call in the flight recorder. It has a digest of names and reasons, never the
// contents, which may hold secrets.
type Entry struct {
	Seq     uint64           `json:"seq"` // counts the entries in the order in which they were recorded
	ID      uint64           `json:"id"`
	Cause   uint64           `json:"cause,omitempty"` // the ID of the entry that caused it
	Flow    Flow             `json:"flow"`
	Kind    EntryKind        `json:"kind,omitempty"`
	From    messages.Address `json:"from"`
	To      messages.Address `json:"to"` // for a call: Runtime or APIServer, for the services themselves
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

// bytes estimates the entry's size. Its addresses and its UID are shared with other entries.
func (e *Entry) bytes() int {
	return int(unsafe.Sizeof(*e)) + len(e.Message) + len(e.Digest) + len(e.Panic)
}

// logName returns the name of the entry's story: the UID of its pod, or the actor that exists once.
func (e *Entry) logName() string {
	switch {
	case e.Flow.Pod != "":
		return e.Flow.Pod
	case e.Kind == OfCall:
		return e.From.String()
	default:
		return e.To.String()
	}
}
