package messages

import v1 "k8s.io/api/core/v1"

// EnsurePodCgroup asks for the pod's cgroup, with the values that its spec asks for. Asking again is the same
// question; asking with another spec changes the values.
//
// Sender: pod. Receiver: resources. Reply: PodCgroupReady or PodCgroupFailed.
// If lost: the pod asks again when its timeout ends.
type EnsurePodCgroup struct {
	UID string
	Pod *v1.Pod
}

// PodCgroupReady reports that the pod's cgroup exists.
//
// Sender: resources. Receiver: pod. Reply: none.
// If lost: the pod asks again when its timeout ends.
type PodCgroupReady struct {
	UID string
	// Pod is the pod as it was asked for: the answer to an older question is none to a newer one.
	Pod *v1.Pod
	// Parent is the parent cgroup, in the form that the runtime takes; empty where pods have no cgroups.
	Parent string
}

// PodCgroupFailed reports that the pod's cgroup cannot be created now. The resources actor retries with back-off, and sends
// PodCgroupReady when it succeeds.
//
// Sender: resources. Receiver: pod. Reply: none.
// If lost: the pod asks again when its timeout ends.
type PodCgroupFailed struct {
	UID    string
	Reason Reason
}

// RemovePodCgroup asks for the removal of the pod's cgroup. Processes that remain in it are killed first.
//
// Sender: pod. Receiver: resources. Reply: PodCgroupRemoved.
// If lost: the pod asks again when its timeout ends.
type RemovePodCgroup struct{ UID string }

// PodCgroupRemoved reports that the pod has no cgroup.
//
// Sender: resources. Receiver: pod. Reply: none.
// If lost: the pod asks again when its timeout ends.
type PodCgroupRemoved struct {
	UID string
	// Left is why it is still there; it is tried again with the next sweep and never holds the pod up.
	Left string
}

// PodCgroupsWanted is the whole set of pods that may have a cgroup. Once every source has reported, all other cgroups of pods
// are removed with their processes. It is sent only when the running pods are known.
//
// Sender: pods. Receiver: resources. Reply: none.
// If lost: pods sends it again with its next sweep.
type PodCgroupsWanted struct {
	UIDs map[string]bool
	// Heard is true when every source has reported. Only then is a cgroup left behind.
	Heard bool
	// Active are the pods that run or are to run. The weight of burstable pods is computed from their requests. Immutable.
	Active map[string]*v1.Pod
}

// AllocateResources asks for the CPUs and devices that the containers of a pod are to have to themselves. They stay allocated, so
// that the question can be repeated.
//
// Sender: pods. Receiver: resources. Reply: ResourcesAllocated.
// If lost: pods asks again when its timeout ends.
type AllocateResources struct {
	UID string
	Pod *v1.Pod
	// Holding are the names of the pods that hold CPUs and devices, by UID, this one included. With Heard, all other pods lose
	// theirs first. Immutable.
	Holding map[string]string
	// Heard is true when every source that reports has done so and the running pods are known.
	Heard bool
}

// ResourcesAllocated reports that the containers of a pod have their CPUs and devices, or the reason why they cannot.
//
// Sender: resources. Receiver: pods. Reply: none.
// If lost: pods asks again when its timeout ends.
type ResourcesAllocated struct {
	UID string
	// Pod is the pod of the question. A static pod keeps its UID when its manifest changes.
	Pod *v1.Pod
	// Refused is why; empty: they have them. It is the text of the device plugin or the kubelet for the pod's status.
	Refused string
	// Reason is the reason for the pod's status; empty if the refusal has none of its own.
	Reason string
	Cause  Cause
}

// ResourcesHeld reports the pods that hold CPUs and devices. All other pods lose theirs, and holders that run without the CPUs
// that they ask for get them. It is sent when every source that ever reports has done so and the running pods are known: after
// the end of a pod, and with each sweep.
//
// Sender: pods. Receiver: resources. Reply: none.
// If lost: pods sends it again with its next sweep.
type ResourcesHeld struct {
	// Holding are the names of the pods, by UID. Immutable.
	Holding map[string]string
}

// DevicesListed reports that a device plugin has sent another list of its devices. Static pods that wait for devices ask again.
//
// Sender: the connection to the device plugin. Receiver: pods. Reply: none.
// If lost: pods asks again when its timeout ends.
type DevicesListed struct{}

// DevicesChanged reports a change in the health of a device that a container of the pod has.
//
// Sender: the connection to the device plugin. Receiver: pod. Reply: none.
// If lost: the pod's next status has it.
type DevicesChanged struct{ UID string }
