package volumes

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// machine decides for the whole node: one podState for each pod, and who may work now. It does no I/O and knows no
// clock; its effects are carried out by the actor.
type machine struct {
	pods  map[string]podState
	turn  uint64
	limit int // operations at a time, in each lane
	lanes [lanes]struct {
		busy  int      // operations under way
		queue []effect // operations that wait for a place, oldest first
	}
	// wanted is the last whole wish of pods. It counts from the first one on.
	wanted map[string]bool
	// versionOf is the version of the ConfigMaps and Secrets that a pod may read. It only looks.
	versionOf func(*v1.Pod) uint64
	// left is why a folder that nobody wants is still there, by UID.
	left map[string]string
}

// effect is one thing to do for one pod.
type effect struct {
	uid  string
	turn uint64 // the operation or timer to which it belongs
	what any
	lane lane // of an operation
}

func newMachine(limit int) *machine {
	return &machine{pods: map[string]podState{}, limit: limit, left: map[string]string{}, versionOf: func(*v1.Pod) uint64 { return 0 }}
}

// on takes one event of one pod and says what to do now.
func (m *machine) on(uid string, ev any, now time.Time) []effect {
	switch e := ev.(type) { // stale or not, its place is free
	case mountEnded:
		m.lanes[e.lane].busy--
	case unmountEnded:
		m.lanes[onDisk].busy--
	}
	m.turn++
	before := m.pods[uid].phase
	state := m.pods[uid]
	if asked, ok := ev.(mountAsked); ok {
		state.version = m.versionOf(asked.pod)
	} else {
		state.version = m.versionOf(state.pod)
	}
	next, effects := state.step(uid, ev, now, m.turn)
	if next.phase != before {
		effects = append(effects, moved{before, next.phase})
	}
	if next.phase == absent {
		delete(m.pods, uid)
	} else {
		m.pods[uid] = next
	}
	var out []effect
	for _, what := range effects {
		e := effect{uid: uid, turn: m.turn, what: what}
		switch w := what.(type) {
		case beginMount:
			e.lane = laneOf(w, before)
			m.wait(e)
		case beginUnmount:
			m.wait(e)
		default:
			out = append(out, e)
		}
	}
	if next.phase == abandoning {
		if turn, l, waits := m.withdraw(uid); waits {
			return append(out, m.on(uid, mountEnded{turn, mountOutcome{lane: l}}, now)...)
		}
	}
	return append(out, m.admit()...)
}

// onObjects takes that there are other ConfigMaps or Secrets than before.
func (m *machine) onObjects(now time.Time) []effect {
	var out []effect
	for _, uid := range slices.Sorted(maps.Keys(m.pods)) {
		out = append(out, m.on(uid, objectsChanged{}, now)...)
	}
	return out
}

// onWanted takes the whole wish of pods. An ask keeps a folder although the wish leaves the pod out, since the wish may
// be the older of the two; not for ever, since the pod may have gone without a word.
func (m *machine) onWanted(uids map[string]bool) {
	m.wanted = uids
	for uid, p := range m.pods {
		if uids[uid] {
			p.missing = 0
		} else {
			p.missing++
		}
		m.pods[uid] = p
	}
}

// onFound takes the names of the pods' folders on the disk and has those removed that nobody wants.
func (m *machine) onFound(uids []string, now time.Time) []effect {
	there := map[string]bool{}
	for _, uid := range uids {
		there[uid] = true
	}
	maps.DeleteFunc(m.left, func(uid string, _ string) bool { return !there[uid] })
	for uid, p := range m.pods {
		if p.missing >= forgottenIn {
			there[uid] = true // a pod that failed before it had a folder is forgotten in the same way
		}
	}
	var out []effect
	for _, uid := range slices.Sorted(maps.Keys(there)) {
		if p, asked := m.pods[uid]; !m.wanted[uid] && (!asked || p.missing >= forgottenIn) {
			out = append(out, m.on(uid, leftBehind{}, now)...)
		}
	}
	return out
}

// note keeps why something of a pod remained, and says whether that is news.
func (m *machine) note(uid, left string) bool {
	if left == "" {
		delete(m.left, uid)
		return false
	}
	news := m.left[uid] != left
	m.left[uid] = left
	return news
}
