package pod

import (
	"fmt"
)

// Phase is where a pod's actor is in the pod's life. A folder listing of this package is the diagram: one file a phase.
type Phase string

// The phases. Each one's file says what it waits for and what it leads to.
const (
	Reading      Phase = "reading"
	Preparing    Phase = "preparing"
	Initializing Phase = "initializing"
	Running      Phase = "running"
	Terminating  Phase = "terminating"
	Cleaning     Phase = "cleaning"
	Finished     Phase = "finished"
)

// Edges is every transition there is. An edge outside it is a bug and fails the actor.
var Edges = map[Phase][]Phase{
	Reading:      {Preparing, Terminating},
	Preparing:    {Initializing, Running, Terminating},
	Initializing: {Preparing, Running, Terminating},
	Running:      {Preparing, Terminating},
	Terminating:  {Cleaning},
	Cleaning:     {Finished},
	Finished:     {Terminating},
}

// plans holds the behaviour of each phase: what it asks for, and the phase that follows; its own when it stays.
var plans = map[Phase]func(m *Machine) Phase{
	Reading:      (*Machine).planReading,
	Preparing:    (*Machine).planPreparing,
	Initializing: (*Machine).planInitializing,
	Running:      (*Machine).planRunning,
	Terminating:  (*Machine).planTerminating,
	Cleaning:     (*Machine).planCleaning,
	Finished:     (*Machine).planFinished,
}

// enter is the one way from a phase to another.
func (m *Machine) enter(to Phase) {
	for _, p := range Edges[m.phase] {
		if p == to {
			m.emit(Transition{From: m.phase, To: to})
			m.phase = to
			return
		}
	}
	panic(fmt.Sprintf("pod %s: no edge from %s to %s", m.uid, m.phase, to))
}
