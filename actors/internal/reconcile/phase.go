package reconcile

import "slices"

// Phase is where one object is between its desired and its actual state.
type Phase string

// The phases.
const (
	Absent     Phase = ""           // nothing is known of the object
	Queued     Phase = "Queued"     // waits for a place in its lane
	Ensuring   Phase = "Ensuring"   // an operation makes it as desired
	Ready      Phase = "Ready"      // it was as desired when that ended
	Removing   Phase = "Removing"   // an operation removes it
	BackingOff Phase = "BackingOff" // the last operation failed, and is done again at a set time
	Refused    Phase = "Refused"    // the last operation failed, and is not done again before something changes
)

// edges is every transition that an object can take.
var edges = map[Phase][]Phase{
	Absent:     {Queued},
	Queued:     {Ensuring, Removing},
	Ensuring:   {Ready, BackingOff, Refused, Queued}, // Queued: something else is desired by then
	Ready:      {Queued, Absent},                     // Absent: forgotten
	Removing:   {Absent, BackingOff, Queued},
	BackingOff: {Queued, Absent},
	Refused:    {Queued, Absent},
}

// to takes one transition. An edge outside the table is a bug, and fails the actor.
func (m *machine[D, A]) to(o *object[D, A], next Phase) {
	if slices.Contains(edges[o.phase], next) {
		m.out.transitions = append(m.out.transitions, transition{o.key, o.phase, next})
		o.phase = next
		return
	}
	panic("reconcile: no edge from " + string(o.phase) + " to " + string(next))
}
