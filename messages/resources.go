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

// PodCgroupReady says that the pod's cgroup is there.
//
// Sender: resources. Receiver: pod. Reply: none.
// If lost: the pod asks again when its timeout ends.
type PodCgroupReady struct {
	UID string
	// Pod is the pod as it was asked for: the answer to an older question is none to a newer one.
	Pod *v1.Pod
	// Parent is the cgroup as the runtime takes it for the parent of what it makes; empty where pods have no cgroups.
	Parent string
}

// PodCgroupFailed says that the pod's cgroup cannot be created now. resources goes on trying, with back-off, and will
// say PodCgroupReady when it succeeds.
//
// Sender: resources. Receiver: pod. Reply: none.
// If lost: the pod asks again when its timeout ends.
type PodCgroupFailed struct {
	UID    string
	Reason Reason
}

// RemovePodCgroup asks for the pod's cgroup to be removed; what still runs in it is killed before.
//
// Sender: pod. Receiver: resources. Reply: PodCgroupRemoved.
// If lost: the pod asks again when its timeout ends.
type RemovePodCgroup struct{ UID string }

// PodCgroupRemoved says that the pod has no cgroup any more.
//
// Sender: resources. Receiver: pod. Reply: none.
// If lost: the pod asks again when its timeout ends.
type PodCgroupRemoved struct {
	UID string
	// Left is why it is still there; it is tried again with the next sweep and never holds the pod up.
	Left string
}

// PodCgroupsWanted is the whole set of pods that may have a cgroup; all others are left behind, and are removed with
// what runs in them once every source has been heard. It is sent when it is known what runs.
//
// Sender: pods. Receiver: resources. Reply: none.
// If lost: pods sends it again with its next sweep.
type PodCgroupsWanted struct {
	UIDs map[string]bool
	// Heard is true when every source has been heard: only then is anything left behind.
	Heard bool
	// Active are those of them that run or are to run: burstable pods weigh together what these ask for. Immutable.
	Active map[string]*v1.Pod
}

// AllocateDevices asks that the containers of a pod get the devices that they ask for. What they have already stays: asking again
// is the same question.
//
// Sender: pods. Receiver: resources. Reply: DevicesAllocated.
// If lost: pods asks again when its timeout ends.
type AllocateDevices struct {
	UID string
	Pod *v1.Pod
	// Holding are the pods that hold their devices, this one included; those of all others are taken back before, where Heard.
	Holding map[string]bool
	// Heard is true when every source has been heard, and it is known what runs.
	Heard bool
}

// DevicesAllocated says that the containers of a pod have the devices that they ask for, or why the pod cannot have them.
//
// Sender: resources. Receiver: pods. Reply: none.
// If lost: pods asks again when its timeout ends.
type DevicesAllocated struct {
	UID string
	// Refused is why; empty: they have them. It is the device plugin's or the kubelet's word, as it comes into the pod's status.
	Refused string
}

// DevicesChanged says that the health of a device has changed which a container of the pod has.
//
// Sender: the connection to the device plugin. Receiver: pod. Reply: none.
// If lost: the pod's next status has it.
type DevicesChanged struct{ UID string }
