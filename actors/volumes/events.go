package volumes

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// The events of one pod.
type (
	mountAsked   struct{ pod *v1.Pod }
	unmountAsked struct{ remove bool }
	leftBehind   struct{} // nobody wants the pod
	mountEnded   struct {
		turn uint64
		mountOutcome
	}
	verifyEnded struct {
		turn uint64
		ok   bool
	}
	unmountEnded struct {
		turn uint64
		unmountOutcome
	}
	retryDue       struct{ turn uint64 }
	objectsChanged struct{} // the pod has the version already
)

// The effects of one pod's step.
type (
	tell       struct{ msg any } // to the pod's actor
	beginMount struct {
		pod  *v1.Pod
		only []string // volumes; empty: all
	}
	beginVerify  struct{ pod *v1.Pod }
	beginUnmount struct{ remove bool }
	retryAfter   struct{ d time.Duration }
	moved        struct{ from, to phase }     // for the log
	noteLeft     struct{ left string }        // why something remained; empty when nothing did
	noteFailures struct{ troubles []trouble } // what has just failed
)
