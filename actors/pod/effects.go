package pod

import (
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/exits"
)

// Effect is an action for the actor: one of the types here, or a piece of work (package work). The machine decides; the actor
// executes.
type Effect any

// Transition reports a change of the phase: it is logged.
type Transition struct{ From, To Phase }

// Tell sends a message.
type Tell struct {
	To  messages.Address
	Msg any
}

// Reply answers the message being handled.
type Reply struct{ Msg any }

// ResizeTried reports a completed resize or a failed try, for the metrics.
type ResizeTried struct {
	Success bool
	Took    time.Duration
}

// OrderContainer gives the actor of a container an order, RunContainer or StopContainer, and its supervisor the strategy for its
// exits. It starts the actor if necessary.
type OrderContainer struct {
	Name     string
	Order    any
	Strategy exits.Strategy
}

// UpdateContainer replaces the order and the strategy for the next incarnation of the actor of a container, if there is one. The
// order is nil if there is none.
type UpdateContainer struct {
	Name     string
	Order    any
	Strategy exits.Strategy
}

// DropContainer stops the actor of a container for good.
type DropContainer struct{ Name string }

// ContainerEnd reports the end of a container: it is logged once.
type ContainerEnd struct{ Fact messages.ContainerFact }

// UnhandledMessage reports a message of an unknown type.
type UnhandledMessage struct{ Msg any }

// Wake schedules the machine's next step without a message; it replaces the one before.
type Wake struct{ At time.Time }
