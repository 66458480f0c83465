package supervisors

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/playlet-dev/playlet/messages"
)

// cell joins one of our actors to protoactor: it is the protoactor actor, the supervisor of its children, and the
// Context that the actor sees. A cell lives for one incarnation; a restart makes a new one under the same path.
type cell struct {
	sys  *System
	row  *Row
	self messages.Address
	gen  uint64

	first *envelope // Started, which the supervisor has sent
	log   *slog.Logger

	actor    Actor
	behavior Behavior
	pctx     actor.Context
	env      *envelope                // being handled
	handling atomic.Pointer[envelope] // the same, for readers outside the mailbox
	handled  atomic.Uint64            // messages, with the one being handled
	spent    atomic.Int64             // nanoseconds of handling
	stopping bool
	fell     bool  // by a panic
	exit     *exit // set when the actor has ended itself
	mailbox  mailboxWatch
	ended    atomic.Bool

	children  map[string]*child
	unhandled map[string]uint32 // exits of children that the actor has not handled yet: name to run

	ctx     context.Context
	cancel  context.CancelFunc
	workers sync.WaitGroup

	mu      sync.Mutex // guards working and timers, used outside the mailbox
	working map[uint64]string
	timers  map[*timer]struct{}
}

func newCell(s *System, row *Row, self messages.Address, first *envelope) *cell {
	c := &cell{
		sys: s, row: row, self: self, first: first, gen: s.seq.Add(1), children: map[string]*child{},
		unhandled: map[string]uint32{},
		working:   map[uint64]string{}, timers: map[*timer]struct{}{},
		log: s.log.With("actor", self.String()),
	}
	c.mailbox.halted = make(chan struct{})
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Receive implements actor.Actor. It is the only way in.
func (c *cell) Receive(pctx actor.Context) {
	c.pctx = pctx
	switch m := pctx.Message().(type) {
	case *actor.Started:
		c.start()
	case *actor.Stopping:
		c.guard(c.stop)
	case *actor.Stopped:
		c.guard(c.stopped)
	case *actor.Restarting:
		// protoactor's own restart is never used: supervisors stop and spawn.
		c.guard(c.stop)
	case *actor.Terminated:
		c.childTerminated(addressOf(m.Who).Name())
	case *envelope:
		c.dispatch(m)
	}
}

// guard recovers a panic of a stopping actor. protoactor would revive the actor, or block its parent.
func (c *cell) guard(f func()) {
	defer func() {
		if r := recover(); r != nil {
			c.sys.Counters.Panics.Add(1)
			c.log.Error("panic while stopping", "reason", fmt.Sprint(r), "stack", string(debug.Stack()))
		}
	}()
	f()
}

func (c *cell) start() {
	if c.self == messages.Node {
		defer close(c.sys.up) // the root starts once
	}
	c.deliver(c.first, func(env *envelope) {
		c.actor = c.sys.opts.Constructors[c.row.Kind](c.self.Name())
		c.behavior = c.actor.Receive
		c.behavior(c, env.msg)
		for i := range c.row.Children {
			if r := &c.row.Children[i]; !r.Dynamic && c.sys.opts.Constructors[r.Kind] != nil {
				c.Spawn(string(r.Kind))
			}
		}
	})
	c.first = nil // it may hold a desired state, which would live as long as the actor
}

func (c *cell) stop() {
	c.stopping = true
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := range c.timers {
		t.t.Stop()
	}
	clear(c.timers)
}

func (c *cell) stopped() {
	done := make(chan struct{})
	go func() { c.workers.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(workersGrace):
		c.log.Warn("workers did not end with their actor", "working", c.workingNames())
	}
	c.ended.Store(true)
	for name, ch := range c.children { // a quarantine ends with its supervisor
		c.forget(name, ch)
	}
	n := c.mailbox.now.Load() - 1 // protoactor throws a mailbox away with its actor; one is the message being handled
	if c.fell {
		n-- // and one caused the panic
	}
	if n > 0 {
		c.sys.deadLetters(c.row.Kind, uint64(n))
		c.log.Debug("messages lost with their actor's mailbox", "count", n)
	}
	if c.self == messages.Node {
		close(c.sys.ended)
	}
}

func (c *cell) dispatch(env *envelope) {
	if c.stopping { // messages still come while children stop
		c.sys.deadLetters(c.row.Kind, 1)
		c.sys.logUndelivered(c.self, env, "message to an actor that is ending")
		return
	}
	if env.gen != 0 && env.gen != c.gen {
		c.sys.Counters.Stale.Add(1)
		c.sys.logUndelivered(c.self, env, "stale result dropped")
		return
	}
	if m, is := env.msg.(messages.ChildExited); is {
		c.handlesExit(m)
	}
	c.deliver(env, func(env *envelope) {
		switch m := env.msg.(type) {
		case messages.GetInspection:
			c.Reply(c.inspect())
		case respawn:
			c.respawnChild(m)
		case workPanicked:
			panic(m.String())
		case kill:
			panic("killed: " + m.reason)
		case nudge:
		default:
			c.behavior(c, env.msg)
		}
	})
}

// deliver runs one handling under the recorder and the interceptor. A panic is logged with its stack and the last
// messages, since protoactor throws both away, and then goes on to the supervisor.
func (c *cell) deliver(env *envelope, handle func(*envelope)) {
	c.env = env
	c.handled.Add(1)
	began := c.sys.clock.Now()
	env.began = began.UnixNano()
	c.handling.Store(env)
	d := Delivery{Actor: c.self, From: env.from, Kind: c.row.Kind, Message: env.msg, Flow: env.flow, ID: env.id}
	handled := true
	defer func() {
		r := recover()
		c.env = nil
		c.handling.Store(nil)
		ended := c.sys.clock.Now()
		c.spent.Add(int64(ended.Sub(began)))
		if handled || r != nil { // otherwise intercept has recorded the effect
			c.sys.recorder.record(c.self, env, began, ended, r)
			c.sys.metrics.kinds[c.row.Kind].handling.Observe(ended.Sub(began).Seconds())
		}
		if r == nil {
			return
		}
		c.fell = true
		c.sys.Counters.Panics.Add(1)
		log := c.log
		if env.flow.Pod != "" {
			log = log.With("pod", env.flow.Pod)
		}
		log.Error("panic", "message", typeName(env.msg), "reason", fmt.Sprint(r), "flow", env.flow.ID,
			"stack", string(debug.Stack()), "last", c.sys.recorder.dumpLast(env.flow.Pod, c.self))
		panic(r)
	}()
	if c.sys.opts.Interceptor != nil {
		if !env.intercepted {
			if handled = c.intercept(env, d, c.sys.opts.Interceptor.Before(d)); !handled {
				return
			}
		}
		if handled = c.sys.newest.take(c.self, env); !handled {
			c.noteChaos(env, d, "overtaken: a newer one was handled before")
			return
		}
	}
	handle(env)
	if c.sys.opts.Interceptor != nil && c.sys.opts.Interceptor.After(d).Effect == Panic {
		panic("chaos: after " + typeName(env.msg))
	}
	if c.exit != nil && !c.stopping {
		c.stopping = true
		c.pctx.Stop(c.pctx.Self())
	}
}

// A cell is the Context of its actor; see there.
var _ Context = (*cell)(nil)

func (c *cell) Self() messages.Address            { return c.self }
func (c *cell) Sender() messages.Address          { return c.env.from }
func (c *cell) Now() time.Time                    { return c.sys.clock.Now() }
func (c *cell) Log() *slog.Logger                 { return c.log.With("flow", c.env.flow.ID) }
func (c *cell) Tell(to messages.Address, msg any) { c.sys.post(to, c.follow(to, msg)) }
func (c *cell) Become(b Behavior)                 { c.behavior = b }

// follow is the envelope of a message that the one being handled causes.
func (c *cell) follow(to messages.Address, msg any) *envelope {
	id := c.sys.seq.Add(1)
	return &envelope{id: id, cause: c.env.id, flow: c.flow().next(id, to, msg), from: c.self, sent: c.sys.clock.Now(), msg: msg}
}

// flow returns the flow of the message being handled. A routine message has none: each of its consequences begins one.
func (c *cell) flow() Flow {
	if _, routine := c.env.msg.(messages.Routine); routine {
		return Flow{}
	}
	return c.env.flow
}

func (c *cell) Reply(msg any) {
	if c.env.reply != nil {
		select {
		case c.env.reply <- msg:
		default: // a second answer: the asker took the first
		}
		return
	}
	c.Tell(c.env.from, msg)
}

func (c *cell) Unhandled(msg any) {
	c.sys.metrics.kinds[c.row.Kind].unhandled.Inc()
	c.log.Debug("unhandled message", "message", typeName(msg), "from", c.env.from.String())
}

func (c *cell) inspect() messages.Inspection {
	in := messages.Inspection{
		Path: c.self.String(), Kind: string(c.row.Kind), Incarnation: c.gen, Handled: c.handled.Load(),
		MailboxDepth: c.mailbox.now.Load(), MailboxMax: c.mailbox.max.Load(), Working: c.workingNames(),
	}
	in.Children = slices.Sorted(maps.Keys(c.children))
	if i, ok := c.actor.(Inspector); ok {
		in.Detail = i.Inspect()
	}
	return in
}

func typeName(msg any) string {
	if msg == nil {
		return "nothing"
	}
	return reflect.TypeOf(msg).Name()
}
