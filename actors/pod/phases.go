package pod

import (
	"fmt"
)

// Phase is the stage of a pod's actor in the pod's life. The files of this package are the diagram: one per phase.
type Phase string

// The phases. The file of each describes its work and the phases that follow.
const (
	Reading      Phase = "reading"
	Preparing    Phase = "preparing"
	Initializing Phase = "initializing"
	Running      Phase = "running"
	Terminating  Phase = "terminating"
	Cleaning     Phase = "cleaning"
	Finished     Phase = "finished"
)

// Edges are all transitions. Any other is a bug and fails the actor.
var Edges = map[Phase][]Phase{
	Reading:      {Preparing, Terminating},
	Preparing:    {Initializing, Running, Terminating},
	Initializing: {Preparing, Running, Terminating},
	Running:      {Preparing, Terminating},
	Terminating:  {Cleaning},
	Cleaning:     {Finished},
	Finished:     {Terminating},
}

// plans holds the behaviour of each phase: its requests, and the phase that follows, which may be the same.
var plans = map[Phase]func(m *Machine) Phase{
	Reading:      (*Machine).planReading,
	Preparing:    (*Machine).planPreparing,
	Initializing: (*Machine).planInitializing,
	Running:      (*Machine).planRunning,
	Terminating:  (*Machine).planTerminating,
	Cleaning:     (*Machine).planCleaning,
	Finished:     (*Machine).planFinished,
}

// enter is the only way from one phase to another.
func (m *Machine) enter(to Phase) {
	for _, p := range Edges[m.phase] {
		if p == to {
			m.emit(Transition{From: m.phase, To: to})
			if m.phase = to; to == Preparing {
				m.preparing = m.now
			}
			return
		}
	}
	panic(fmt.Sprintf("pod %s: no edge from %s to %s", m.uid, m.phase, to))
}
