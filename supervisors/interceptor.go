package supervisors

import "github.com/playlet-dev/playlet/messages"

// Verdict is what an Interceptor does to a delivery.
type Verdict int

// The verdicts.
const (
	Pass  Verdict = iota
	Drop          // the message is lost; Pass where it is not Droppable
	Panic         // the actor fails as by a bug
)

// Delivery is one message about to be handled, or just handled.
type Delivery struct {
	Actor   messages.Address
	From    messages.Address // the sender; the actor itself for timers and results of its work
	Kind    Kind
	Message any
	Flow    Flow
	ID      uint64
}

// MessageKind is the type name of the delivered message.
func (d Delivery) MessageKind() string { return typeName(d.Message) }

// Droppable tells whether the message can be lost at all: what an actor has from itself (results, timers, the words of
// the restart mechanism) and its first message cannot, but with the actor.
func (d Delivery) Droppable() bool {
	_, first := d.Message.(messages.Started)
	return !first && d.From != d.Actor
}

// Interceptor sees every delivery and may break it. It is how chaos reaches the tree; it is called on mailboxes, from
// many goroutines at once, and must not block.
type Interceptor interface {
	Before(d Delivery) Verdict
	After(d Delivery) Verdict // Drop is the same as Pass here
}
