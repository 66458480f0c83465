package messages

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MeasureUsage says that somebody reads what volumes and logs use, and which pods there are: what was not measured for a while is
// measured anew, and what pods used that are gone is forgotten.
//
// Sender: a handler of HTTP, or work of eviction, from outside the tree. Receiver: stats. Reply: none; readers find the figures
// in the process-wide collector.
// If lost: the answer has the figures from before, and the next request sends it again.
type MeasureUsage struct {
	Pods []*v1.Pod // immutable
	// Urgent are the UIDs of pods over which eviction decides: figures of some seconds ago are too old for them. Immutable.
	Urgent map[types.UID]bool
	// Claims says that only the pods with claims are read.
	Claims bool
}
