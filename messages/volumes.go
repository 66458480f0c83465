package messages

import v1 "k8s.io/api/core/v1"

// MountVolumes asks for the pod's folder and all its volumes. Asking again is the same question.
//
// Sender: pod. Receiver: volumes. Reply: VolumesMounted or VolumesFailed.
// If lost: the pod asks again when its timeout ends.
type MountVolumes struct {
	UID string
	Pod *v1.Pod
}

// VolumesMounted carries the paths of the pod's volumes.
//
// Sender: volumes. Receiver: pod. Reply: none.
// If lost: the pod asks again when its timeout ends.
type VolumesMounted struct {
	UID string
	// Paths are host paths by volume name. Immutable.
	Paths map[string]string
	// Mounts are the volumes with a mount of their own at their path in the pod's folder. Nil: none. Immutable.
	Mounts map[string]bool
	// Groups are supplemental groups of the containers, from an annotation of PersistentVolumes. Sorted, immutable.
	Groups []int64
}

// VolumesFailed reports that a volume is not mounted. The volumes actor retries, with back-off or when the wait may be over, and
// sends VolumesMounted when it succeeds.
//
// Sender: volumes. Receiver: pod. Reply: none.
// If lost: the pod asks again when its timeout ends.
type VolumesFailed struct {
	UID    string
	Volume string
	Reason Reason
	// Quiet is true of a failure without an Event: nothing is wrong while others do their part, or there was one.
	Quiet bool
	// Device is true of a volume that cannot be mapped as a block device.
	Device bool
}

// UnmountVolumes asks for the unmount of all volumes of a pod. With Remove, the pod is gone for good and its folder is
// removed too, never across a mount.
//
// Sender: pod. Receiver: volumes. Reply: VolumesUnmounted.
// If lost: the pod asks again when its timeout ends.
type UnmountVolumes struct {
	UID    string
	Remove bool
}

// VolumesUnmounted reports that nothing of the pod is mounted and, if requested, that its folder is gone.
//
// Sender: volumes. Receiver: pod. Reply: none.
// If lost: the pod asks again when its timeout ends.
type VolumesUnmounted struct {
	UID string
	// Removed is true when the removal of the folder was requested too.
	Removed bool
	// Left is why something remained; it is tried again, and holds the pod up only where something is Published.
	Left string
	// Cause is the cause of Left.
	Cause Cause
	// Published is true while a CSI driver may still have volumes of the pod. An API server that forgets the pod may detach
	// them.
	Published bool
}

// PodFoldersWanted is the whole set of pods whose folders must stay. All other folders are removed, never across a mount. It
// is sent only when every source has reported.
//
// Sender: pods. Receiver: volumes. Reply: none.
// If lost: pods sends it again with its next sweep.
type PodFoldersWanted struct{ UIDs map[string]bool }

// EventVolumeHeld is the reason of an Event of a folder of a volume that the agent cannot undo and keeps. It is of the node where
// the pod is not here.
const EventVolumeHeld = "VolumeHeld"

// HeldCode is the reason for which a folder of volumes is kept.
type HeldCode string

const (
	// HeldData is of a folder that holds data although nothing is mounted on it.
	HeldData HeldCode = "Data"
	// HeldDevice is of a raw block device of a kind that only a kubelet has, or of CSI without a record that names its driver.
	HeldDevice HeldCode = "Device"
	// HeldMount is of a mounted volume of CSI without a record that names its driver.
	HeldMount HeldCode = "Mount"
	// HeldDriver is of a mounted volume of CSI on a node without an API server.
	HeldDriver HeldCode = "Driver"
	// HeldPlugin is of a mounted volume of a kind that only a kubelet has.
	HeldPlugin HeldCode = "Plugin"
	// HeldRemains is of the folder of a pod that is over: its volumes could not be undone, or the folder not removed.
	HeldRemains HeldCode = "Remains"
	// HeldStaged is of a volume that no pod has any more, and that could not be unstaged or unmounted for the node.
	HeldStaged HeldCode = "Staged"
)

// HeldFolder is a folder of a volume, or of a pod that is over, that the agent cannot undo and keeps.
type HeldFolder struct {
	Code HeldCode
	// UID is the pod's; empty where the folder belongs to no single pod.
	UID string
	// Plugin is the kind of volume, as folders name it, and Path the folder's path on the host.
	Plugin, Path string
	// Error is the last error of HeldRemains or HeldStaged, in one line of bounded length. It may change while the folder stays.
	Error string
}

// FoldersHeld is all folders of volumes and of pods that are kept because the agent cannot undo them.
//
// Sender: volumes. Receiver: pods, which reports them. Reply: none.
// If lost: volumes sends it again with each sweep.
type FoldersHeld struct{ Folders []HeldFolder } // immutable

// VolumesInUse is all volumes that pods of this node need attached, or that may still be mounted here, by their names on the
// Node. None of them may be detached.
//
// Sender: volumes. Receiver: registration, which writes it to the Node. Reply: none; NodeObserved shows it.
// If lost: volumes sends it again with each sweep.
type VolumesInUse struct{ Names []v1.UniqueVolumeName } // immutable

// CSIDriver is a CSI driver that is registered on this node.
type CSIDriver struct {
	Name string
	// NodeID is the driver's name for this node. MaxVolumes is its limit of volumes here, 0 for none reported. Topology is
	// the location of the node.
	NodeID     string
	MaxVolumes int64
	Topology   map[string]string // immutable
}

// CSIDriversObserved is all CSI drivers that are registered on this node, and those that were since the agent started and are no
// more. Drivers of neither may come yet.
//
// Sender: volumes. Receiver: registration, which writes them to the CSINode and the Node. Reply: none.
// If lost: volumes sends it again with each sweep.
type CSIDriversObserved struct {
	Drivers []CSIDriver
	Gone    []string
}
