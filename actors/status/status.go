// Package status is the actor that writes to the API server: the statuses of this node's pods, the removal of pods that have
// ended, and the mirror pods of static pods.
//
// Each pod has one line of work. It holds the newest desired status and the object observed last. The next write follows from
// these two alone (evaluate.go). Nothing is written before both are known, and a status that changes nothing is not written.
// The object that a write returns replaces the observed one until the watch has caught up.
//
// The difference between desired and observed status is one strategic merge patch that carries the UID. Eight writers work in
// parallel: deletions first, then changes of readiness, then the oldest. One write in ten is the one that waits longest. A
// change of a pod that is still pending, or deleted and not over, waits a second for the next one, and longer in a burst. A pod
// that ends is written as unready no later than a second after its sandbox was stopped.
// After a conflict or 404 with another UID the pod is dropped. Other failures are retried with back-off. A pod is deleted
// after its final status was written, with the UID as precondition and zero grace.
//
// Mirror pods: each desired static pod has one, recreated or removed by the UID in kubernetes.io/config.mirror. None is
// removed before every source has reported. The API server admits none that refers to other objects. Such a static pod runs,
// is not shown there, and health reports it.
package status

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Options configures the actor.
type Options struct {
	// Client is towards the API server. Required.
	Client kubernetes.Interface
	// Operations is the process's table; writes live there under "status/". Required.
	Operations *cri.Operations
	// NodeName is the name of this node's object.
	NodeName string
	// State, unless nil, receives the failed writes.
	State *State
	// Random gives numbers in [0,1) for jitter; nil is math/rand's.
	Random func() float64
}

// New is the constructor of the actor.
func New(opts Options) supervisors.Constructor {
	if opts.Random == nil {
		opts.Random = rand.Float64
	}
	opts.State = cmp.Or(opts.State, &State{})
	return func(string) supervisors.Actor {
		return &actor{opts: opts, machine: newMachine(opts.NodeName, opts.Random), logged: map[string]string{}}
	}
}

type actor struct {
	opts    Options
	machine *machine
	timer   supervisors.Timer
	next    time.Time         // when timer fires
	logged  map[string]string // troubles already logged, by pod
}

type (
	writeResult struct{ answer answer }
	timerFired  struct{}
)

// PodUID implements messages.Subject.
func (m writeResult) PodUID() string { return m.answer.job.pod }

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		ctx.Tell(messages.Registration, messages.GetNode{})
		a.opts.State.store(nil)
		return
	case messages.APIPodsObserved:
		a.machine.observe(m)
		metrics.MirrorPods.Set(mirrorPods(m.Pods))
	case messages.PodStatusWanted:
		a.machine.setDesired(m)
	case messages.PodStatusesWanted:
		a.machine.replaceDesired(m)
	case messages.NodeObserved:
		a.machine.register(m.Node)
	case writeResult:
		if l := a.machine.lines[m.answer.job.key]; l != nil && m.answer.outcome == done && m.answer.job.verb == patchStatus {
			metrics.StatusTime.WithLabelValues().Observe(ctx.Now().Sub(l.since).Seconds())
		}
		a.machine.handleResult(ctx.Now(), m.answer)
		a.log(ctx, m.answer)
	case timerFired:
		a.timer, a.next = nil, time.Time{}
	default:
		ctx.Unhandled(msg)
		return
	}
	a.advance(ctx)
}

func mirrorPods(pods []*v1.Pod) (n float64) {
	for _, p := range pods {
		if isMirror(p) {
			n++
		}
	}
	return n
}

// advance starts the writes that may start now, and sets the timer for the others.
func (a *actor) advance(ctx supervisors.Context) {
	jobs, again := a.machine.take(ctx.Now())
	for _, j := range jobs {
		ctx.Do(supervisors.Work{
			Name: string(j.verb) + " " + j.namespace + "/" + j.name, Pod: j.pod, Timeout: writeTimeout + 5*time.Second,
			Run: func(c context.Context) any { return writeResult{write(c, a.opts.Client, a.opts.Operations, j)} },
		})
	}
	switch {
	case again.IsZero():
	case a.timer != nil && !again.Before(a.next):
	default:
		supervisors.Cancel(a.timer)
		a.next = again
		a.timer = ctx.After(again.Sub(ctx.Now()), timerFired{})
	}
	a.opts.State.store(a.machine.troubles())
	a.opts.State.unwritten.Store(a.machine.unwritten())
	a.forget()
}

// allPods is the key in logged of the trouble that all pods share.
const allPods = ""

// forget drops the logged troubles of pods that are gone.
func (a *actor) forget() {
	for key := range a.logged {
		if key != allPods && a.machine.lines[key] == nil {
			delete(a.logged, key)
		}
	}
}

// log records writes of mirror pods and deletions, and each trouble once when it begins.
func (a *actor) log(ctx supervisors.Context, w answer) {
	log, mirror := ctx.Log(), w.job.namespace+"/"+w.job.name
	if w.job.pod != "" {
		log = log.With("pod", w.job.pod)
	}
	switch {
	case w.outcome != done:
	case w.job.verb == createMirror:
		log.Info("created a mirror pod", "mirror", mirror)
	case w.job.verb == deleteMirror:
		log.Info("removed a mirror pod", "mirror", mirror, "reason", w.job.why)
	case w.job.verb == deletePod:
		log.Info("removed the finished pod from the API server")
	}
	l := a.machine.lines[w.job.key]
	switch {
	case l == nil || l.failure == nil:
		delete(a.logged, w.job.key)
	case l.failure.quiet || l.failure.outcome == unavailable:
	case a.logged[w.job.key] != l.failure.what:
		a.logged[w.job.key] = l.failure.what
		log.Warn(l.failure.what, "name", mirror)
	}
	a.logGate(ctx)
}

// logGate logs when the API server stops accepting writes, and when it accepts them again.
func (a *actor) logGate(ctx supervisors.Context) {
	_, logged := a.logged[allPods]
	switch failing := a.machine.server.failures > 0; {
	case failing && !logged:
		a.logged[allPods] = "logged"
		ctx.Log().Warn("writing pod statuses failed; will retry, and pods keep running", "error",
			apiclient.Explain(a.machine.server.err, a.opts.NodeName))
	case !failing && logged:
		delete(a.logged, allPods)
		ctx.Log().Info("pod statuses can be written again")
	}
}

// inspection describes the actor's state.
type inspection struct {
	Known    bool      `json:"known"` // the API server's pods were listed
	Heard    bool      `json:"heard"` // every source has reported
	Lines    int       `json:"lines"`
	Waiting  []string  `json:"waiting,omitempty"` // to be written, or being written
	Troubles []Trouble `json:"troubles,omitempty"`
}

// Inspect implements supervisors.Inspector.
func (a *actor) Inspect() any {
	out := inspection{Known: a.machine.seen, Heard: a.machine.sourcesSynced, Lines: len(a.machine.lines),
		Troubles: a.machine.troubles()}
	for _, l := range a.machine.lines {
		if l.next != nil {
			out.Waiting = append(out.Waiting, string(l.next.verb)+" "+l.namespace+"/"+l.name)
		}
	}
	slices.Sort(out.Waiting)
	return out
}
