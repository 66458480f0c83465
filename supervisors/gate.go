package supervisors

import (
	"sync"

	"github.com/asynkron/protoactor-go/actor"
)

// gate holds messages for an actor that is being spawned back until it can take them. protoactor gives an actor its name
// before its mailbox has a dispatcher: whoever sends to the name in between panics, and leaves a mailbox that believes it
// is being worked off, so that the actor never takes a message. A moment later a message could overtake Started. Nobody
// waits longer than the spawn takes, which depends on no other actor.
type gate struct {
	actor.Mailbox
	handled, started chan struct{}
	once             sync.Once
}

// gatedMailbox makes mailboxes without a bound, behind a gate.
func gatedMailbox(watchers ...actor.MailboxMiddleware) actor.MailboxProducer {
	inner := actor.Unbounded(watchers...)
	return func() actor.Mailbox { return newGate(inner()) }
}

func newGate(inner actor.Mailbox) *gate {
	return &gate{Mailbox: inner, handled: make(chan struct{}), started: make(chan struct{})}
}

// RegisterHandlers implements actor.Mailbox; it comes once, before anything else that the spawner does.
func (g *gate) RegisterHandlers(invoker actor.MessageInvoker, dispatcher actor.Dispatcher) {
	g.Mailbox.RegisterHandlers(invoker, dispatcher)
	close(g.handled)
}

// Start implements actor.Mailbox; the spawner has posted Started by then.
func (g *gate) Start() {
	g.Mailbox.Start()
	g.once.Do(func() { close(g.started) })
}

// PostSystemMessage implements actor.Mailbox.
func (g *gate) PostSystemMessage(m any) {
	<-g.handled
	g.Mailbox.PostSystemMessage(m)
}

// PostUserMessage implements actor.Mailbox.
func (g *gate) PostUserMessage(m any) {
	<-g.started
	g.Mailbox.PostUserMessage(m)
}
