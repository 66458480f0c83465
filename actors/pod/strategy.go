package pod

import (
	"reflect"

	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/supervisors/exits"
)

// strategy returns the supervision strategy for a container's actor. In an ending pod nothing is restarted.
func (m *Machine) strategy(c *known.Container) exits.Strategy {
	if !m.live() {
		return exits.Strategy{Restart: exits.Temporary}
	}
	return c.Strategy(m.Pod)
}

// updateStrategies sends the supervisor each strategy that has changed in this step.
func (m *Machine) updateStrategies() {
	for _, c := range m.Containers {
		if !c.Actor {
			continue
		}
		if s := m.strategy(c); !reflect.DeepEqual(s, c.Exits) {
			c.Exits = s
			m.emit(SetStrategy{c.Name, s})
		}
	}
}
