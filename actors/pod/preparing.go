package pod

import (
	"cmp"
	"slices"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/internal/stoporder"
	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// sandboxState is the progress of the pod's next sandbox.
type sandboxState struct {
	retry               restarts.Retry // of starting or stopping one
	replacementReported bool           // an Event has reported that the present one has to be replaced
	unconnected         string         // the recorded cause of a missing network
	requestedAttempt    uint32         // the attempt of the last request
	rereadSandbox       string         // the unfit sandbox that was read again before its stop
}

// planPreparing: the pod's cgroup, its claims and then its sandbox, its volumes and its first images are prepared, in parallel.
// Containers of an earlier sandbox or round are ended first. Leads to Initializing, Running, Terminating.
func (m *Machine) planPreparing() Phase {
	if m.over() {
		return Terminating
	}
	m.mount()
	m.ensureCgroup()
	m.prepareClaims()
	m.prefetch()
	if s := m.Sandboxes.Unfit(); s != nil && m.sandboxing.rereadSandbox != s.ID {
		m.sandboxing.rereadSandbox = s.ID
		m.readAgain() // a container may be starting in the live sandbox that is to be replaced
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
	if !m.volumes.mounted || m.volumes.resend {
		m.ask("mount", "", messages.Volumes, messages.MountVolumes{UID: m.uid, Pod: m.Pod})
	}
}

// renewVolumes repeats the request to volumes at a reading after a period without messages: the report of its restart may be
// lost.
func (m *Machine) renewVolumes() {
	if v := &m.volumes; v.mounted && !v.resend && !m.now.Before(v.answeredAt.Add(reportAgain)) {
		v.resend = true
		m.answered("mount", "")
	}
}

// ensureCgroup requests the pod's cgroup in its present size. Every process of the pod runs within it.
func (m *Machine) ensureCgroup() {
	if pod := m.group(); pod != m.cgroup.of {
		m.cgroup.of, m.cgroup.ready = pod, false
		m.answered("cgroup", "")
	}
	if !m.cgroup.ready {
		m.ask("cgroup", "", messages.Resources, messages.EnsurePodCgroup{UID: m.uid, Pod: m.cgroup.of})
	}
}

// prepareClaims requests the pod's ResourceClaims before a sandbox. Containers in an existing sandbox have their devices.
func (m *Machine) prepareClaims() {
	if m.lacksClaims() && m.Current() == nil {
		m.ask("prepare", "", messages.Resources, messages.PrepareClaims{UID: m.uid, Pod: m.Pod})
	}
}

// lacksClaims reports whether the pod has claims that are not prepared.
func (m *Machine) lacksClaims() bool { return podspec.HasClaims(m.Pod) && !m.claims.prepared }

// prefetch requests the images of the first containers, while sandbox and volumes are created.
func (m *Machine) prefetch() {
	if c := m.NextInit(); c != nil {
		m.ensureImage(c)
		return
	}
	for _, c := range m.Containers {
		if !c.Init && c.Spec != nil && !c.Over(m.Pod) {
			m.ensureImage(c)
		}
	}
}

// clearLost ends containers outside the current sandbox, since a lost sandbox ends its containers. Containers of an earlier round
// are ended, too: sidecars after the others, in reverse order. It reports whether none is left.
func (m *Machine) clearLost() bool {
	current := m.Current()
	cleared := true
	for _, c := range slices.Backward(m.Containers) {
		f := c.Newest()
		switch {
		case !c.Alive(): // a container that never ran is left to the collector
			continue
		case c.Earlier && (cleared || !c.Init):
			// As fast as the kubelet: without the pre-stop hook and the pod's grace period.
			cause := cmp.Or(m.rounds.Cause, "its pod was restarted")
			m.stopContainer(c, stoporder.LeastGrace, messages.Cause{Code: messages.CauseAllRestarted, Text: cause})
		case c.Earlier: // not its turn yet
		case current != nil && f.SandboxID == current.ID:
			continue
		default:
			m.stopContainer(c, m.Grace(), messages.Cause{Text: "its sandbox is gone"})
		}
		cleared = false
	}
	return cleared
}

// startSandbox requests a new sandbox, after the network of the one before is released.
func (m *Machine) startSandbox() {
	if m.Current() != nil {
		m.sandboxing.replacementReported = false
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
	if m.Wanted.NoNetwork != nil { // pods sends the desired pod again when there is a network
		return
	}
	if m.cgroup.ready && !m.lacksClaims() && m.due("sandbox", "", m.Set.Work) {
		m.sandboxing.requestedAttempt = m.Sandboxes.Next
		m.emit(work.StartSandbox{Pod: m.Pod, Attempt: m.Sandboxes.Next, Started: m.Started, CgroupParent: m.cgroup.parent})
	}
}

// newerSandbox reports whether a requested sandbox will replace the current one, which a call that timed out created late.
func (m *Machine) newerSandbox() bool {
	until, asked := m.asks[ask{"sandbox", ""}]
	return asked && m.now.Before(until) && m.Current().Attempt < m.sandboxing.requestedAttempt && !m.RunsIn(m.Current().ID)
}

// stopSpare stops empty ready sandboxes beside the current one, which a call that timed out created late. The runtime's actor
// removes stopped sandboxes.
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

// noteRounds derives the pod's round from its containers.
func (m *Machine) noteRounds() {
	if m.Pod != nil && translate.MayRestartAll(&m.Pod.Spec) && (m.live() || m.phase == Reading) && m.rounds.Note(&m.State) {
		m.beginRound()
	}
}

// restarting reports whether containers of an earlier round are being ended.
func (m *Machine) restarting() bool { return m.live() && m.rounds.Left(&m.State) }

// beginRound cancels pending starts of containers. A reading, which begins after the starts in progress, finds their containers.
func (m *Machine) beginRound() {
	m.readAgain()
	for _, c := range m.Containers {
		if !c.InRounds() {
			continue
		}
		if c.Retry = (restarts.Retry{}); c.Stage() == messages.StageStarting {
			m.answerEnd(c)
		}
	}
}
