package messages

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// ImageKey names one need of an image: by one start of one container, for itself or for a volume that it mounts.
type ImageKey struct {
	UID       string
	Container string
	Attempt   uint32
	Volume    string // the name of the volume that the image is for; empty: it is the container's own
}

// SamePlace says that the other need is of the same container for the same purpose, in whatever attempt.
func (k ImageKey) SamePlace(other ImageKey) bool {
	return k.UID == other.UID && k.Container == other.Container && k.Volume == other.Volume
}

// PullImage asks for an image to be there, by policy. Asking again with the same key is the same question.
//
// Sender: pod. Receiver: images. Reply: ImagePulled or ImageFailed, to the pod, and
// ImageAwaited until then.
// If lost: the pod asks again when its timeout ends.
type PullImage struct {
	Key      ImageKey
	Image    string // as the pod's author wrote it
	Policy   v1.PullPolicy
	Pod      *v1.Pod
	Priority int64 // lower is served first
}

// ImagePulled says that the image is there.
//
// Sender: images. Receiver: pod. Reply: none.
// If lost: the pod asks again when its timeout ends.
type ImagePulled struct {
	Key ImageKey
	// Image is the one that was asked for: with the same key another may be wanted by now.
	Image string
	// Ref is what CreateContainer is given: the runtime's ID of the image.
	Ref string
	// Pulled is false when the image was there already.
	Pulled bool
	// Again says that nothing has happened since this was answered before.
	Again bool
	// Took is how long the pull lasted, and Waited how long the pod waited for it, its time in the queue included.
	Took, Waited time.Duration
	// Size is the image's, in bytes, as the runtime has it; 0 where it is not known.
	Size uint64
}

// ImageFailed says that the image is not there now. Unless the reason is permanent, images goes on trying for this
// key and will say ImagePulled when it succeeds.
//
// Sender: images. Receiver: pod. Reply: none.
// If lost: the pod asks again when its timeout ends.
type ImageFailed struct {
	Key    ImageKey
	Image  string // as in ImagePulled
	Reason Reason
	Again  bool // as in ImagePulled
}

// ImageAwaited says how far the image is: its place in the queue of its registry (ReasonPullQueued), or that it is being
// pulled (ReasonPulling). It is sent when that changes.
//
// Sender: images. Receiver: pod. Reply: none.
// If lost: it is sent at the next change, and when the pod asks again.
type ImageAwaited struct {
	Key    ImageKey
	Image  string // as in ImagePulled
	Reason Reason
	Again  bool // as in ImagePulled; of a pull that is under way
}

// ForgetImages ends all needs of a pod: it is terminating.
//
// Sender: pod. Receiver: images. Reply: none.
// If lost: a pull is finished for nobody, and its answer finds no pod.
type ForgetImages struct{ UID string }

// ReclaimImages asks for the removal of all images that nobody uses, since the node is short of disk.
//
// Sender: eviction. Receiver: images. Reply: ImagesReclaimed, when nothing more is to be removed.
// If lost: eviction asks again with a later measurement, as long as the disk is short.
type ReclaimImages struct{}

// ImagesReclaimed says what the removal of all unused images has brought.
//
// Sender: images. Receiver: eviction. Reply: none.
// If lost: eviction stops waiting, and goes on by what it measures.
type ImagesReclaimed struct {
	Freed   int64 // bytes, as the runtime tells the images' sizes
	Removed int
	Lack    string // what could not be removed, and why; empty where all was
}

// NodeImage is an image on the node, as the collection of unused ones sees it.
type NodeImage struct {
	ID      string   `json:"id"`
	Tags    []string `json:"tags,omitempty"`
	Digests []string `json:"digests,omitempty"`
	Size    uint64   `json:"size"` // bytes
	Pinned  bool     `json:"pinned,omitempty"`
	// Since is when it was seen first, and Used when it was seen in use last, zero for not yet. Both count from the agent's start
	// at the earliest.
	Since time.Time   `json:"since"`
	Used  time.Time   `json:"used,omitzero"`
	Users []ImageUser `json:"users,omitempty"`
	// Kept is why the collection would leave it where it is; empty: it would remove it.
	Kept string `json:"kept,omitempty"`
}

// ImageUser is a container that has an image, or is about to have it: then only the pod's UID and the container's name are known.
type ImageUser struct {
	UID       string `json:"uid,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`
}

// GetImages asks which images are on the node, who uses them, and which the collection of unused ones would remove.
//
// Sender: server, for a client of the admin socket. Receiver: images. Reply: ImagesListed.
// If lost: the client gets no answer and may ask again.
type GetImages struct{}

// ImagesListed is what is on the node of images, by ID.
//
// Sender: images. Receiver: server, for the client. Reply: none.
// If lost: the client gets no answer and may ask again.
type ImagesListed struct {
	Images []NodeImage
	Failed string // why that is not known
}

// RemoveImage asks for an image to be removed that nobody uses. It names one by its ID; one that is gone is removed already.
//
// Sender: server, for a client of the admin socket. Receiver: images. Reply: ImageRemoved.
// If lost: the client gets no answer and may ask again.
type RemoveImage struct {
	ID string
	// Collect has the image kept by all rules of the collection, and not only while somebody uses it.
	Collect bool
}

// ImageRemoved says that the image is gone, or why not.
//
// Sender: images. Receiver: server, for the client. Reply: none.
// If lost: the client gets no answer; asking again, it hears that the image is gone.
type ImageRemoved struct {
	Freed uint64 `json:"freed"` // bytes, as the runtime tells the image's size
	// Kept is why it stays, and Users who uses it.
	Kept  string      `json:"kept,omitempty"`
	Users []ImageUser `json:"users,omitempty"`
	// Busy says that images are being collected, and that the same is to be asked again.
	Busy bool `json:"busy,omitempty"`
}

// FetchImage asks, for a person, for an image to be pulled, and how far that is. Asking again with the same ID is the same
// question; its answer is kept for ten minutes.
//
// Sender: server, for a client of the admin socket. Receiver: images. Reply: ImageFetched.
// If lost: the client gets no answer and asks again.
type FetchImage struct {
	ID, Image string
	Client    string // of the admin socket: each has a share of the pulls
}

// ImageFetched says how far a pull is: it has ended where there is an ID, or a reason why it failed.
//
// Sender: images. Receiver: server, for the client. Reply: none.
// If lost: the client gets no answer and asks again.
type ImageFetched struct {
	ID      string        `json:"id,omitempty"` // of the image
	Size    uint64        `json:"size,omitempty"`
	Took    time.Duration `json:"took,omitempty"`
	Waiting string        `json:"waiting,omitempty"` // what for, and since when
	Since   time.Time     `json:"since,omitzero"`
	Failed  string        `json:"failed,omitempty"`
	Remedy  string        `json:"remedy,omitempty"` // of the failure
}
