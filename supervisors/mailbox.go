package supervisors

import (
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
)

// mailboxWatch measures a mailbox, which protoactor does not bound. It also signals a request to stop outside the mailbox,
// for an actor held by an interceptor.
type mailboxWatch struct {
	now, max atomic.Int64  // messages
	halted   chan struct{} // closed then
	once     sync.Once
}

func (w *mailboxWatch) MailboxStarted()     {}
func (w *mailboxWatch) MailboxEmpty()       {}
func (w *mailboxWatch) MessageReceived(any) { w.now.Add(-1) }

func (w *mailboxWatch) MessagePosted(m any) {
	n := w.now.Add(1)
	for most := w.max.Load(); n > most && !w.max.CompareAndSwap(most, n); most = w.max.Load() {
		continue
	}
	if _, ok := m.(*actor.Stop); ok {
		w.once.Do(func() { close(w.halted) })
	}
}

// spawnMailbox blocks senders while its actor is being spawned. protoactor registers an actor's name before its mailbox has a
// dispatcher. A sender would panic then, and leave the mailbox marked as scheduled, so that the actor never runs. A little
// later, a message could overtake Started. Senders block no longer than the spawn, which depends on no other actor.
type spawnMailbox struct {
	actor.Mailbox
	handled, started chan struct{}
	once             sync.Once
}

func newSpawnMailbox(inner actor.Mailbox) *spawnMailbox {
	return &spawnMailbox{Mailbox: inner, handled: make(chan struct{}), started: make(chan struct{})}
}

// RegisterHandlers implements actor.Mailbox; it comes once, before anything else that the spawner does.
func (g *spawnMailbox) RegisterHandlers(invoker actor.MessageInvoker, dispatcher actor.Dispatcher) {
	g.Mailbox.RegisterHandlers(invoker, dispatcher)
	close(g.handled)
}

// Start implements actor.Mailbox; the spawner has posted Started by then.
func (g *spawnMailbox) Start() {
	g.Mailbox.Start()
	g.once.Do(func() { close(g.started) })
}

// PostSystemMessage implements actor.Mailbox.
func (g *spawnMailbox) PostSystemMessage(m any) {
	<-g.handled
	g.Mailbox.PostSystemMessage(m)
}

// PostUserMessage implements actor.Mailbox.
func (g *spawnMailbox) PostUserMessage(m any) {
	<-g.started
	g.Mailbox.PostUserMessage(m)
}
