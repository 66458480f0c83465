// Package supervisortest runs one actor synchronously, with a recording context and an injected clock: no mailbox, no
// goroutine, no protoactor. The messages, work and timers of the actor are recorded, and run only when the test calls for
// them.
package supervisortest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/exits"
)

// SentMessage is one message that the actor sent.
type SentMessage struct {
	To  messages.Address
	Msg any
}

// Kit is one actor under test and its recording context. It is not safe for concurrent use.
type Kit struct{ recordingContext }

// recordingContext is the actor's supervisors.Context.
type recordingContext struct {
	TB    testing.TB
	Clock *clocktesting.FakeClock
	// Outbox holds the messages that the actor sent, oldest first; Take empties it.
	Outbox []SentMessage
	// Replies holds the actor's replies.
	Replies []any
	// Work holds the work that the actor requested and that has not run.
	Work []supervisors.Work
	// Spawned and Stopped record the verbs on children.
	Spawned []string
	Stopped []string
	// Strategies holds the exit strategies of spawned children, and Exited the actor's own exit.
	Strategies map[string]exits.Strategy
	Exited     []messages.ExitResult
	Ignored    []any

	self     messages.Address
	sender   messages.Address
	actor    supervisors.Actor
	behavior supervisors.Behavior
	timers   []*timer
	jumped   time.Duration // the wall clock was set by this

	stopHooks []func()
}

type timer struct {
	at   time.Time
	msg  any
	dead bool
}

// Cancel implements supervisors.Timer.
func (t *timer) Cancel() { t.dead = true }

// New starts the actor: it gets Started.
func New(tb testing.TB, self messages.Address, a supervisors.Actor) *Kit {
	k := &Kit{recordingContext{
		TB: tb, self: self, actor: a, Strategies: map[string]exits.Strategy{},
		Clock: clocktesting.NewFakeClock(Monotonic(begin)),
	}}
	k.behavior = a.Receive
	k.Send(messages.Node, messages.Started{})
	return k
}

// Send hands the actor one message. One that has ended itself gets none any more.
func (k *Kit) Send(from messages.Address, msg any) {
	if len(k.Exited) > 0 {
		return
	}
	k.sender = from
	k.behavior(&k.recordingContext, msg)
}

// Take returns the messages sent since the last Take.
func (k *Kit) Take() []SentMessage {
	out := k.Outbox
	k.Outbox = nil
	return out
}

// End calls the actor's stop hooks. The actor must not be used afterwards.
func (k *Kit) End() {
	for _, f := range k.stopHooks {
		f()
	}
	k.stopHooks = nil
}

// RunWork does all work asked for, on this goroutine, and hands the actor each result, until none is left.
func (k *Kit) RunWork() {
	for len(k.Work) > 0 {
		w := k.Work[0]
		k.Work = k.Work[1:]
		k.RunOne(w)
	}
}

// RunOne does one piece of work and hands the actor its result.
func (k *Kit) RunOne(w supervisors.Work) {
	ctx := context.Background()
	if !w.Waits {
		bounded, cancel := context.WithTimeout(ctx, w.Timeout)
		defer cancel()
		ctx = bounded
	}
	msg := w.Run(ctx)
	if msg == nil {
		k.TB.Fatalf("work %s returned no message", w.Name)
	}
	k.Send(k.self, msg)
}

// Advance steps the clock and delivers the timers that are due, in order of their times.
func (k *Kit) Advance(d time.Duration) {
	until := k.Clock.Now().Add(d)
	for {
		var first *timer
		for _, t := range k.timers {
			if !t.dead && !t.at.After(until) && (first == nil || t.at.Before(first.at)) {
				first = t
			}
		}
		if first == nil {
			break
		}
		first.dead = true
		if first.at.After(k.Clock.Now()) {
			k.Clock.SetTime(first.at)
		}
		k.Send(k.self, first.msg)
	}
	k.Clock.SetTime(until)
}

// Pending lists the messages of timers that have not fired, in the order they were set.
func (k *Kit) Pending() []any {
	var out []any
	for _, t := range k.timers {
		if !t.dead {
			out = append(out, t.msg)
		}
	}
	return out
}

var _ supervisors.Context = (*recordingContext)(nil)

func (k *recordingContext) Self() messages.Address   { return k.self }
func (k *recordingContext) Sender() messages.Address { return k.sender }
func (k *recordingContext) Log() *slog.Logger        { return slog.New(slog.DiscardHandler) }
func (k *recordingContext) Tell(to messages.Address, msg any) {
	k.Outbox = append(k.Outbox, SentMessage{to, msg})
}
func (k *recordingContext) Reply(msg any)                   { k.Replies = append(k.Replies, msg) }
func (k *recordingContext) Spawn(name string)               { k.Spawned = append(k.Spawned, name) }
func (k *recordingContext) Exit(result messages.ExitResult) { k.Exited = append(k.Exited, result) }
func (k *recordingContext) Stop(name string)                { k.Stopped = append(k.Stopped, name) }
func (k *recordingContext) Become(b supervisors.Behavior)   { k.behavior = b }
func (k *recordingContext) Unhandled(msg any)               { k.Ignored = append(k.Ignored, msg) }

func (k *recordingContext) OnStop(f func()) { k.stopHooks = append(k.stopHooks, f) }

func (k *recordingContext) Do(w supervisors.Work) {
	w.Check()
	k.Work = append(k.Work, w)
}

func (k *recordingContext) After(d time.Duration, msg any) supervisors.Timer {
	t := &timer{at: k.Clock.Now().Add(d), msg: msg}
	k.timers = append(k.timers, t)
	return t
}

// SpawnKind records the spawned child as "<kind> <name>".
func (k *recordingContext) SpawnKind(kind supervisors.Kind, name string) {
	k.Spawned = append(k.Spawned, string(kind)+" "+name)
}

// SpawnWith records the desired state as a message to the child.
func (k *recordingContext) SpawnWith(name string, desired any, s exits.Strategy) {
	k.Spawned = append(k.Spawned, name)
	k.Update(name, desired, s)
	k.Tell(k.self.Child(name), desired)
}

func (k *recordingContext) Update(name string, _ any, s exits.Strategy) { k.Strategies[name] = s }
