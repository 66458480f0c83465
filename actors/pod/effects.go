package pod

import (
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Effect is something for the actor to carry out: one of those here, or a piece of work (package work). The machine decides; the
// actor does.
type Effect any

// Transition says that the pod went from one phase to another: it is logged.
type Transition struct{ From, To Phase }

// Tell sends a message.
type Tell struct {
	To  messages.Address
	Msg any
}

// Reply answers the message being handled.
type Reply struct{ Msg any }

// ResizeTried says that a resize was carried out, or that one try at it failed: how long it took is counted.
type ResizeTried struct {
	Success bool
	Took    time.Duration
}

// SpawnContainer starts the actor of a container, where it is not there, and says how its exits are answered.
type SpawnContainer struct {
	Name     string
	Strategy supervisors.ExitStrategy
}

// RestartContainer ends the actor of a container and starts it anew at once.
type RestartContainer struct{ Name string }

// DropContainer stops the actor of a container for good.
type DropContainer struct{ Name string }

// Ended says that a container was found to have ended: it is logged, once an end.
type Ended struct{ Fact messages.ContainerFact }

// Unhandled says that the machine knows nothing of a message.
type Unhandled struct{ Msg any }

// Wake plans the machine's next look at what is overdue; it replaces the one before.
type Wake struct{ At time.Time }
