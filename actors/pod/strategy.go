package pod

import (
	"reflect"

	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/exits"
)

// strategy returns the supervision strategy for a container's actor. In an ending pod nothing is restarted.
func (m *Machine) strategy(c *known.Container) exits.Strategy {
	s := exits.Strategy{Restart: exits.Temporary}
	if m.live() {
		s = c.Strategy(m.Pod)
	}
	switch order := c.Sent.(type) { // the supervisor recognizes the exit of an earlier run
	case messages.RunContainer:
		s.Run = order.Attempt
	case messages.StopContainer:
		s.Run = order.Fact.Attempt
	}
	return s
}

// order sends an order to the container's actor. Its supervisor keeps the order for the actor's next incarnation.
func (m *Machine) order(c *known.Container, order any) {
	c.Actor, c.Sent = true, order
	c.Exits = m.strategy(c)
	m.emit(OrderContainer{c.Name, order, c.Exits})
}

// updateContainers replaces the orders and strategies of the supervisor that this step has changed. The actor's next incarnation
// must not carry out an order that is over, must not create a container that is there, and creates none from a spec of before.
func (m *Machine) updateContainers() {
	starting := m.phase == Initializing || m.phase == Running // in the other phases nothing may be started
	for _, c := range m.Containers {
		changed := false
		switch run, runs := c.Sent.(messages.RunContainer); {
		case c.Sent != nil && c.Stage() == messages.StageIdle, runs && !starting,
			runs && run.Adopt == nil && !reflect.DeepEqual(run.Container, c.Spec):
			c.Sent, changed = nil, true
		case runs && run.Adopt == nil && c.Running() && c.Newest().Attempt == run.Attempt:
			run.Adopt = new(c.Newest().ContainerFact)
			c.Sent, changed = run, true
		}
		if s := m.strategy(c); c.Actor && (changed || !reflect.DeepEqual(s, c.Exits)) {
			c.Exits = s
			m.emit(UpdateContainer{c.Name, c.Sent, s})
		}
	}
}
