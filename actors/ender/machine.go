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
	"github.com/playlet-dev/playlet/supervisors/questions"
)

// state is the progress of the pod's end.
type state string

const (
	asking     state = "asking"     // the pod is not received yet; leads to stopping
	stopping   state = "stopping"   // containers get a signal and their grace period; leads to releasing
	releasing  state = "releasing"  // ResourceClaims are unprepared; leads to recording
	recording  state = "recording"  // a deleted pod's final status is written to the disk; leads to removing
	removing   state = "removing"   // volumes are unmounted, sandboxes and containers removed; leads to ungrouping
	ungrouping state = "ungrouping" // the cgroup is removed; leads to over
	over       state = "over"       // nothing is left, which is reported to pods until it stops this actor
)

// edges are all transitions.
var edges = map[state]state{asking: stopping, stopping: releasing, releasing: recording, recording: removing,
	removing: ungrouping, ungrouping: over}

// timeout is the wait for another actor's answer before the request is repeated.
const timeout = 15 * time.Second

// retry is the back-off after failed work.
var retry = backoff.Policy{First: time.Second, Max: 30 * time.Second}

// Keys of the open questions. Work is a question as well.
var (
	desiredKey  = questions.Key{Name: "desired"}
	stopKey     = questions.Key{Name: "stop"}
	readKey     = questions.Key{Name: "read"}
	claimsKey   = questions.Key{Name: "release claims"}
	recordKey   = questions.Key{Name: "record"}
	unwatchKey  = questions.Key{Name: "unwatch"}
	imagesKey   = questions.Key{Name: "forget images"}
	unmountKey  = questions.Key{Name: "unmount"}
	removeKey   = questions.Key{Name: "remove"}
	cgroupKey   = questions.Key{Name: "remove cgroup"}
	finishedKey = questions.Key{Name: "finished"}
)

// effects.
type (
	tell struct {
		to  messages.Address
		msg any
	}
	stop struct { // all containers and sandboxes
		until time.Time
		grace time.Duration // identifies the stop among those of this end
	}
	remove     struct{}
	wake       struct{ at time.Time }
	transition struct{ from, to state }
)

// results of work.
type (
	stopResult struct {
		grace time.Duration // of its stop
		err   error
	}
	removeResult struct{ err error }
)

var errStillRuns = errors.New("the runtime says that it has stopped the pod, and it still runs")

// machine is the pure state machine of one pod's end.
type machine struct {
	uid        string
	born       time.Time
	state      state
	desired    *messages.PodWanted
	grace      time.Duration            // of the pod's end
	until      time.Time                // end of the grace period
	set        []questions.Question     // the open questions of the present state
	questions  questions.Tracker        // the sent questions
	failure    string                   // of the last failed work
	containers []messages.ContainerFact // newest first, as read last
	stopAt     time.Time                // end of the last stop: an older reading does not count
	done       struct{ stopped, claims, runtime, volumes, cgroup bool }
	published  string // state and generation that were published last
	fx         []any
}

func newMachine(uid string) *machine {
	return &machine{uid: uid, state: asking}
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
		m.emit(transition{m.state, to})
		m.state, m.failure, m.set = to, "", nil
	}
	m.publish()
	m.askOpen(now)
	return m.fx
}

func (m *machine) emit(e any) { m.fx = append(m.fx, e) }

// askOpen sends the open questions that are due, and schedules the next step.
func (m *machine) askOpen(now time.Time) {
	for _, s := range m.questions.Ask(now, m.set) {
		if s.To == messages.Node {
			m.emit(s.Message) // work
			continue
		}
		m.emit(tell{s.To, s.Message})
	}
	m.set = nil
	if at := m.questions.Next(); !at.IsZero() {
		m.emit(wake{at})
	}
}

// ask adds a request to another actor to the open questions.
func (m *machine) ask(key questions.Key, to messages.Address, msg any) {
	m.set = append(m.set, questions.Question{Key: key, To: to, Message: msg, Class: questions.Class{Timeout: timeout}})
}

func (m *machine) take(now time.Time, msg any) {
	switch v := msg.(type) {
	case messages.PodWanted:
		m.takeWanted(now, v)
	case messages.PodObserved:
		m.takeFacts(now, v.Facts)
	case messages.ServiceStarted:
		m.questions.Restarted(now, v.Service)
	case stopResult:
		if m.questions.Answered(now, stopKey, v.grace) {
			m.takeStopped(now, v.err)
		}
	case removeResult:
		if m.questions.Answered(now, removeKey, nil) {
			m.done.runtime = v.err == nil
			m.takeResult(now, removeKey, v.err)
		}
	case messages.VolumesUnmounted:
		m.done.volumes = m.done.volumes || v.Removed && !v.Published
	case messages.ClaimsReleased:
		m.done.claims = m.done.claims || m.questions.Answered(now, claimsKey, nil)
	case messages.ClaimsFailed:
		if m.state == releasing && v.Release {
			m.failure = v.Reason.Message
		}
	case messages.PodCgroupRemoved:
		m.done.cgroup = m.done.cgroup || m.questions.Answered(now, cgroupKey, nil)
	}
}

// takeStopped handles the result of a stop. A reading decides about the next one.
func (m *machine) takeStopped(now time.Time, err error) {
	m.stopAt = now
	if next := m.takeResult(now, stopKey, err); err != nil { // the grace period does not run while the runtime is away
		m.until = next.Add(m.grace)
	}
}

