package eviction

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// action is what a measurement leads to.
type action struct {
	kind actionKind
	by   limit    // for which threshold
	on   contents // of its file system, where it is about one
}

type actionKind int

const (
	nothing actionKind = iota
	reclaim            // take back what nobody uses: dead containers, images
	evict              // end one pod
)

// decide says what to do about a measurement that observe has taken: of the thresholds that are met for their grace period the
// first of memory counts, then the first of the others, as with the kubelet. Where nobody's things lie on a disk that is short,
// these go first; reclaimed says that they have gone before this measurement. hard says that only hard thresholds count.
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
