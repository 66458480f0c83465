package supervisors

import (
	"fmt"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/exits"
)

type exitAction int

const (
	forgetChild exitAction = iota
	restartChild
	quarantineChild
)

// child is the supervisor's record of one child. It outlives the child's incarnations.
type child struct {
	*life   // which the supervisor alone writes, and so may read as it is
	row     *Row
	exits   exits.Strategy
	pid     *actor.PID
	onExit  exitAction // the action at its end
	after   time.Duration
	reason  string
	history record
	respawn uint64 // number of the latest respawn; an earlier one was overtaken
}

// respawn signals the end of a child's back-off or quarantine.
type respawn struct {
	name   string
	number uint64
}

func (c *cell) Spawn(name string) { c.SpawnWith(name, nil, exits.Strategy{Restart: exits.Temporary}) }

func (c *cell) SpawnKind(kind Kind, name string) {
	for i := range c.row.Children {
		if row := &c.row.Children[i]; row.Dynamic && row.Kind == kind {
			c.spawnRow(row, name, nil, exits.Strategy{Restart: exits.Temporary})
			return
		}
	}
	panic(fmt.Sprintf("%s has no row in the tree for dynamic children of kind %q", c.self, kind))
}

func (c *cell) SpawnWith(name string, desired any, s exits.Strategy) {
	row := c.row.child(name)
	if row == nil {
		panic(fmt.Sprintf("%s has no row in the tree for a child named %q", c.self, name))
	}
	c.spawnRow(row, name, desired, s)
}

func (c *cell) Update(name string, desired any, s exits.Strategy) {
	if ch := c.children[name]; ch != nil {
		ch.desire(desired)
		ch.exits = s
	}
}

func (c *cell) spawnRow(row *Row, name string, desired any, s exits.Strategy) {
	if run, exited := c.unhandled[name]; exited && desired != nil && s.Run <= run {
		return // repeated: its run is over
	}
	if ch, ok := c.children[name]; ok {
		ch.desire(desired)
		ch.exits = s
		switch {
		case desired != nil && ch.v.State == Running:
			c.Tell(c.self.Child(name), desired)
		case ch.v.State == Ending && ch.onExit == forgetChild:
			ch.onExit, ch.after = restartChild, 0
		case desired != nil && ch.v.State == Exited:
			c.spawnChild(name, ch)
		}
		return
	}
	ch := &child{life: c.sys.newLife(c.self.Child(name), row.Kind), row: row, exits: s}
	ch.desire(desired)
	c.children[name] = ch
	c.spawnChild(name, ch)
}

func (c *cell) spawnChild(name string, ch *child) {
	if c.stopping {
		return
	}
	kid := newCell(c.sys, ch.row, c.self.Child(name), c.started(c.self.Child(name), ch.desired))
	restarted := ch.begin(kid)
	pid, err := c.pctx.SpawnNamed(c.sys.props(kid), name)
	if err != nil {
		panic(fmt.Sprintf("spawning %s: %v", kid.self, err))
	}
	ch.pid = pid
	if restarted {
		c.sys.Counters.Restarts.Add(1)
		c.sys.metrics.kinds[ch.row.Kind].restarts.Inc()
	}
	if ch.row.Dynamic {
		c.Tell(c.self, messages.ChildStarted{Name: name, Again: restarted})
		return
	}
	for _, client := range ch.row.Clients {
		c.Tell(client, messages.ServiceStarted{Service: kid.self})
	}
}

// started returns the first message to a child. With a desired state it belongs to the flow of the message being handled.
func (c *cell) started(child messages.Address, desired any) *envelope {
	if desired != nil && c.env != nil {
		return c.follow(child, messages.Started{Desired: desired})
	}
	env := newStarted(c.sys, child)
	if c.env != nil {
		env.cause = c.env.id
	}
	return env
}

func newStarted(s *System, to messages.Address) *envelope {
	id := s.seq.Add(1)
	return &envelope{id: id, flow: Flow{ID: id, Pod: to.PodUID()}, from: to.Parent(), sent: s.clock.Now(),
		msg: messages.Started{}}
}

