package messages

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Sandbox is the sandbox that a container is to run in.
type Sandbox struct {
	ID      string
	Attempt uint32
	IPs     []string
	// CgroupParent is the pod's control group as the runtime takes it.
	CgroupParent string
	// Handler is the runtime's handler that it was made with; empty: the default one.
	Handler string
}

// RunContainer is the whole wish for one container: this attempt of it runs, in this sandbox. Telling it again changes
// nothing; a new attempt comes only to an actor that was restarted.
//
// Sender: pod. Receiver: container. Reply: ContainerStarted, then ContainerEnded; or ContainerFailed.
// If lost: the pod tells it again when its patience ends.
type RunContainer struct {
	Pod       *v1.Pod
	Container *v1.Container
	Attempt   uint32
	Sandbox   Sandbox
	ImageRef  string
	Volumes   map[string]string // host paths by volume name
	// Adopt is the container that already stands for this attempt, created or running.
	Adopt *ContainerFact
	// BackOff is the step of the restart back-off, kept in an annotation of the container.
	BackOff int
	Order   int64
	// Turn tells one try at this attempt from the next, and is larger. It comes back with a failure.
	Turn uint64
}

// StopContainer asks for the container to be ended: pre-stop hook, signal, grace, SIGKILL. Asking again is the same.
//
// Sender: pod. Receiver: container. Reply: ContainerEnded.
// If lost: the pod asks again when its patience ends.
type StopContainer struct {
	UID    string
	Name   string
	Fact   ContainerFact // what is known of it; zero when its start is still under way
	Pod    *v1.Pod
	Spec   *v1.Container // for its hooks; nil when the spec no longer has it: then its annotations tell
	IPs    []string      // of the pod, for its hooks
	Grace  time.Duration
	Reason string // for people: "its pod is ending"
	Order  int64
}

// ContainerObserved is the CRI's word on the container's newest attempt.
//
// Sender: pod. Receiver: container. Reply: ContainerEnded, when it shows the end.
// If lost: the next audit brings it again.
type ContainerObserved struct {
	UID  string
	Fact ContainerFact
}

// ContainerStarted says that the container runs. Hooking says that its post-start hook has not ended yet: until it is told
// again without, the container has not started for others. A hook that fails ends the container.
//
// Sender: container. Receiver: pod. Reply: none.
// If lost: the next reading of the pod shows it running.
type ContainerStarted struct {
	UID     string
	Fact    ContainerFact
	Hooking bool
}

// ContainerEnded says that the container ran and has ended, or, after StopContainer, that it was created and never ran.
// The actor stays, until the pod's strategy has answered.
//
// Sender: container. Receiver: pod. Reply: none; the pod restarts or stops the actor.
// If lost: the next reading of the pod shows it exited.
type ContainerEnded struct {
	UID  string
	Fact ContainerFact
}

// ContainerFailed says that this attempt could not be created or started. Where a container was created and could not
// be started, Fact is what the CRI says of it; otherwise Fact is nil and nothing exists.
//
// Sender: container. Receiver: pod. Reply: none; the pod restarts the actor after back-off.
// If lost: the pod tells RunContainer again when its patience ends, and is answered again.
type ContainerFailed struct {
	UID     string
	Name    string
	Attempt uint32
	Turn    uint64 // of the RunContainer that failed
	Reason  Reason
	Fact    *ContainerFact
	// Taken says that the runtime has a container under this attempt's name that never ran, and cannot remove it: the next
	// attempt is to be made.
	Taken bool
}

// PodUID implements Subject.
func (m RunContainer) PodUID() string { return string(m.Pod.UID) }

// PodUID implements Subject.
func (m StopContainer) PodUID() string { return m.UID }

// PodUID implements Subject.
func (m ContainerObserved) PodUID() string { return m.UID }

// PodUID implements Subject.
func (m ContainerStarted) PodUID() string { return m.UID }

// PodUID implements Subject.
func (m ContainerEnded) PodUID() string { return m.UID }

// PodUID implements Subject.
func (m ContainerFailed) PodUID() string { return m.UID }
