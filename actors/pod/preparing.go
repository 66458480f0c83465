package pod

import (
	"cmp"
	"slices"

	"github.com/playlet-dev/playlet/actors/internal/stoporder"
	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// sandboxing is how far the pod is with its next sandbox.
type sandboxing struct {
	retry       restarts.Retry // of starting or stopping one
	changed     bool           // an Event says that the present one has to be replaced
	unconnected string         // why it has no network, as recorded
	asked       uint32         // the attempt that was asked for last
	settled     string         // the sandbox of no use that was read again, before it is stopped
}

// planPreparing: the pod's cgroup and then its sandbox, its volumes and first images are wanted, side by side; what still runs of
// an earlier sandbox, or of an earlier round, is ended first. Leads to Initializing, Running, Terminating.
func (m *Machine) planPreparing() Phase {
	if m.over() {
		return Terminating
	}
	m.mount()
	m.ensureCgroup()
	m.prefetch()
	if s := m.Sandboxes.Unfit(); s != nil && m.sandboxing.settled != s.ID {
		m.sandboxing.settled = s.ID
		m.readAgain() // what runs in a sandbox that lives and is to be replaced: a container may be on its way to start there
	}
	if m.settled() && m.clearLost() {
		m.startSandbox()
		m.rounds.Begun = m.rounds.Now
	}
	if m.Current() == nil || m.newerSandbox() || !m.volumes.mounted || !m.cgroup.ready || m.restarting() {
		return Preparing
	}
	if m.NextInit() != nil {
		return Initializing
	}
	return Running
}

func (m *Machine) mount() {
	if !m.volumes.mounted || m.volumes.forgotten {
		m.ask("mount", "", messages.Volumes, messages.MountVolumes{UID: m.uid, Pod: m.Pod})
	}
}

// doubtVolumes has volumes asked again at a reading when it was not heard for a while: the word of its restart may be lost.
func (m *Machine) doubtVolumes() {
	if v := &m.volumes; v.mounted && !v.forgotten && !m.now.Before(v.heardAt.Add(reportAgain)) {
		v.forgotten = true
		m.answered("mount", "")
	}
}

// ensureCgroup asks for the pod's cgroup, as it is to be now. Everything that is started in the pod lies within.
func (m *Machine) ensureCgroup() {
	if pod := m.group(); pod != m.cgroup.of {
		m.cgroup.of, m.cgroup.ready = pod, false
		m.answered("cgroup", "")
	}
	if !m.cgroup.ready {
		m.ask("cgroup", "", messages.Resources, messages.EnsurePodCgroup{UID: m.uid, Pod: m.cgroup.of})
	}
}

// prefetch asks for the images of the containers that come first, while sandbox and volumes are made.
func (m *Machine) prefetch() {
	if c := m.NextInit(); c != nil {
		m.wantImage(c)
		return
	}
	for _, c := range m.Containers {
		if !c.Init && c.Spec != nil && !c.Over(m.Pod) {
			m.wantImage(c)
		}
	}
}

// clearLost ends what runs outside the current sandbox; a lost sandbox ends its containers. What is of an earlier round is ended,
// too, sidecars after the others and in reverse order. It reports whether none is left.
func (m *Machine) clearLost() bool {
	current := m.Current()
	cleared := true
	for _, c := range slices.Backward(m.Containers) {
		f := c.Newest()
		switch {
		case !c.Alive(): // what was created and never ran has nothing to end; it is left to the collector
			continue
		case c.Earlier && (cleared || !c.Init):
			// As fast as the kubelet does it: without its pre-stop hook and without the pod's grace period.
			cause := cmp.Or(m.rounds.Cause, "its pod was restarted")
			m.stopContainer(c, stoporder.LeastGrace, messages.Cause{Code: messages.CauseAllRestarted, Text: cause})
		case c.Earlier: // its turn comes
		case current != nil && f.SandboxID == current.ID:
			continue
		default:
			m.stopContainer(c, m.Grace(), messages.Cause{Text: "its sandbox is gone"})
		}
		cleared = false
	}
	return cleared
}

// startSandbox asks for a new sandbox, once the one before it has given its network back.
func (m *Machine) startSandbox() {
	if m.Current() != nil {
		m.sandboxing.changed = false
		return
	}
	if m.now.Before(m.sandboxing.retry.At) {
		return
	}
	m.recordChanged()
	if len(m.Sandboxes.All) > 0 && !m.Sandboxes.All[0].Stopped {
		m.stopSandbox(m.Sandboxes.All[0].ID)
		return
	}
	m.recordNetwork()
	if m.Wanted.NoNetwork != nil { // pods sends the desired pod again when there is one
		return
	}
	if m.cgroup.ready && m.due("sandbox", "", m.Set.Work) {
		m.sandboxing.asked = m.Sandboxes.Next
		m.emit(work.StartSandbox{Pod: m.Pod, Attempt: m.Sandboxes.Next, Started: m.Started, CgroupParent: m.cgroup.parent})
	}
}

// newerSandbox reports whether a sandbox is on its way that will take the place of the current one, which a call that timed out
// made later.
func (m *Machine) newerSandbox() bool {
	until, asked := m.asks[ask{"sandbox", ""}]
	return asked && m.now.Before(until) && m.Current().Attempt < m.sandboxing.asked && !m.RunsIn(m.Current().ID)
}

// stopSpare stops empty sandboxes that are ready beside the current one: a call that timed out created them later. The runtime's
// actor removes stopped sandboxes.
func (m *Machine) stopSpare() {
	current := m.Current()
	for i := range m.Sandboxes.All {
		if s := &m.Sandboxes.All[i]; s.ID != current.ID && s.Ready && !m.RunsIn(s.ID) {
			m.stopSandbox(s.ID)
		}
	}
}

func (m *Machine) stopSandbox(id string) {
	if !m.now.Before(m.sandboxing.retry.At) && m.due("stopSandbox", id, m.Set.Work) {
		m.emit(work.StopSandbox{UID: m.uid, ID: id})
	}
}

// noteRounds derives the pod's round from what is known of its containers.
func (m *Machine) noteRounds() {
	if m.Pod != nil && translate.MayRestartAll(&m.Pod.Spec) && (m.live() || m.phase == Reading) && m.rounds.Note(&m.State) {
		m.beginRound()
	}
}

// restarting says that what is left of an earlier round is being ended.
func (m *Machine) restarting() bool { return m.live() && m.rounds.Left(&m.State) }

// beginRound gives up what the containers wait for. What is on its way to start is found by a reading, which begins when such
// starts have ended.
func (m *Machine) beginRound() {
	m.readAgain()
	for _, c := range m.Containers {
		if !c.InRounds() {
			continue
		}
		if c.Retry = (restarts.Retry{}); c.Stage() == messages.StageStarting {
			m.answerEnd(c)
		}
		if c.Actor && m.asking("spawn", c.Name) {
			m.restartActor(c) // it waits for the end of its back-off
		}
	}
}
