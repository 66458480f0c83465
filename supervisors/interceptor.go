package supervisors

import (
	"cmp"
	"sync"
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// Effect is an interceptor's effect on a delivery.
type Effect string

// The effects. Drop, Delay and Duplicate are the same as None where the delivery is not Droppable.
const (
	None      Effect = ""
	Drop      Effect = "drop"      // the message is lost
	Delay     Effect = "delay"     // it is handled later; others that come meanwhile are handled before it
	Duplicate Effect = "duplicate" // it is handled now, and again after the mailbox's other messages
	Hold      Effect = "hold"      // the actor stands still before it handles the message, as if it hung
	Panic     Effect = "panic"     // the actor fails as by a bug
)

// Verdict is an Interceptor's decision about a delivery. The zero value lets it pass.
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

// Droppable reports whether the message can be lost, late or doubled. An actor's first message, and its messages to itself
// (results, timers, the restart mechanism's), are only lost with the actor.
func (d Delivery) Droppable() bool {
	_, first := d.Message.(messages.Started)
	return !first && d.From != d.Actor
}

// Interceptor sees every delivery and may break it; chaos is one. It is called on mailboxes, from many goroutines at once,
// and must not block. Messages that it has delayed or doubled are not passed to it again.
type Interceptor interface {
	Before(d Delivery) Verdict
	After(d Delivery) Verdict // all but Panic is the same as None here
}

// intercept carries out a verdict on a message. It returns whether the message is to be handled now.
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

// flowOf returns the flow for a copy of the message with its own ID. A copy of a message that began a flow begins one too.
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

// sequenceFilter holds the number of the latest message per topic that each actor was handed, across restarts. Messages between
// two actors arrive in order unless an interceptor delays or doubles one. Overtaken messages are therefore dropped here, and
// receivers need no check. It is used only with an interceptor.
type sequenceFilter struct {
	mu   sync.Mutex
	last map[topic]uint64
}

type topic struct {
	from, to messages.Address
	of       string
	pod      string // UID; empty for all pods
}

// allPods stands for all pods: its number is the latest of any pod.
const allPods = "*"

// maxTopics bounds the numbers that are kept; a message is seldom late by so many.
const maxTopics = 50_000

// take records a message that is about to be handled. It returns false for an overtaken one.
func (n *sequenceFilter) take(to messages.Address, env *envelope) bool {
	t := topic{from: env.from, to: to, of: messages.Topic(env.msg), pod: messages.PodOf(env.msg)}
	if t.of == "" || env.kind != OfMessage {
		return true
	}
	all, last := t, t
	all.pod, last.pod = "", allPods
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
