package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/actors/pod/rounds"
	"github.com/playlet-dev/playlet/actors/pod/settings"
	"github.com/playlet-dev/playlet/messages"
)

// Machine is the pure state machine of one pod: messages in, effects out; no clock, no I/O.
type Machine struct {
	uid   string
	phase Phase

	known.State
	ending *messages.Ending
	born   time.Time // of this machine; earlier readings may belong to an earlier life of the actor
	read   bool      // the CRI was read since the start
	readAt time.Time
	ends   time.Time     // end of the grace period that all containers share
	away   time.Duration // duration of the runtime's absence at the last reading

	volumes    volumes
	probing    probeState
	cgroup     cgroup
	claims     claims
	sandboxing sandboxState
	preparing  time.Time // when the phase began last
	rounds     rounds.Rounds

	resizing resizeProgress
	asks     map[ask]time.Time
	// settle is set until a reading shows the starts that were in progress when the pod began to end.
	settle  time.Time
	cleaned cleanup

	reported   messages.PodStatusChanged // the last report,
	reportedAt time.Time                 // its time,
	waited     messages.Reason           // and its reason to wait, without the time of a retry
	now        time.Time                 // of the present step
	fx         []Effect
}

// cleanup is the progress of the pod's removal.
type cleanup struct {
	volumes bool
	// published is set while a CSI driver still has volumes of the pod: the reason for it.
	published *messages.Reason
	cgroup    bool
	released  bool // reported to pods
	runtime   bool
	retry     restarts.Retry
}

// volumes is the state of the pod's volumes.
type volumes struct {
	mounted bool
	// resend is set when volumes may have lost the pod, after a restart or a period without messages. The request is repeated,
	// so that changes in the volumes of a running pod are still written.
	resend     bool
	answeredAt time.Time
	paths      map[string]string
	mounts     map[string]bool // see messages.VolumesMounted
	groups     []int64         // the same
	reason     *messages.Reason
	failed     map[string]messages.Reason // by volume, as recorded in Events
}

// cgroup is the state of the pod's cgroup.
type cgroup struct {
	ready  bool
	of     *v1.Pod // in the last request
	has    *v1.Pod // at the last success
	parent string  // in the runtime's format
	reason *messages.Reason
}

// claims is the state of the pod's ResourceClaims.
type claims struct {
	prepared bool // since the start of this actor
	released bool
	reason   *messages.Reason
}

// ask is a request or a piece of work with a pending answer.
type ask struct {
	what string
	of   string // container, sandbox; empty for the pod
}

// NewMachine returns the machine of a pod with nothing known but its UID.
func NewMachine(uid string, set settings.Settings) *Machine {
	return &Machine{uid: uid, State: known.State{Set: set}, phase: Reading, asks: map[ask]time.Time{}}
}

// Phase returns the current phase.
func (m *Machine) Phase() Phase { return m.phase }

// Step handles one message and returns its effects. msg is nil when only time has passed.
func (m *Machine) Step(now time.Time, msg any) []Effect {
	m.fx, m.now = nil, now
	if m.born.IsZero() {
		m.born = now
	}
	if msg != nil {
		m.take(msg)
		m.NoteIPs()
		m.noteRounds()
		m.noteEnds()
	}
	for {
		next := plans[m.phase](m)
		if next == m.phase {
			break
		}
		m.enter(next)
	}
	m.updateContainers()
	m.watch()
	m.publish()
	m.wake()
	return m.fx
}

func (m *Machine) emit(e Effect) { m.fx = append(m.fx, e) }

// due reports whether a request must be sent now: it was never sent, or its answer is overdue. It records the request as sent.
func (m *Machine) due(what, of string, timeout time.Duration) bool {
	k := ask{what, of}
	if until, ok := m.asks[k]; ok && m.now.Before(until) {
		return false
	}
	m.asks[k] = m.now.Add(timeout)
	return true
}

// ask sends a request to another actor, unless its answer is pending.
func (m *Machine) ask(what, of string, to messages.Address, question any) {
	if m.due(what, of, m.Set.AnswerTimeout) {
		m.emit(Tell{to, question})
	}
}

func (m *Machine) readPod() { m.ask("read", "", messages.Runtime, messages.ReadPod{UID: m.uid}) }

func (m *Machine) asking(what, of string) bool {
	_, ok := m.asks[ask{what, of}]
	return ok
}

func (m *Machine) answered(what, of string) { delete(m.asks, ask{what, of}) }

// wake schedules the next step for the earliest deadline. Deadlines that have passed were handled in this step.
func (m *Machine) wake() {
	var at time.Time
	earlier := func(t time.Time) {
		if t.After(m.now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for _, t := range m.asks {
		earlier(t)
	}
	if m.live() {
		for _, c := range m.Containers {
			if c.Stage() == messages.StageIdle {
				_, at := m.starts().Blocker(c)
				earlier(at)
			}
		}
		if t, ok := m.Deadline(); ok {
			earlier(t)
		}
		earlier(m.resizing.retry.At)
	}
	if m.phase == Preparing {
		earlier(m.preparing.Add(slowPreparation))
	}
	if m.phase == Terminating {
		earlier(m.ends)
	}
	earlier(m.sandboxing.retry.At)
	earlier(m.cleaned.retry.At)
	if !at.IsZero() {
		m.emit(Wake{At: at})
	}
}

// live reports whether the pod should run in this phase.
func (m *Machine) live() bool {
	return m.phase == Preparing || m.phase == Initializing || m.phase == Running
}
