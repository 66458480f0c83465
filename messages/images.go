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

// SamePlace reports whether other is a need of the same container for the same purpose, in any attempt.
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

// ImagePulled reports that the image is present.
//
// Sender: images. Receiver: pod. Reply: none.
// If lost: the pod asks again when its timeout ends.
type ImagePulled struct {
	Key ImageKey
	// Image is the requested image. The pod may need another under the same key by now.
	Image string
	// Ref is the runtime's ID of the image, for CreateContainer.
	Ref string
	// Pulled is false when the image was there already.
	Pulled bool
	// Again is true when this answer has been sent before, and nothing has changed since.
	Again bool
	// Took is how long the pull lasted, and Waited how long the pod waited for it, its time in the queue included.
	Took, Waited time.Duration
	// Size is the image's, in bytes, as the runtime has it; 0 where it is not known.
	Size uint64
}

// ImageFailed reports that the image is not present. Unless the reason is permanent, images retries for this key, and sends
// ImagePulled when the pull succeeds.
//
// Sender: images. Receiver: pod. Reply: none.
// If lost: the pod asks again when its timeout ends.
type ImageFailed struct {
	Key    ImageKey
	Image  string // as in ImagePulled
	Reason Reason
	Again  bool // as in ImagePulled
}

// ImageAwaited reports the progress towards the image: its place in the queue of its registry (ReasonPullQueued), or a pull
// in progress (ReasonPulling). It is sent at each change.
//
// Sender: images. Receiver: pod. Reply: none.
// If lost: it is sent at the next change, and when the pod asks again.
type ImageAwaited struct {
	Key    ImageKey
	Image  string // as in ImagePulled
	Reason Reason
	Again  bool // as in ImagePulled; for a pull in progress
}

// ForgetImages ends all needs of a pod: it is terminating.
//
// Sender: pod. Receiver: images. Reply: none.
// If lost: a pull is completed without need, and its answer is a dead letter.
type ForgetImages struct{ UID string }

// ReclaimImages asks for the removal of all unused images, because the node is short of disk.
//
// Sender: eviction. Receiver: images. Reply: ImagesReclaimed, when nothing more is to be removed.
// If lost: eviction asks again with a later measurement, as long as the disk is short.
type ReclaimImages struct{}

// ImagesReclaimed is the result of a removal of all unused images.
//
// Sender: images. Receiver: eviction. Reply: none.
// If lost: eviction stops waiting and relies on its next measurement.
type ImagesReclaimed struct {
	Freed     int64 // bytes, by the runtime's image sizes
	Removed   int
	Shortfall string // the images that could not be removed, and why
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

// GetImages asks for the images on the node, their users, and the images that the next collection would remove.
//
// Sender: server, for a client of the admin socket. Receiver: images. Reply: ImagesListed.
// If lost: the client gets no answer and may ask again.
type GetImages struct{}

// ImagesListed lists the images on the node by ID.
//
// Sender: images. Receiver: server, for the client. Reply: none.
// If lost: the client gets no answer and may ask again.
type ImagesListed struct {
	Images []NodeImage
	Failed string // why that is not known
}

// RemoveImage asks for the removal of an unused image, by its ID. An absent image counts as removed.
//
// Sender: server, for a client of the admin socket. Receiver: images. Reply: ImageRemoved.
// If lost: the client gets no answer and may ask again.
type RemoveImage struct {
	ID string
	// Collect applies all rules of the collection, where a plain removal spares only images in use.
	Collect bool
}

// ImageRemoved reports that the image is absent, or the reason why it stays.
//
// Sender: images. Receiver: server, for the client. Reply: none.
// If lost: the client gets no answer; when it asks again, the image is absent.
type ImageRemoved struct {
	Freed uint64 `json:"freed"` // bytes, by the runtime's image size
	// Kept is the reason why the image stays. Users are the pods that use it.
	Kept  string      `json:"kept,omitempty"`
	Users []ImageUser `json:"users,omitempty"`
	// Busy is true while images are being collected. The client asks again later.
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

// ImageFetched reports the progress of a pull. The pull has ended when there is an ID, or a reason for its failure.
//
// Sender: images. Receiver: server, for the client. Reply: none.
// If lost: the client gets no answer and asks again.
type ImageFetched struct {
	ID      string        `json:"id,omitempty"` // of the image
	Size    uint64        `json:"size,omitempty"`
	Took    time.Duration `json:"took,omitempty"`
	Waiting string        `json:"waiting,omitempty"` // the reason for the wait, and its begin
	Since   time.Time     `json:"since,omitzero"`
	Failed  string        `json:"failed,omitempty"`
	Remedy  string        `json:"remedy,omitempty"` // of the failure
}