// takeResult records the result of work. It returns the time of the next try of failed work.
func (m *machine) takeResult(now time.Time, key questions.Key, err error) time.Time {
	if err == nil {
		m.failure = ""
		return now
	}
	m.failure = err.Error()
	return m.questions.Failed(now, key)
}

func (m *machine) takeWanted(now time.Time, w messages.PodWanted) {
	if w.Ending == nil {
		return // from before its end
	}
	first := m.desired == nil
	m.desired = &w
	// The grace period counts from now: the part already granted by the pod's actor is unknown.
	grace := podspec.GracePeriod(w.Pod.Spec.TerminationGracePeriodSeconds, w.Ending.Grace)
	if until := now.Add(grace); first || until.Before(m.until) {
		m.grace, m.until = grace, until // a shorter stop starts beside the one in progress
	}
}

// takeFacts handles the runtime's facts of the pod. All is stopped when a reading that began after the last stop finds nothing
// alive.
func (m *machine) takeFacts(now time.Time, f messages.PodFacts) {
	if m.state != stopping || f.ReadAt.Before(m.born) || f.ReadAt.Before(m.stopAt) {
		return
	}
	m.containers = f.Containers
	alive := f.Alive()
	m.done.stopped = !alive
	m.questions.Answered(now, readKey, nil)
	if ended := !m.stopAt.IsZero() && !m.questions.Pending(stopKey); ended && alive && m.failure == "" { // it failed after all
		m.takeResult(now, stopKey, errStillRuns)
	}
}

// plan sets the open questions of the present state, and reports whether the state is over.
func (m *machine) plan(now time.Time) bool {
	switch m.state {
	case asking:
		m.ask(desiredKey, messages.Pods, messages.GetDesired{UID: m.uid})
		return m.desired != nil
	case stopping:
		m.quiet(now)
		m.set = append(m.set, questions.Question{Key: stopKey, Message: stop{m.until, m.grace}, Version: m.grace,
			Class: questions.Class{Timeout: max(m.until.Sub(now), 0) + workTimeout, Renew: workTimeout, Retry: retry}})
		if !m.stopAt.IsZero() {
			m.set = append(m.set, questions.Question{Key: readKey, To: messages.Runtime, Message: messages.ReadPod{UID: m.uid},
				Version: m.stopAt, Class: questions.Class{Timeout: timeout, Renew: timeout}})
		}
		return m.done.stopped
	case releasing:
		if m.done.claims || !podspec.HasClaims(m.desired.Pod) {
			return true
		}
		m.ask(claimsKey, messages.Resources, messages.ReleaseClaims{UID: m.uid})
		return false
	case recording:
		m.quiet(now)
		// The status of a deleted or failed pod must be on disk before the runtime forgets how its containers ended.
		if m.desired.Pod.DeletionTimestamp == nil && m.desired.Fail == nil || m.desired.Final != nil && !m.desired.Unkept {
			return true
		}
		m.ask(recordKey, messages.Pods, messages.PodEnded{UID: m.uid, Status: m.final(now)})
		return false
	case removing:
		m.quiet(now)
		if !m.done.volumes {
			m.ask(unmountKey, messages.Volumes, messages.UnmountVolumes{UID: m.uid, Remove: true})
		}
		if !m.done.runtime {
			m.set = append(m.set, questions.Question{Key: removeKey, Message: remove{},
				Class: questions.Class{Timeout: workTimeout, Retry: retry}})
		}
		return m.done.volumes && m.done.runtime
	case ungrouping:
		m.ask(cgroupKey, messages.Resources, messages.RemovePodCgroup{UID: m.uid})
		return m.done.cgroup
	default:
		m.ask(finishedKey, messages.Pods, messages.PodEnded{UID: m.uid, Gone: true, Status: m.final(now)})
		return false
	}
}

// quiet stops the pod's probes and image pulls. It is repeated, since there is no answer.
func (m *machine) quiet(now time.Time) {
	generation := uint64(max(now.UnixNano(), 0))
	m.ask(unwatchKey, messages.Prober, messages.WatchProbes{UID: m.uid, Pod: m.desired.Pod, Generation: generation})
	m.ask(imagesKey, messages.Images, messages.ForgetImages{UID: m.uid})
}

// ips returns the pod's addresses, as last reported.
func (m *machine) ips() (out []string) {
	if m.desired.Last != nil {
		for _, ip := range m.desired.Last.PodIPs {
			out = append(out, ip.IP)
		}
	}
	return out
}

// final returns the pod's last known status, with the ends of its containers as the runtime reports them; nil: nothing is known.
func (m *machine) final(now time.Time) *v1.PodStatus {
	if m.desired.Final != nil {
		return m.desired.Final
	}
	if m.desired.Last == nil {
		return nil
	}
	s := m.desired.Last.DeepCopy()
	finalstatus.Learn(s, m.containers)
	finalstatus.Settle(&m.desired.Pod.Spec, s, now)
	return s
}

// publish reports the progress to pods, if it changed.
func (m *machine) publish() {
	if m.desired == nil {
		return
	}
	now := fmt.Sprint(m.state, m.desired.Generation, m.failure)
	if now == m.published {
		return
	}
	m.published = now
	msg := messages.PodStatusChanged{UID: m.uid, Generation: m.desired.Generation, Phase: "terminating", Status: m.desired.Last}
	if m.state != stopping && m.state != releasing {
		msg.Phase = "cleaning"
	}
	if m.failure != "" {
		msg.Waiting = &messages.Reason{Code: messages.EventFailedKillPod, Message: m.failure}
	}
	m.emit(tell{messages.Pods, msg})
}
