package volumes

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// lane is a kind of operations that have places of their own: an API server that does not answer keeps those that ask it, and
// nobody else.
type lane int

const (
	onDisk  lane = iota // whatever asks nobody
	asking              // mounts that need a token of the API server
	renewal             // the same, of pods that have all they need and whose tokens only become old
	lanes
)

// laneOf is the lane of a mount; before is the phase that it begins in.
func laneOf(w beginMount, before phase) lane {
	switch {
	case !asksForTokens(w.pod, w.only):
		return onDisk
	case before == mounted:
		return renewal
	default:
		return asking
	}
}

// asksForTokens says that one of these volumes of a pod, or of all that it uses where none is named, has a token in it.
func asksForTokens(pod *v1.Pod, only []string) bool {
	return pod != nil && slices.ContainsFunc(used(pod), func(v *v1.Volume) bool {
		return (len(only) == 0 || slices.Contains(only, v.Name)) && v.Projected != nil &&
			slices.ContainsFunc(v.Projected.Sources, func(s v1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
	})
}

// wait has an operation wait for a place in its lane.
func (m *machine) wait(e effect) {
	m.lanes[e.lane].queue = append(m.lanes[e.lane].queue, e)
}

// withdraw takes out a pod's mount that still waits, as if it had been given its place: a pod at its end does not wait for what it is not
// to have.
func (m *machine) withdraw(uid string) (turn uint64, l lane, waits bool) {
	for l := range lanes {
		queue := m.lanes[l].queue
		i := slices.IndexFunc(queue, func(e effect) bool {
			_, mounts := e.what.(beginMount)
			return mounts && e.uid == uid
		})
		if i >= 0 {
			turn = queue[i].turn
			m.lanes[l].queue = slices.Delete(queue, i, i+1)
			m.lanes[l].busy++
			return turn, l, true
		}
	}
	return 0, 0, false
}

// admit gives places to those that wait.
func (m *machine) admit() (out []effect) {
	for i := range m.lanes {
		l := &m.lanes[i]
		n := min(len(l.queue), max(m.limit-l.busy, 0))
		out = append(out, l.queue[:n]...)
		l.queue = slices.Delete(l.queue, 0, n)
		l.busy += n
	}
	return out
}

// busy and waiting are how many operations are under way, and wait, in all lanes.
func (m *machine) busy() (n int) {
	for _, l := range m.lanes {
		n += l.busy
	}
	return n
}

func (m *machine) waiting() (n int) {
	for _, l := range m.lanes {
		n += len(l.queue)
	}
	return n
}
