package base

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
)

// processing bounds the time until the board shows a pod that was named just before it left.
const processing = time.Minute

// Departures are the pods that left the manifests of a source and may still run. Such a pod ends even while another manifest
// of the source is unusable. The zero value is empty. Not safe for concurrent use.
type Departures struct{ since map[string]time.Time } // by UID; when this process recorded it

// Add records departed pods, by UID.
func (d *Departures) Add(now time.Time, uids ...string) {
	if d.since == nil {
		d.since = map[string]time.Time{}
	}
	for _, uid := range uids {
		d.since[uid] = now
	}
}

// Update records the pods that were named before and are not now, and drops those that are named again. It reports whether the
// set changed.
func (d *Departures) Update(now time.Time, before, named map[string]bool) (changed bool) {
	for uid := range before {
		if _, known := d.since[uid]; !named[uid] && !known {
			d.Add(now, uid)
			changed = true
		}
	}
	for uid := range d.since {
		if named[uid] {
			delete(d.since, uid)
			changed = true
		}
	}
	return changed
}

// Prune drops the pods that are over: the board is complete, no pod runs without an actor, and it has none of theirs. Without a
// board it drops nothing. It reports whether the set changed.
func (d *Departures) Prune(now time.Time, b *board.Board, source messages.Address) (changed bool) {
	if b == nil || len(d.since) == 0 {
		return false
	}
	s := b.Now()
	if !s.Complete() || s.Unclaimed > 0 {
		return false
	}
	here := map[string]bool{}
	for _, p := range s.Pods {
		here[string(p.Pod.UID)] = p.Source == source || p.Source == ""
	}
	for uid, since := range d.since {
		if !here[uid] && now.Sub(since) >= processing {
			delete(d.since, uid)
			changed = true
		}
	}
	return changed
}

// UIDs returns a copy of the set.
func (d *Departures) UIDs() map[string]bool {
	out := make(map[string]bool, len(d.since))
	for uid := range maps.Keys(d.since) {
		out[uid] = true
	}
	return out
}

// UIDs returns the UIDs of pods.
func UIDs(pods []*v1.Pod) map[string]bool {
	out := make(map[string]bool, len(pods))
	for _, p := range pods {
		out[string(p.UID)] = true
	}
	return out
}
