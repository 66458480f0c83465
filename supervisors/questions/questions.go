// Package questions keeps the open questions of an actor: requests to other actors and pieces of work that have no answer yet.
//
// A machine keeps no deadlines. With each step it returns the set of its open questions, and calls Ask with it. Ask compares the
// set with the one before:
//
//   - A new question is sent.
//   - An unchanged question is sent again when its deadline has passed, when its receiver has restarted, or after the back-off of
//     a failed try.
//   - A question of another version replaces the earlier one and is sent at once.
//   - A question that has disappeared is withdrawn, and its answer no longer counts.
//
// Answered reports whether an answer counts: its question is open, has the answer's version, and has no answer yet. An answered
// question usually disappears from the set. One that stays is sent again after Renew, as a reading that is repeated.
//
// Any message may be lost, duplicated, delayed or overtaken, and sender and receiver may be killed: each question that stays in
// the set is answered at last. A receiver must treat a repeated question as the same one. The state dies with its actor; the
// restarted actor asks all its questions again.
package questions

import (
	"fmt"
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// Key identifies a question among those of one actor.
type Key struct {
	Name string
	Of   string // the subject, such as a container; empty for the whole
}

// String returns the key in one word.
func (k Key) String() string {
	if k.Of == "" {
		return k.Name
	}
	return k.Name + "/" + k.Of
}

// Class is a class of deadlines.
type Class struct {
	// Timeout is the wait for an answer before the question is sent again. Required.
	Timeout time.Duration
	// Renew is the wait after an answer before a question that is still in the set is sent again. 0: only the receiver's restart
	// sends it again.
	Renew time.Duration
	// Retry is the back-off after failed tries; see Failed.
	Retry backoff.Policy
}

// Question is an open question.
type Question struct {
	Key
	// To is the receiver of Message. Node, the zero value, stands for work: the actor carries Message out itself.
	To      messages.Address
	Message any
	// Version distinguishes a changed question from a repeated one. It must be comparable; nil if the question never changes.
	// The message may differ within a version: the newest is sent.
	Version any
	Class
	// Withdrawal, unless nil, is sent to the receiver when the question disappears without an answer. It must be comparable.
	Withdrawal any
}

// Send is a message to send, or work to carry out if To is Node.
type Send struct {
	To      messages.Address
	Message any
}

// Tracker holds the open questions of one actor. The zero value has none. It is pure: it reads no clock and sends nothing. It is
// not safe for concurrent use.
type Tracker struct{ open map[Key]*state }

// state is the state of an open question.
type state struct {
	Question
	due      time.Time // the next time to send it; zero: not before the receiver's restart
	answered bool      // since the question was last sent
	failures int       // tries that failed in a row
}

// Ask replaces the set of open questions and returns the messages to send: withdrawals, then questions in the order of the set.
// It panics if two questions have the same key.
func (o *Tracker) Ask(now time.Time, set []Question) []Send {
	next := make(map[Key]*state, len(set))
	var questions []Send
	for _, q := range set {
		if next[q.Key] != nil {
			panic(fmt.Sprintf("two open questions with the key %s", q.Key))
		}
		s := o.open[q.Key]
		if s == nil || s.Version != q.Version || s.To != q.To {
			s = &state{due: now}
		}
		s.Question = q
		next[q.Key] = s
		if !s.due.IsZero() && !now.Before(s.due) {
			s.due, s.answered = now.Add(q.Timeout), false
			questions = append(questions, Send{q.To, q.Message})
		}
	}
	sends := o.withdrawn(next)
	o.open = next
	return append(sends, questions...)
}

// withdrawn returns the withdrawals of the questions that are not in next, each once.
func (o *Tracker) withdrawn(next map[Key]*state) (out []Send) {
	sent := map[Send]bool{}
	for k, s := range o.open {
		w := Send{s.To, s.Withdrawal}
		if next[k] == nil && !s.answered && s.Withdrawal != nil && !sent[w] {
			sent[w] = true
			out = append(out, w)
		}
	}
	return out
}

// Answered reports whether an answer counts, and records it. The actor must drop an answer that does not count. A nil version
// stands for an answer without one, which answers any version.
func (o *Tracker) Answered(now time.Time, k Key, version any) bool {
	s := o.open[k]
	if s == nil || s.answered || version != nil && s.Version != version {
		return false
	}
	s.answered, s.due = true, time.Time{}
	if s.Renew > 0 {
		s.due = now.Add(s.Renew)
	}
	return true
}

// Failed records a failed try of a question that is still open, and returns the time of the next try, now if the question is not
// open. The number of failures ends with the question.
func (o *Tracker) Failed(now time.Time, k Key) time.Time {
	s := o.open[k]
	if s == nil {
		return now
	}
	s.failures++
	s.answered, s.due = true, now.Add(s.Retry.After(s.failures, 0))
	return s.due
}

// Restarted marks the questions to a receiver that has restarted: the next Ask sends them again, answered ones too.
func (o *Tracker) Restarted(now time.Time, receiver messages.Address) {
	for _, s := range o.open {
		if s.To == receiver && receiver != messages.Node {
			s.due = now
		}
	}
}

// Pending reports whether a question was sent and has neither an answer nor a failure since.
func (o *Tracker) Pending(k Key) bool {
	s := o.open[k]
	return s != nil && !s.answered
}

// Next returns the time at which the actor must call Ask again with the same set; zero if there is none. The actor sets a timer
// for it.
func (o *Tracker) Next() (at time.Time) {
	for _, s := range o.open {
		if !s.due.IsZero() && (at.IsZero() || s.due.Before(at)) {
			at = s.due
		}
	}
	return at
}