func (c *cell) Stop(name string) {
	ch, ok := c.children[name]
	if !ok || c.stopping {
		return
	}
	ch.onExit = forgetChild
	ch.desire(nil)
	delete(c.unhandled, name)
	switch ch.v.State {
	case Running:
		ch.enter(Ending, time.Time{})
		c.pctx.Stop(ch.pid)
	case Ending:
	case Restarting, Exited, Quarantined:
		c.settle(name, ch)
	}
}

// HandleFailure implements actor.SupervisorStrategy: protoactor calls it on this cell's mailbox when a child has
// panicked, with the child's mailbox suspended.
func (c *cell) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, pid *actor.PID, _ *actor.RestartStatistics, reason any,
	_ any) {
	name := addressOf(pid).Name()
	ch, ok := c.children[name]
	if !ok || ch.pid == nil || ch.pid.Id != pid.Id || c.stopping {
		sup.StopChildren(pid)
		return
	}
	ch.reason = fmt.Sprint(reason)
	ch.failed(ch.reason, c.sys.clock.Now())
	if ch.v.State == Ending { // it panicked while being stopped: ch.next stands
		sup.StopChildren(pid)
		return
	}
	v := ch.history.judge(ch.row.Strategy, c.sys.clock.Now(), randomJitter)
	if v.outcome == Escalate {
		c.log.Error("a child panicked too often; its failure is escalated", "child", c.self.Child(name).String(), "reason",
			firstLine(ch.reason))
		panic(fmt.Sprintf("%s panicked more than %d times within %s, the last time because of: %s",
			c.self.Child(name), ch.row.Strategy.Panics, ch.row.Strategy.Within, ch.reason))
	}
	ch.onExit, ch.after = restartChild, v.after
	ch.enter(Ending, time.Time{})
	if v.outcome == Quarantine {
		ch.onExit = quarantineChild
	}
	sup.StopChildren(pid)
}

// childTerminated is where a child's name becomes free.
func (c *cell) childTerminated(name string) {
	ch, ok := c.children[name]
	exited := ok && ch.v.State == Running && ch.c.exit != nil
	if !ok || c.stopping || !exited && ch.v.State != Ending {
		return
	}
	ch.pid = nil
	if c.env == nil { // a system message: it starts a flow of its own
		id := c.sys.seq.Add(1)
		c.env = &envelope{id: id, flow: Flow{ID: id}}
		defer func() { c.env = nil }()
	}
	if exited {
		c.childExited(name, ch)
		return
	}
	c.settle(name, ch)
}

// settle acts on the end of a child: it forgets, restarts or isolates it. A restart comes after the messages that the child has
// sent, so that its next incarnation gets a desired state that takes them into account.
func (c *cell) settle(name string, ch *child) {
	addr := c.self.Child(name)
	ch.respawn++
	switch ch.onExit {
	case forgetChild:
		c.forget(name, ch)
		c.Tell(c.self, messages.ChildStopped{Name: name})
	case restartChild:
		ch.enter(Restarting, c.Now().Add(ch.after))
		if again := (respawn{name, ch.respawn}); ch.after > 0 {
			c.After(ch.after, again)
		} else {
			c.Tell(c.self, again)
		}
	case quarantineChild:
		q := messages.ChildQuarantined{Name: name, Reason: firstLine(ch.reason), Until: c.Now().Add(ch.after)}
		ch.enter(Quarantined, q.Until)
		c.log.Error("quarantined: it panicked too often and is left alone, its containers too",
			"child", addr.String(), "reason", q.Reason, "until", q.Until)
		c.Tell(c.self, q)
		c.After(ch.after, respawn{name, ch.respawn})
	}
}

func (c *cell) respawnChild(m respawn) {
	ch, ok := c.children[m.name]
	if !ok || ch.respawn != m.number || (ch.v.State != Restarting && ch.v.State != Quarantined) {
		return
	}
	if ch.v.State == Quarantined {
		ch.history.release(c.Now())
	}
	c.spawnChild(m.name, ch)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
