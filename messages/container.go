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
	// CgroupParent is the pod's cgroup as the runtime takes it.
	CgroupParent string
	// Handler is the runtime's handler that it was made with; empty: the default one.
	Handler string
}

// ContainerStage is the stage of a container's run, as its actor and the pod record it. The tables of transitions are in
// actors/container and, for the pod's orders, in actors/pod/known.
type ContainerStage string

// The stages.
const (
	StageIdle     ContainerStage = "idle"     // it has no run yet, or its latest start failed
	StageStarting ContainerStage = "starting" // create and start are in progress
	StageHooking  ContainerStage = "hooking"  // the container runs, and so does its post-start hook
	StageRunning  ContainerStage = "running"
	StageWaiting  ContainerStage = "waiting"  // its pre-stop hook has begun; other containers end first
	StageStopping ContainerStage = "stopping" // pre-stop hook, signal and grace period are in progress
)

// RunContainer is all that one container is to be: this attempt of it runs, in this sandbox. Telling it again changes
// nothing, and is answered again. Another attempt comes only to an actor that has none.
//
// Sender: pod, with Started or to the running actor. Receiver: container. Reply: ContainerReported; the actor exits with
// ContainerEnded when the container ends.
// If lost: the supervisor's record has it for the next incarnation; to a running actor, the pod sends it again when its timeout
// ends.
type RunContainer struct {
	Pod       *v1.Pod
	Container *v1.Container
	Attempt   uint32
	Sandbox   Sandbox
	ImageRef  string
	Volumes   map[string]string // host paths by volume name
	// Mounts are the volumes that must be mounted at their path, or the container is not started; see VolumesMounted.
	Mounts map[string]bool
	// Groups are supplemental groups in addition to the pod's own; see VolumesMounted.
	Groups []int64
	// ImageVolumes are the runtime's IDs of the images that are mounted as volumes, by volume name.
	ImageVolumes map[string]string
	// Adopt is the container that already stands for this attempt: created, running or exited. With one that has exited, the
	// actor exits.
	Adopt *ContainerFact
	// BackOff is the step of the restart back-off, kept in an annotation of the container.
	BackOff int
	Order   int64
	// Round is how often all containers of the pod have been restarted together; the container is made to carry it.
	Round uint32
	// TargetID is the container with which an ephemeral container shares processes; empty for none.
	TargetID string
	// Generation increases with each try at this attempt. The report carries it back.
	Generation uint64
}

// StopContainer asks for the container to be ended: pre-stop hook, signal, grace, SIGKILL. Asking again is the same.
// With HookOnly the pre-stop hook runs, and the signal waits until the same is asked for without HookOnly: the hook is not run a
// second time then.
//
// Sender: pod, with Started or to the running actor. Receiver: container. Reply: none; the actor exits with ContainerEnded.
// If lost: as RunContainer.
type StopContainer struct {
	UID   string
	Name  string
	Fact  ContainerFact // zero while its start is in progress
	Pod   *v1.Pod
	Spec  *v1.Container // for its hooks; nil when the spec lacks it: the annotations have them then
	IPs   []string      // of the pod, for its hooks
	Grace time.Duration
	Cause Cause // why it is ended; explain.Stopping has the sentences
	// Explained is the sentence that "playlet pods" has while the container ends; empty: none is known.
	Explained string
	Order     int64
	// HookOnly means that only the pre-stop hook runs, and the container is not stopped yet (KEP-753).
	HookOnly bool
	// AtOnce means that the signal does not wait for the signals of other pods, because the machine shuts down. A stop
	// with less time than an earlier one does not wait either.
	AtOnce bool
	// NoHook means that the pre-stop hook is neither started nor awaited. A hook in progress runs until the container has ended.
	NoHook bool
}

// ContainerReported is the full state of a container, as its actor knows it. It is sent at each change, and in answer to each
// RunContainer. The end of the container is not reported: its actor exits with ContainerEnded.
//
// Sender: container. Receiver: pod. Reply: none.
// If lost: the pod sends RunContainer again when its timeout ends, and gets a new report.
type ContainerReported struct {
	UID, Name  string
	Generation uint64 // of the latest RunContainer
	// Stage is StageHooking until the post-start hook has ended, and then StageRunning. Until then the container does not
	// count as started, and a hook that fails ends it. StageIdle means that it could not be created or started.
	Stage ContainerStage
	// Fact is the container; nil where none was created, as far as is known.
	Fact *ContainerFact
	// Failed is why it could not be created or started.
	Failed *Reason
	// HookFailed is why the post-start hook failed, for which the container is ended; empty: it did not.
	HookFailed string
	// StopFailed is the reason why the runtime could not stop the container. The stop is retried. No other field is set then.
	StopFailed string
	// Taken means that the runtime cannot remove a container that never ran and has this attempt's name. The next attempt
	// follows.
	Taken bool
	// Reserved means that a container that the runtime does not list has this attempt's name: a call that timed out is still in
	// progress, or is being undone.
	Reserved bool
}

// ContainerEnded is the result with which the actor of a container exits: the container ran and has ended, or, after
// StopContainer, was created and never ran.
type ContainerEnded struct{ Fact ContainerFact }

// Exit implements ExitResult. A container that never ran did not fail.
func (e ContainerEnded) Exit() Exit { return e.Fact.Exit() }

// RestartContainers has containers of a pod ended, with their pre-stop hook and grace period, and started again without a
// back-off; one that waits for the end of its back-off is started now. Each is named with the ID that it had when that was asked
// for: one that has another by now was started since, so that the same changes nothing when it comes again.
//
// Sender: server, for a client of the admin socket. Receiver: pod. Reply: RestartTaken; none while the pod's actor knows nothing
// of its pod yet.
// If lost: the client gets no answer and may ask again. If the pod's actor falls before a container has ended, that container
// may run on, and the client may ask again; if it falls after that, the restart policy starts it, after its back-off.
type RestartContainers struct {
	UID string
	IDs map[string]string // of containers, by name
}

// RestartTaken lists the containers that are being restarted, or gives the reason why none is.
//
// Sender: pod. Receiver: server, for the client. Reply: none.
// If lost: the client gets no answer and may ask again, which changes nothing.
type RestartTaken struct {
	UID        string
	Containers []string
	Refused    string
}
