package messages

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// PodWanted is the desired state of one pod. Sending it again changes nothing. The resources in its spec are the allocated
// ones, which are recorded on disk. The source's newer values may still be pending (KEP-1287).
//
// Sender: pods. Receiver: pod. Reply: none.
// If lost: pods sends it again at GetDesired, and at each sweep until a PodStatusChanged shows that it was taken.
type PodWanted struct {
	Pod *v1.Pod // immutable
	// Generation counts the changes of the desired state.
	Generation uint64
	// Final is the pod's last status when it had finished before: it is never run again.
	Final *v1.PodStatus
	// Unkept is true until Final is on disk or writing it was given up. Until then the pod keeps all that it has, and
	// PodEnded is not answered.
	Unkept bool
	// Last is the newest status that is known of the pod, from an earlier life of its actor or of the agent: its status goes on
	// from there. Immutable.
	Last *v1.PodStatus
	// ObjectGone is true once the API server's object of a deleted pod is gone, with the pod's final status. Until then, or until
	// Final is on disk, the runtime keeps the ends of the containers.
	ObjectGone bool
	// Order is the pod's place in the queue for the runtime: lower goes first.
	Order int64
	// Ending is set when the pod must end.
	Ending *Ending
	// NoNetwork is why no sandbox can be started now, where none can: one that is there is not touched, and a pod on the host's
	// network needs none of it.
	NoNetwork *Reason
	// Fail is set when the node has to end the pod, which stays as a failed one.
	Fail *PodFailure
	// Pending is set while the source's resources differ from the allocated ones.
	Pending *PendingResize
	// Resized is true after a resize: the resources of a container may differ from those it was created with.
	Resized bool
}

// PendingResize is why a pod cannot have the resources that it asks for by now.
type PendingResize struct {
	Reason  string // v1.PodReasonDeferred or v1.PodReasonInfeasible
	Message string
}

// PodFailure is the reason why the node ends a pod that its source still has. It is sent with the pod's desired state until
// the pod has ended.
type PodFailure struct {
	Reason  string // CamelCase, as the kubelet has it in the pod's status
	Message string
	// Disruption is the message of the condition DisruptionTarget (KEP-3329); empty where there is none.
	Disruption string
	// Grace is how long its containers have at most, in seconds; nil: the pod's own.
	Grace *int64 `json:",omitempty"`
	// Cause is the failure, for explanations.
	Cause Cause `json:",omitzero"`
	// Annotations are set on the Event about the failure. Immutable.
	Annotations map[string]string `json:",omitempty"`
}

// ContainerOutOfMemory reports that the kernel killed a process of a container for want of memory. Some runtimes report the end
// of such a container as any other SIGKILL.
//
// Sender: eviction. Receiver: pod. Reply: none.
// If lost: the container's end has the reason that the runtime gives.
type ContainerOutOfMemory struct {
	UID, Container string
	ContainerID    string
	At             time.Time // the agent's clock
}

// PodUID implements Subject.
func (m ContainerOutOfMemory) PodUID() string { return m.UID }

// EvictPod makes the node end a pod that its source still has, because it exceeds a limit or to reclaim a resource. A pod
// that the node is ending keeps its reason, and gets the lesser of the two grace periods. A pod that ends for another reason
// is not changed.
//
// Sender: eviction. Receiver: pods. Reply: none; readers find the failure in the snapshot that pods publishes.
// If lost: the pod stays, and a later measurement evicts the one that comes first then.
type EvictPod struct {
	UID     string
	Failure PodFailure
}

// PodUID implements Subject.
func (m EvictPod) PodUID() string { return m.UID }

// Ending is why and how a pod must end.
type Ending struct {
	Reason string // e.g. "its manifest is gone"
	Since  time.Time
	Grace  *int64 // seconds; nil: the pod's own
	Orphan bool   // no source ever named it: Pod is built from the CRI
}

// GetDesired asks for the desired state of a pod after its actor has started.
//
// Sender: pod. Receiver: pods. Reply: PodWanted.
// If lost: the pod asks again when its timeout ends.
type GetDesired struct{ UID string }

// PodStatusChanged is a pod's newest status; it replaces all before it.
//
// Sender: pod. Receiver: pods. Reply: none.
// If lost: the pod's next change carries it; it is sent again with the next audit, and when the desired state is.
type PodStatusChanged struct {
	UID        string
	Generation uint64 // of the desired state that the pod has taken
	Phase      string // of the pod's actor, e.g. "running"
	Status     *v1.PodStatus
	Waiting    *Reason  // for waiting; nil: the pod does not wait
	Holds      []Reason // of each container that is kept from starting
}

// PodEnded reports that nothing of the pod runs. With Gone, nothing of it remains either, and pods stops the actor. With
// Released, its dead containers and sandboxes remain in the runtime, and nothing else: its object is deleted at the API server.
// If that takes longer than a timeout, its final status is kept on disk instead. With neither, a pod that finished by itself
// stays for as long as a source names it.
//
// Sender: pod. Receiver: pods. Reply: PodWanted with ObjectGone after the deletion of the object; or with Final and without
// Unkept, when that is on the disk, or cannot be written and the pod was deleted; a pod that is gone is stopped.
// If lost: the pod sends it again when its timeout ends.
type PodEnded struct {
	UID      string
	Gone     bool
	Released bool // of a deleted pod of the API server
	Status   *v1.PodStatus
}
