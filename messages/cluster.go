package messages

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// APIPodsObserved is all pods of this node as the API server has them, mirror pods included, with their statuses. The status
// actor compares with it before it writes.
//
// Sender: sources/apiserver. Receiver: status. Reply: none.
// If lost: the next change sends all again, as does each regular check.
type APIPodsObserved struct {
	Pods []*v1.Pod // immutable; without managedFields
	// At is when the API server was last known to agree: the end of a list, or the last event of the watch.
	At time.Time
}

// PodStatusWanted is the newest status of one pod; it replaces all before it.
//
// Sender: pods. Receiver: status. Reply: none.
// If lost: the pod's next change carries it, and PodStatusesWanted sends all again with each sweep.
type PodStatusWanted struct {
	UID string
	// Pod is the desired pod, as its source has it. Immutable.
	Pod *v1.Pod
	// Static means that the pod does not come from the API server: a mirror pod represents it there.
	Static bool
	// Status is nil while nothing is known of it yet.
	Status *v1.PodStatus
	// Kept means that the pod runs and its manifest cannot be read: its mirror pod is left as it is, and none is created.
	Kept bool
	// Over means that the pod was asked to end, and that nothing of it remains on this node but dead containers. After its final
	// status is written, the pod is deleted from the API server.
	Over bool
}

// PodStatusesWanted is the whole set of pods of this node. The status actor drops all others. Once every source has reported,
// it also removes mirror pods that belong to none of them.
//
// Sender: pods. Receiver: status. Reply: none.
// If lost: pods sends it again with its next sweep.
type PodStatusesWanted struct {
	Pods []PodStatusWanted
	// Heard is true when every source has reported.
	Heard bool
}

// NodeObserved is this node's object as the API server has it: its labels and taints decide which pods are admitted. A node
// that is not registered yet is nil.
//
// Sender: registration. Receiver: pods; status, since mirror pods belong to the Node; runtime, which passes the pods' range of
// addresses to the container runtime; volumes, for which volumes are attached. Reply: none.
// If lost: registration sends it again with each regular check.
type NodeObserved struct {
	Node *v1.Node // immutable
	// Read is the highest Read of a GetNode after which the Node was read from the API server.
	Read uint64
}

// GetNode asks for this node's object. With a Read, which grows with each such question, registration first reads the Node: the
// watch of the Node may lag behind a pod that the scheduler placed by the Node's newest labels.
//
// Sender: pods, status. Receiver: registration. Reply: NodeObserved, once the API server has sent the Node.
// If lost: registration sends it again with each regular check. pods repeats a question with a Read until it is answered.
type GetNode struct{ Read uint64 }

// Pressure is one kind of shortage on the node.
type Pressure struct {
	Type    v1.NodeConditionType // MemoryPressure, DiskPressure or PIDPressure
	Under   bool
	Reason  string // as the kubelet has it, e.g. KubeletHasDiskPressure
	Message string // names the signals below their thresholds, with the measurements
	Since   time.Time
}

// NodePressureObserved is all three kinds of shortage, as measured last.
//
// Sender: eviction. Receiver: registration, pods. Reply: none.
// If lost: the next measurement sends it again.
type NodePressureObserved struct {
	Pressures []Pressure
	At        time.Time // of the measurement
}

// RecordEvent asks for a Kubernetes Event. Its reason is one of those used in statuses. Its text never contains the contents
// of a Secret.
//
// Sender: any actor. Receiver: events. Reply: none.
// If lost: the Event is missing; events are news, and nothing depends on them.
type RecordEvent struct {
	// Object is the subject of the Event: the node, or a pod with, for a container, the path of its field. A static pod has
	// its own UID here, which its mirror pod carries in kubernetes.io/config.mirror.
	Object v1.ObjectReference
	// Type is Normal or Warning.
	Type    string
	Reason  string // CamelCase, the kubelet's where it has one
	Message string
	At      time.Time
	// Annotations are the Event's own, for programs. Immutable.
	Annotations map[string]string
}

// PodUID implements Subject. It is empty for events of the node.
func (m RecordEvent) PodUID() string {
	if m.Object.Kind != "Pod" {
		return ""
	}
	return string(m.Object.UID)
}
