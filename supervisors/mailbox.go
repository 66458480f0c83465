package supervisors

import (
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
)

// watch measures a mailbox, which protoactor does not bound, and hears, outside of it, that its actor is asked to stop: one that
// is held does not look.
type watch struct {
	now, max atomic.Int64  // messages
	halted   chan struct{} // closed then
	once     sync.Once
}

func (w *watch) MailboxStarted()     {}
func (w *watch) MailboxEmpty()       {}
func (w *watch) MessageReceived(any) { w.now.Add(-1) }

func (w *watch) MessagePosted(m any) {
	n := w.now.Add(1)
	for most := w.max.Load(); n > most && !w.max.CompareAndSwap(most, n); most = w.max.Load() {
		continue
	}
	if _, ok := m.(*actor.Stop); ok {
		w.once.Do(func() { close(w.halted) })
	}
}

// gate holds messages for an actor that is being spawned back until it can take them. protoactor gives an actor its name
// before its mailbox has a dispatcher: whoever sends to the name in between panics, and leaves a mailbox that believes it
// is being worked off, so that the actor never takes a message. A moment later a message could overtake Started. Nobody
// waits longer than the spawn takes, which depends on no other actor.
type gate struct {
	actor.Mailbox
	handled, started chan struct{}
	once             sync.Once
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
