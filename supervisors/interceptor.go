package supervisors

import (
	"cmp"
	"sync"
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// Effect is what happens to a delivery.
type Effect string

// The effects. Drop, Delay and Duplicate are the same as None where the delivery is not Droppable.
const (
	None      Effect = ""
	Drop      Effect = "drop"      // the message is lost
	Delay     Effect = "delay"     // it is handled later; others that come meanwhile are handled before it
	Duplicate Effect = "duplicate" // it is handled now and once more, behind what waits
	Hold      Effect = "hold"      // the actor stands still before it handles the message, as if it hung
	Panic     Effect = "panic"     // the actor fails as by a bug
)

// Verdict is what an Interceptor does to a delivery; the zero value lets it pass.
type Verdict struct {
	Effect Effect
	For    time.Duration   // of Delay and Hold
	Until  <-chan struct{} // when it is closed, Hold ends early; nil: it does not. The actor's stop ends it, too
	Why    string          // for the log, the recorder and the reason of the panic
}

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

// Droppable tells whether the message can be lost, late or doubled at all: what an actor has from itself (results, timers, the
// words of the restart mechanism) and its first message cannot, but with the actor.
func (d Delivery) Droppable() bool {
	_, first := d.Message.(messages.Started)
	return !first && d.From != d.Actor
}

// Interceptor sees every delivery and may break it. It is how chaos reaches the tree; it is called on mailboxes, from
// many goroutines at once, and must not block. What it has delayed or doubled it does not see again.
type Interceptor interface {
	Before(d Delivery) Verdict
	After(d Delivery) Verdict // all but Panic is the same as None here
}

// intercept carries out a verdict on the message about to be handled, and says whether it is to be handled now.
func (c *cell) intercept(env *envelope, d Delivery, v Verdict) (handle bool) {
	if v.Effect == None || v.Effect != Hold && v.Effect != Panic && !d.Droppable() {
		return true
	}
	c.noteChaos(env, d, string(v.Effect)+": "+v.Why)
	c.log.Warn("chaos rule applied", "effect", string(v.Effect), "for", v.For, "message", d.MessageKind(),
		"from", d.From.String(), "why", v.Why)
	again := *env
	again.intercepted = true
	switch v.Effect {
	case Panic:
		panic("chaos: " + v.Why + ", before " + d.MessageKind())
	case Hold:
		held := c.sys.clock.NewTimer(v.For)
		defer held.Stop()
		select {
		case <-held.C():
		case <-v.Until:
		case <-c.mailbox.halted:
		}
	case Delay:
		c.sys.clock.AfterFunc(v.For, func() { go c.sys.post(c.self, &again) }) // as After does, for a fake clock's sake
		return false
	case Duplicate:
		again.id, again.original = c.sys.seq.Add(1), env.id
		again.flow = env.flowOf(again.id)
		c.sys.post(c.self, &again)
	case Drop:
		return false
	case None:
	}
	return true
}

// flowOf is the flow of what stands in the message's place, with an ID of its own: where the message began a flow, so does that.
func (env *envelope) flowOf(id uint64) Flow {
	f := env.flow
	if f.ID == env.id {
		f.ID = id
	}
	return f
}

func (c *cell) noteChaos(env *envelope, d Delivery, digest string) {
	id := c.sys.seq.Add(1)
	c.sys.recorder.Add(Entry{ID: id, Cause: env.cause, Flow: env.flowOf(id), Kind: OfChaos, From: c.self, To: c.self,
		Message: d.MessageKind(), Digest: digest, Sent: env.sent, Began: c.sys.clock.Now()})
}

// newest are the numbers of the messages that actors were handed last of each topic, in whatever life. Messages from one actor to
// another arrive in the order of their sending, unless an interceptor delays or doubles one: only with one is this kept, and what
// has been overtaken is lost. So no receiver has to ask whether the state that it is told is an old one.
type newest struct {
	mu   sync.Mutex
	last map[topic]uint64
}

type topic struct {
	from, to messages.Address
	of       string
	pod      string // UID; empty in what is about all pods
}

// every stands for whatever pod was told of last.
const every = "*"

// maxTopics bounds the numbers that are kept; a message is seldom late by so many.
const maxTopics = 50_000

// take notes a message that is about to be handled, and says whether it may be.
func (n *newest) take(to messages.Address, env *envelope) bool {
	t := topic{from: env.from, to: to, of: messages.Topic(env.msg), pod: messages.PodOf(env.msg)}
	if t.of == "" || env.kind != OfMessage {
		return true
	}
	all, last := t, t
	all.pod, last.pod = "", every
	n.mu.Lock()
	defer n.mu.Unlock()
	id := cmp.Or(env.original, env.id)
	if id < n.last[t] || id < n.last[all] || t == all && id < n.last[last] {
		return false
	}
	if n.last == nil || len(n.last) >= maxTopics {
		n.last = map[topic]uint64{}
	}
	n.last[t], n.last[last] = id, max(id, n.last[last])
	return true
}
