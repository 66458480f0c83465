package messages

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MeasureUsage announces a reader of the usage of volumes and logs, with the pods of this node. Old measurements are
// repeated, and those of pods that are gone are dropped.
//
// Sender: a handler of HTTP, or work of eviction, from outside the tree. Receiver: stats. Reply: none; readers find the figures
// in the process-wide collector.
// If lost: the answer has the figures from before, and the next request sends it again.
type MeasureUsage struct {
	Pods []*v1.Pod // immutable
	// Urgent has the UIDs of pods that eviction needs figures of. They are measured first, and figures that are some seconds old
	// are measured again. Immutable.
	Urgent map[types.UID]bool
	// Short reports that the node's disk is short: urgent figures are measured at any cost.
	Short bool
	// Claims limits the measurement to pods with claims.
	Claims bool
}

// RecordFigures starts the recording of figures for charts. It has no effect while recording is on.
//
// Sender: a handler of HTTP, from outside the tree. Receiver: stats. Reply: none; readers find the samples in the process-wide
// collector.
// If lost: the charts lack some samples, and the next request sends it again.
type RecordFigures struct{}
