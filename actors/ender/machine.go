package ender

import (
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/finalstatus"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// state is the progress of the pod's end.
type state string

const (
	asking     state = "asking"     // the pod is not received yet; leads to stopping
	stopping   state = "stopping"   // containers get a signal and their grace period; leads to recording
	recording  state = "recording"  // a deleted pod's final status is written to the disk; leads to removing
	removing   state = "removing"   // volumes are unmounted, sandboxes and containers removed; leads to ungrouping
	ungrouping state = "ungrouping" // the cgroup is removed; leads to over
	over       state = "over"       // nothing is left, which is reported to pods until it stops this actor
)

// edges are all transitions.
var edges = map[state]state{asking: stopping, stopping: recording, recording: removing, removing: ungrouping, ungrouping: over}

// timeout is the wait for another actor's answer before the request is repeated.
const timeout = 15 * time.Second

// retry is the back-off after failed work.
var retry = backoff.Policy{First: time.Second, Max: 30 * time.Second}

// effects.
type (
	tell struct {
		to  messages.Address
		msg any
	}
	stop   struct{ until time.Time } // all containers and sandboxes
	remove struct{}
	wake   struct{ at time.Time }
	moved  struct{ from, to state }
)

// results of work.
type (
	stopped struct{ err error }
	removed struct{ err error }
)

var errStillRuns = errors.New("the runtime says that it has stopped the pod, and it still runs")

// machine is the pure state machine of one pod's end.
type machine struct {
	uid       string
	born      time.Time
	state     state
	wanted    *messages.PodWanted
	grace     time.Duration            // of the pod's end
	until     time.Time                // end of the grace period
	asks      map[string]time.Time     // requests and work by name, and when they are repeated
	fails     int                      // consecutive failures of the present work
	failure   string                   // of the last failed work
	found     []messages.ContainerFact // newest first, as read last
	stops     bool                     // a stop is in progress
	stopAt    time.Time                // end of the last stop: an older reading does not count
	done      struct{ stopped, runtime, volumes, cgroup bool }
	published string // state and generation that were published last
	fx        []any
}

func newMachine(uid string) *machine {
	return &machine{uid: uid, state: asking, asks: map[string]time.Time{}}
}

// step handles one message, nil for the passage of time alone, and returns the effects.
func (m *machine) step(now time.Time, msg any) []any {
	m.fx = nil
	if m.born.IsZero() {
		m.born = now
	}
	m.take(now, msg)
	for m.plan(now) {
		to, ok := edges[m.state]
		if !ok {
			panic(fmt.Sprintf("ender of %s: no edge from %s", m.uid, m.state))
		}
		m.emit(moved{m.state, to})
		m.state, m.fails, m.failure = to, 0, ""
	}
	m.publish()
	m.wake(now)
	return m.fx
}

func (m *machine) emit(e any) { m.fx = append(m.fx, e) }

// due reports whether a request is due now, and schedules its repetition.
func (m *machine) due(now time.Time, what string, again time.Duration) bool {
	if at, ok := m.asks[what]; ok && now.Before(at) {
		return false
	}
	m.asks[what] = now.Add(again)
	return true
}

func (m *machine) ask(now time.Time, what string, to messages.Address, msg any) {
	if m.due(now, what, timeout) {
		m.emit(tell{to, msg})
	}
}

func (m *machine) take(now time.Time, msg any) {
	switch v := msg.(type) {
	case messages.PodWanted:
		m.takeWanted(now, v)
	case messages.PodObserved:
		m.takeFacts(now, v.Facts)
	case stopped:
		m.stops, m.stopAt = false, now
		if m.worked(now, "stop", v.err); v.err == nil {
			m.asks["stop"] = now.Add(workTimeout) // a reading decides earlier whether it is needed again
		}
		if v.err != nil { // the grace period does not run while the runtime is away
			m.until = m.asks["stop"].Add(m.grace)
		}
		delete(m.asks, "read")
	case removed:
		m.worked(now, "remove", v.err)
		m.done.runtime = v.err == nil
	case messages.VolumesUnmounted:
		m.done.volumes = m.done.volumes || v.Removed && !v.Published
	case messages.PodCgroupRemoved:
		m.done.cgroup = m.state == ungrouping
	}
}

// worked records the result of work: failed work is repeated after a back-off.
func (m *machine) worked(now time.Time, what string, err error) {
	delete(m.asks, what)
	m.failure = ""
	if err != nil {
		m.fails++
		m.failure = err.Error()
		m.asks[what] = now.Add(retry.After(m.fails, 0))
	}
}

func (m *machine) takeWanted(now time.Time, w messages.PodWanted) {
	if w.Ending == nil {
		return // from before its end
	}
	first := m.wanted == nil
	m.wanted = &w
	// The grace period counts from now: the part already granted by the pod's actor is unknown.
	grace := podspec.GracePeriod(w.Pod.Spec.TerminationGracePeriodSeconds, w.Ending.Grace)
	if until := now.Add(grace); first || until.Before(m.until) {
		m.grace, m.until = grace, until
		if !first && m.state == stopping {
			delete(m.asks, "stop") // a shorter stop starts beside the one in progress
		}
	}
}

// takeFacts handles the runtime's facts of the pod. All is stopped when a reading that began after the last stop finds nothing
// alive.
func (m *machine) takeFacts(now time.Time, f messages.PodFacts) {
	if m.state != stopping || f.ReadAt.Before(m.born) || f.ReadAt.Before(m.stopAt) {
		return
	}
	m.found = f.Containers
	alive := f.Alive()
	m.done.stopped = !alive
	m.asks["read"] = now.Add(timeout)
	if alive && !m.stops && !m.stopAt.IsZero() { // the runtime reported the stop, and something still runs
		m.worked(now, "stop", errStillRuns)
	}
}

// plan requests the work of the present state, and reports whether the state is over.
func (m *machine) plan(now time.Time) bool {
	switch m.state {
	case asking:
		if m.wanted == nil {
			m.ask(now, "wanted", messages.Pods, messages.GetDesired{UID: m.uid})
			return false
		}
		return true
	case stopping:
		m.quiet(now)
		if m.done.stopped {
			return true
		}
		if m.due(now, "stop", max(m.until.Sub(now), 0)+workTimeout) {
			m.stops = true
			m.emit(stop{m.until})
		}
		if !m.stopAt.IsZero() {
			m.ask(now, "read", messages.Runtime, messages.ReadPod{UID: m.uid})
		}
		return false
	case recording:
		// A deleted pod's status must be on disk before the runtime forgets how its containers ended.
		if m.wanted.Pod.DeletionTimestamp == nil || m.wanted.Final != nil && !m.wanted.Unkept {
			return true
		}
		m.ask(now, "record", messages.Pods, messages.PodEnded{UID: m.uid, Status: m.final(now)})
		return false
	case removing:
		m.quiet(now)
		if !m.done.volumes {
			m.ask(now, "unmount", messages.Volumes, messages.UnmountVolumes{UID: m.uid, Remove: true})
		}
		if !m.done.runtime && m.due(now, "remove", workTimeout) {
			m.emit(remove{})
		}
		return m.done.volumes && m.done.runtime
	case ungrouping:
		if !m.done.cgroup {
			m.ask(now, "ungroup", messages.Resources, messages.RemovePodCgroup{UID: m.uid})
		}
		return m.done.cgroup
	default:
		m.ask(now, "ended", messages.Pods, messages.PodEnded{UID: m.uid, Gone: true, Status: m.final(now)})
		return false
	}
}

// quiet stops the pod's probes and image pulls. It is repeated, since there is no answer.
func (m *machine) quiet(now time.Time) {
	generation := uint64(max(now.UnixNano(), 0))
	m.ask(now, "unwatch", messages.Prober, messages.WatchProbes{UID: m.uid, Pod: m.wanted.Pod, Generation: generation})
	m.ask(now, "forget", messages.Images, messages.ForgetImages{UID: m.uid})
}

// ips returns the pod's addresses, as last reported.
func (m *machine) ips() (out []string) {
	if m.wanted.Last != nil {
		for _, ip := range m.wanted.Last.PodIPs {
			out = append(out, ip.IP)
		}
	}
	return out
}

// final returns the pod's last known status, with the ends of its containers as the runtime reports them; nil: nothing is known.
func (m *machine) final(now time.Time) *v1.PodStatus {
	if m.wanted.Final != nil {
		return m.wanted.Final
	}
	if m.wanted.Last == nil {
		return nil
	}
	s := m.wanted.Last.DeepCopy()
	finalstatus.Learn(s, m.found)
	finalstatus.Settle(&m.wanted.Pod.Spec, s, now)
	return s
}

// publish reports the progress to pods, if it changed.
func (m *machine) publish() {
	if m.wanted == nil {
		return
	}
	now := fmt.Sprint(m.state, m.wanted.Generation, m.failure)
	if now == m.published {
		return
	}
	m.published = now
	msg := messages.PodStatusChanged{UID: m.uid, Generation: m.wanted.Generation, Phase: "terminating", Status: m.wanted.Last}
	if m.state != stopping {
		msg.Phase = "cleaning"
	}
	if m.failure != "" {
		msg.Waiting = &messages.Reason{Code: messages.EventFailedKillPod, Message: m.failure}
	}
	m.emit(tell{messages.Pods, msg})
}

// wake schedules the next due request.
func (m *machine) wake(now time.Time) {
	var at time.Time
	for _, t := range m.asks {
		if t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if !at.IsZero() {
		m.emit(wake{at})
	}
}
