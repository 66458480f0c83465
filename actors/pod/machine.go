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
	born   time.Time // of this machine; what was read before it may belong to an earlier life of the actor
	read   bool      // the CRI's word has been heard since the start
	readAt time.Time
	ends   time.Time     // when the grace period is over that all of the pod's containers have together
	away   time.Duration // how long the runtime had been away at the last reading

	volumes    volumes
	probing    probing
	cgroup     cgroup
	sandboxing sandboxing
	rounds     rounds.Rounds

	resizing resizing
	asks     map[ask]time.Time
	// settle is set while it must be read again what starts were under way when the pod began to end.
	settle  time.Time
	cleaned cleaned

	reported   messages.PodStatusChanged // last,
	reportedAt time.Time                 // and when
	waited     messages.Reason           // what reported waits for, without the time of a retry
	now        time.Time                 // of the present step
	fx         []Effect
}

// cleaned is what has been undone of the pod.
type cleaned struct {
	volumes bool
	// published is why a CSI driver has volumes of the pod still; empty: it has none.
	published string
	runtime   bool
	cgroup    bool
	retry     restarts.Retry
}

// volumes is what the pod knows of its volumes.
type volumes struct {
	mounted bool
	// forgotten says that volumes may know nothing of the pod, since it was restarted, or was not heard for a while: it is
	// asked again, so that what changes in the volumes of a running pod goes on being written.
	forgotten bool
	heardAt   time.Time
	paths     map[string]string
	reason    *messages.Reason
	failed    map[string]messages.Reason // by volume, as recorded in Events
}

// cgroup is what the pod knows of its cgroup.
type cgroup struct {
	ready  bool
	of     *v1.Pod // as it was asked for last
	has    *v1.Pod // as it was made last
	parent string  // as the runtime takes it
	reason *messages.Reason
}

// ask is a question or a piece of work whose answer is awaited.
type ask struct {
	what string
	of   string // container, sandbox; empty for the pod
}

// NewMachine is the machine of a pod of which nothing is known but its UID.
func NewMachine(uid string, set settings.Settings) *Machine {
	return &Machine{uid: uid, State: known.State{Set: set}, phase: Reading, asks: map[ask]time.Time{}}
}

// Phase is the current phase.
func (m *Machine) Phase() Phase { return m.phase }

// Step takes one message and returns what is to be done about it. msg is nil when only time has passed.
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
	m.watch()
	m.publish()
	m.wake()
	return m.fx
}

func (m *Machine) emit(e Effect) { m.fx = append(m.fx, e) }

// due reports whether a question must be put now: it was never put, or its answer is overdue. It notes that it is put.
func (m *Machine) due(what, of string, timeout time.Duration) bool {
	k := ask{what, of}
	if until, ok := m.asks[k]; ok && m.now.Before(until) {
		return false
	}
	m.asks[k] = m.now.Add(timeout)
	return true
}

// ask puts a question to another actor, unless its answer is still awaited.
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

// wake plans the next look at the earliest thing that falls due. What is due now has just been dealt with.
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
				_, at := m.starts().Lacks(c)
				earlier(at)
			}
		}
		if t, ok := m.Deadline(); ok {
			earlier(t)
		}
		earlier(m.resizing.retry.At)
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

// live is true in the phases in which the pod is meant to run.
func (m *Machine) live() bool {
	return m.phase == Preparing || m.phase == Initializing || m.phase == Running
}
