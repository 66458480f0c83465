// Package supervisors holds the tree of actors as a literal table, the one restart mechanism, and the thin typed layer
// over protoactor that every actor of Playlet is written against. It alone imports protoactor.
//
// The flight recorder (recorder.go) keeps the latest messages of each pod, and of each actor that exists once, in at most 12
// MiB. An entry has sender, receiver, cause, times of sending and handling, and a digest of names and reasons, never the
// contents. A pod's first entries are kept as well; after a gap, the next entry gives the number of dropped ones. Work
// appears between a message and its result, with its calls of the container runtime and the API server as leaves. It belongs
// to the story of its pod (Work.Pod), and its time counts from the end of its wait (Awaited). The recorder belongs to the
// process and outlives the actors. It is dumped into the log at a panic, written to playlet/flight-recorder.log in the root
// folder at SIGUSR1, and read without mailboxes. task bench-recording prints its cost: at most 3 % of the processor time of a
// pod start, as measured by task bench.
//
// Vitals (vitals.go) are state, mailbox, the message in hand, restarts and last failure of each actor, kept outside mailboxes. An
// actor's own account of its state is an inspection, asked for with a deadline.
package supervisors

import (
	"context"
	"log/slog"
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/exits"
)

// Actor is the behaviour of one actor. Receive runs on the actor's own mailbox, one message at a time: it needs no
// locks, and does no I/O and no waiting; work goes through Context.Do.
type Actor interface {
	Receive(ctx Context, msg any)
}

// Inspector is an actor that adds a detail of its own to its inspection. Inspect runs on the mailbox and returns a copy
// that marshals to JSON.
type Inspector interface {
	Inspect() any
}

// Behavior handles an actor's next messages; see Context.Become.
type Behavior func(ctx Context, msg any)

// Context is all that an actor sees of the world of actors. It is valid on the mailbox only, never in a worker.
// Every verb carries the flow and the cause of the message being handled.
type Context interface {
	// Self is the actor's own address.
	Self() messages.Address
	// Sender is the address of the sender of the message being handled; Node's address when it came from outside.
	Sender() messages.Address
	// Now is the injected clock's time. Never use time.Now in an actor.
	Now() time.Time
	// Log is a logger that names the actor and, where there is one, the pod.
	Log() *slog.Logger
	// Tell sends a message. Delivery is at most once.
	Tell(to messages.Address, msg any)
	// Reply answers the message being handled: its sender, or the asker outside the tree. The result of work that such
	// a question led to can be answered too: the asker is the same.
	Reply(msg any)
	// Do runs work outside the mailbox and posts its one result back to this actor. See Work.
	Do(work Work)
	// OnStop calls f once when this life of the actor ends: when it is stopped, ends itself or panics. f runs outside the
	// mailbox, at the same time as the last work, and must not block. The actor's end waits for it as it does for work.
	OnStop(f func())
	// After posts a message to this actor when d has passed. The timer dies with the actor.
	After(d time.Duration, msg any) Timer
	// Spawn starts a child of the row's dynamic kind, once: spawning a name that is there is a no-op. The child's
	// parent then gets ChildStarted.
	Spawn(name string)
	// SpawnKind is Spawn for a row with several dynamic kinds, of which Spawn takes the first. A name can be used for another
	// kind after ChildStopped.
	SpawnKind(kind Kind, name string)
	// SpawnWith is Spawn with a desired state, which the child gets with Started, and a strategy for the case that the child ends
	// itself; Spawn uses Temporary. The supervisor's record keeps both: each incarnation gets the desired state. The child's exit
	// ends it, unless it belongs to a later run than the exit (exits.Strategy.Run); then the child is restarted at once. A child
	// with a strategy that restarts it has its next incarnation with its next desired state. Between an exit and its ChildExited,
	// a desired state of the same run or an earlier one is a repeated one, and is ignored.
	//
	// For an existing child they replace those before. A running child also gets the desired state as a message. A child that is
	// being stopped is started with it as soon as its name is free, one that has exited at once. A child that waits after panics
	// is started with it when its back-off or quarantine is over.
	SpawnWith(name string, desired any, s exits.Strategy)
	// Update replaces the desired state and the strategy of a child for its next incarnation. The present one gets no message. It
	// does nothing if there is no such child.
	Update(name string, desired any, s exits.Strategy)
	// Exit ends this actor, once the message being handled is done with, with a result: a value that its parent's strategy
	// judges and its parent gets in ChildExited. It is no failure and counts towards no intensity.
	Exit(result messages.ExitResult)
	// Stop ends a child for good, and drops its desired state; ChildStopped follows when its name is free.
	Stop(name string)
	// Become replaces the actor's behaviour, from the next message on.
	Become(b Behavior)
	// Unhandled records a message that the actor has no use for in its present state.
	Unhandled(msg any)
}

// Work is something done outside the mailbox: any I/O, any wait.
type Work struct {
	// Name describes the work in logs and inspections, e.g. "RunPodSandbox".
	Name string
	// Timeout bounds it; required unless Waits is set.
	Timeout time.Duration
	// Waits marks work that waits for an event, such as a change of a file, for as long as the actor lives. It has no timeout.
	Waits bool
	// Pod is the UID of the pod that it is done for, whoever had it begin now: its story has it. Work of a pod's own actor needs
	// none.
	Pod string
	// Routine work is done at a steady rate while nothing happens: the flight recorder leaves its calls out, as it does with a
	// result that is a messages.Routine.
	Routine bool
	// Run does it. Its context ends with the timeout, if any, or the actor. It returns exactly one message, never nil, which
	// is posted to the actor unless that has been restarted since. A panic in it is a panic of the actor. LogOf of
	// its context is the actor's logger.
	Run func(ctx context.Context) any
}

// Timer is a pending After.
type Timer interface {
	// Cancel keeps the message from being posted. Cancelling twice, or after it fired, does nothing; a message that
	// was already posted still arrives, so handlers must tolerate a late one.
	Cancel()
}

// Cancel cancels a timer, where there is one.
func Cancel(t Timer) {
	if t != nil {
		t.Cancel()
	}
}

// Constructor makes a new, empty actor. The name is the last element of its path.
type Constructor func(name string) Actor
