package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Effect is something for the actor to carry out. The machine decides; the actor does.
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

// StartSandbox runs a sandbox for the pod, under this attempt, and notes the pod's start time on it. It lies in the pod's cgroup.
type StartSandbox struct {
	Attempt      uint32
	Started      time.Time
	CgroupParent string
}

// StopSandbox stops a sandbox; it is not removed.
type StopSandbox struct{ ID string }

// RemovePod removes all that the runtime has of the pod, and its logs.
type RemovePod struct{}

// ResizeContainer gives a container that runs the resources of its spec. Lower says that it may have more of something now: it
// never gets a memory limit below what it uses.
type ResizeContainer struct {
	Pod   *v1.Pod
	Spec  *v1.Container
	ID    string
	Lower bool
}

// ResizeTried says that a resize was carried out, or that one try at it failed: how long it took is counted.
type ResizeTried struct {
	Success bool
	Took    time.Duration
}

// UpdateSandbox tells the runtime what the pod has as a whole.
type UpdateSandbox struct {
	Pod *v1.Pod
	ID  string
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
