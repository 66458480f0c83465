package pod

import (
	"slices"
	"time"

	retries "github.com/playlet-dev/playlet/actors/internal/backoff"
	"github.com/playlet-dev/playlet/messages"
)

// planPreparing: the pod's cgroup and then its sandbox, its volumes and first images are wanted, side by side; what still runs of
// an earlier sandbox, or of an earlier round, is ended first. Leads to Initializing, Running, Terminating.
func (m *Machine) planPreparing(now time.Time) Phase {
	if m.over(now) {
		return Terminating
	}
	m.mount(now)
	m.ensureCgroup(now)
	m.prefetch(now)
	cleared := m.settledIn(now) && m.clearLost(now)
	if cleared {
		m.startSandbox(now)
		m.rounds.begun = m.rounds.now
	}
	if m.sandboxes.current() == nil || !m.volumes.mounted || !m.cgroup.ready || m.restarting() {
		return Preparing
	}
	if m.nextInit() != nil {
		return Initializing
	}
	return Running
}

func (m *Machine) mount(now time.Time) {
	if m.volumes.mounted && !m.volumes.forgotten || !m.due(now, "mount", "", m.set.AnswerTimeout) {
		return
	}
	m.emit(Tell{messages.Volumes, messages.MountVolumes{UID: m.uid, Pod: m.pod}})
}

// prefetch asks for the images of the containers that come first, while sandbox and volumes are made.
func (m *Machine) prefetch(now time.Time) {
	if c := m.nextInit(); c != nil {
		m.wantImage(now, c)
		return
	}
	for _, c := range m.containers {
		if !c.init && c.spec != nil && !c.over(m.pod) {
			m.wantImage(now, c)
		}
	}
}

// settledIn reports whether it is known what runs in a sandbox that lives and is to be replaced. A container may be on its way
// to start there: the pod is read again, which begins when such starts have ended.
func (m *Machine) settledIn(now time.Time) bool {
	if s := m.sandboxes.unfit(); s != nil && m.sandboxes.settled != s.ID {
		m.sandboxes.settled, m.settle = s.ID, now
		m.answered("read", "")
	}
	return m.settled(now)
}

// clearLost ends what runs outside the current sandbox; a lost sandbox ends its containers. What is of an earlier round is ended,
// too, sidecars after the others and in reverse order. It reports whether none is left.
func (m *Machine) clearLost(now time.Time) bool {
	current := m.sandboxes.current()
	cleared := true
	for _, c := range slices.Backward(m.containers) {
		f := c.newest()
		switch {
		case !c.alive(): // what was created and never ran has nothing to end; it is left to the collector
			continue
		case c.earlier && (cleared || !c.init):
			m.endEarlier(now, c)
		case c.earlier: // its turn comes
		case current != nil && f.SandboxID == current.ID:
			continue
		default:
			m.stopContainer(now, c, m.grace(), "its sandbox is gone")
		}
		cleared = false
	}
	return cleared
}

// startSandbox asks for a new sandbox, once the one before it has given its network back.
func (m *Machine) startSandbox(now time.Time) {
	if m.sandboxes.current() != nil {
		m.sandboxes.changed = false
		return
	}
	if now.Before(m.sandboxes.retry) {
		return
	}
	m.recordChanged()
	if len(m.sandboxes.all) > 0 && !m.sandboxes.stopped[m.sandboxes.all[0].ID] {
		m.stopSandbox(now, m.sandboxes.all[0].ID)
		return
	}
	m.recordNetwork()
	if m.desired.NoNetwork != nil { // pods sends the desired pod again when there is one
		return
	}
	if m.cgroup.ready && m.due(now, "sandbox", "", m.set.Work) {
		m.emit(StartSandbox{Attempt: m.sandboxes.next, Started: m.started, CgroupParent: m.cgroup.parent})
	}
}

func (m *Machine) stopSandbox(now time.Time, id string) {
	if m.due(now, "stopSandbox", id, m.set.Work) {
		m.emit(StopSandbox{ID: id})
	}
}

// sandboxFailed notes a failure to start a sandbox; the next try comes after a back-off.
func (m *Machine) sandboxFailed(now time.Time, reason messages.Reason) {
	m.sandboxes.tries++
	m.sandboxes.retry = now.Add(retryDelay(m.sandboxes.tries))
	reason.RetryAt, reason.Tries = m.sandboxes.retry, m.sandboxes.tries
	m.sandboxes.failed = &reason
}

// stepRetry ends with the kubelet's own pause between syncs of a failing pod.
var stepRetry = retries.Policy{First: time.Second, Max: 10 * time.Second}

// retryDelay is the wait before the n-th repetition of a step that failed.
func retryDelay(n int) time.Duration { return stepRetry.After(n, 0) }
