package eviction

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// action is the consequence of a measurement.
type action struct {
	kind actionKind
	by   limit    // the threshold
	on   contents // of the threshold's file system, if it has one
}

type actionKind int

const (
	nothing actionKind = iota
	reclaim            // remove unused objects: dead containers, images
	evict              // end one pod
)

// decide returns the action for a measurement taken by observe. Among thresholds met for their grace period, the first of memory
// counts, then the first of the others, as with the kubelet. Unused objects on a short disk are reclaimed first; reclaimed means
// that this preceded the measurement. hard means that only hard thresholds count.
func (s pressureState) decide(m Measurement, reclaimed, hard bool, now time.Time) action {
	var out action
	for i, l := range s.limits {
		since, met := s.met[i]
		if !met || now.Sub(since) < l.grace || hard && !l.hard() {
			continue
		}
		memory := l.signal.kind() == v1.NodeMemoryPressure
		if out.kind != nothing && (!memory || out.by.signal.kind() == v1.NodeMemoryPressure) {
			continue
		}
		out = action{kind: evict, by: l}
		if l.signal.kind() == v1.NodeDiskPressure {
			out.on = m.Layout.on(l.signal)
			if !reclaimed && (out.on.images || out.on.dead()) {
				out.kind = reclaim
			}
		}
	}
	return out
}
