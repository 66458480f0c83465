package prober

import (
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/messages"
)

// reportAgain is how long the pod has to confirm a result, before it is reported again.
const reportAgain = 10 * time.Second

// state is the pure core: desired probes and outcomes in, effects out; no clock, no I/O.
type state struct {
	pods        map[string]*podState
	queues      [pools][lanes]dues // probes that wait for their time, or for a worker
	busy        [pools][lanes]int
	limits      [pools]int
	unconfirmed dues // pods that have not confirmed the last report
	sequence    uint64
	random      func() float64 // in [0,1)
	saves       []*podState    // wait to be written
	saving      int
	cut         []*probe // ended in the middle of a run, which the actor is to cut off
}

// podState is the prober's state of one pod.
type podState struct {
	uid        string
	desired    messages.WatchProbes
	loaded     bool
	containers map[string]*containerState
	saved      record // as it lies on the disk, or is on its way there
	saving     bool
	queued     bool     // for the disk
	again      dueEntry // in unconfirmed
	// running counts the pod's runs in progress per pool; held are its probes that wait for the end of one of these.
	running [pools]int
	held    [pools][]*dueEntry
}

// containerState is the prober's state of one attempt of a container.
type containerState struct {
	spec      *v1.Container
	id        string
	startedAt time.Time
	results   messages.ProbeResults
	confirmed messages.ProbeResults // as the pod last confirmed
	probes    map[messages.ProbeKind]*probe
	failing   map[messages.ProbeKind]messages.FailingProbe
}

// probe is one probe that runs.
type probe struct {
	pod       *podState
	container *containerState
	kind      messages.ProbeKind
	spec      *v1.Probe
	pool      pool
	due       dueEntry
	lane      lane // of its run in progress
	running   bool
	ended     bool // ended: later results are ignored
	timedOut  bool // its latest run used up its whole time
	unknown   bool // the result of its latest run is unknown
	last      result
	inRow     int32 // so many of the same outcome
}

// effect is something for the actor to carry out.
type effect any

type (
	// run starts one run of a probe; runResult brings its outcome.
	run struct {
		probe *probe
		job   job
		due   time.Time
	}
	// report sends the results of a pod to its actor.
	report struct{ results messages.ProbesObserved }
	// load reads a pod's record from disk; loadResult has the result.
	load struct{ uid string }
	// save writes the record; saveResult reports the attempt.
	save struct {
		uid string
		rec record
	}
	// logNote is for the log.
	logNote struct {
		uid, container, message string
		kind                    messages.ProbeKind
		inRow                   int32
		result                  result
		changed                 bool
	}
	// podEvent is for an event.
	podEvent struct {
		pod                        *v1.Pod
		container, reason, message string
	}
)

func newState(limits [pools]int, random func() float64) *state {
	return &state{pods: map[string]*podState{}, limits: limits, random: random}
}

// watch sets the desired probes of a pod. The first message of a pod is answered after its record has been read.
func (s *state) watch(now time.Time, m messages.WatchProbes) []effect {
	p := s.pods[m.UID]
	if p == nil {
		if len(m.Containers) == 0 {
			return []effect{report{messages.ProbesObserved{UID: m.UID, Generation: m.Generation}}}
		}
		p = &podState{uid: m.UID, desired: m, containers: map[string]*containerState{}}
		p.again.pod = p
		s.pods[m.UID] = p
		return []effect{load{m.UID}}
	}
	p.desired = m
	if !p.loaded {
		return nil
	}
	return s.apply(now, p)
}

// read handles a pod's record from disk.
func (s *state) read(now time.Time, uid string, rec record) []effect {
	p := s.pods[uid]
	if p == nil || p.loaded {
		return nil
	}
	p.loaded, p.saved = true, rec
	return s.apply(now, p)
}

// apply starts and ends probes as desired, and answers the pod.
func (s *state) apply(now time.Time, p *podState) []effect {
	wanted := map[string]bool{}
	for i := range p.desired.Containers {
		w := &p.desired.Containers[i]
		wanted[w.Spec.Name] = true
		s.applyContainer(now, p, w)
	}
	for name, c := range p.containers {
		if !wanted[name] {
			s.drop(c)
			delete(p.containers, name)
		}
	}
	if len(p.containers) == 0 && p.saving {
		return nil // its folder is about to be removed: the answer waits until nothing is written there
	}
	if len(p.containers) == 0 {
		return s.forget(p)
	}
	return append([]effect{s.report(now, p)}, append(s.keep(p), s.tick(now)...)...)
}

func (s *state) forget(p *podState) []effect {
	p.again.take()
	delete(s.pods, p.uid)
	s.saves = slices.DeleteFunc(s.saves, func(o *podState) bool { return o == p })
	return []effect{report{messages.ProbesObserved{UID: p.uid, Generation: p.desired.Generation}}}
}

// applyContainer applies the desired probes of one container. The pod's results are newer than those on disk, and older than
// this prober's own.
func (s *state) applyContainer(now time.Time, p *podState, w *messages.WatchedContainer) {
	c, isNew := p.containers[w.Spec.Name], false
	if c != nil && c.id != w.ID {
		s.drop(c)
		c = nil
	}
	if c == nil {
		c, isNew = &containerState{id: w.ID, probes: map[messages.ProbeKind]*probe{},
			failing: map[messages.ProbeKind]messages.FailingProbe{}}, true
		if was := p.saved.Containers[w.Spec.Name]; was.ID == w.ID {
			c.results = was.Results
		}
		c.results.Learn(w.Known)
		p.containers[w.Spec.Name] = c
	}
	results := w.Known
	results.Learn(c.results)
	c.spec, c.startedAt, c.confirmed, c.results = w.Spec, w.StartedAt, w.Known, results
	for _, kind := range messages.ProbeKinds {
		spec := messages.Probe(w.Spec, kind)
		if spec == nil || !slices.Contains(w.Run, kind) || finished(kind, *c.results.Of(kind)) {
			s.end(c, kind)
			continue
		}
		if is := c.probes[kind]; is != nil {
			if equality.Semantic.DeepEqual(is.spec, spec) {
				continue
			}
			s.end(c, kind)
		}
		n := &probe{pod: p, container: c, kind: kind, spec: spec, pool: poolOf(spec)}
		n.due.probe = n
		c.probes[kind] = n
		s.enqueue(n, s.firstRun(now, n, isNew))
	}
}

// finished reports whether a probe needs no more runs for this attempt: the container has started, or is to end.
func finished(kind messages.ProbeKind, r messages.ProbeResult) bool {
	switch kind {
	case messages.Startup:
		return r != ""
	case messages.Liveness:
		return r == messages.ProbeFailed
	case messages.Readiness:
	}
	return false
}

func (s *state) drop(c *containerState) {
	for _, kind := range messages.ProbeKinds {
		s.end(c, kind)
	}
}

// end ends one probe. A run in progress is cut off, and its result is ignored.
func (s *state) end(c *containerState, kind messages.ProbeKind) {
	if p := c.probes[kind]; p != nil {
		p.ended = true
		if p.running {
			s.cut = append(s.cut, p)
		}
		p.due.take()
		delete(c.probes, kind)
	}
}

// count applies the thresholds to one outcome. An unknown result does not count.
func (s *state) count(now time.Time, p *probe, o outcome) []effect {
	was := p.unknown
	p.unknown = false
	out := p.news(o, was)
	if o.result == warning {
		o.result = success
	}
	if o.result == unknown {
		p.unknown = true
		return append(out, logNote{
			uid: p.pod.uid, container: p.container.spec.Name, kind: p.kind, message: o.message, result: unknown, changed: !was,
		})
	}
	if p.last != o.result {
		p.last, p.inRow = o.result, 0
	}
	p.inRow = min(p.inRow, 1<<30) + 1
	worse := p.fails(now, o)
	observed, threshold := messages.ProbeSucceeded, max(p.spec.SuccessThreshold, 1)
	if o.result == failure {
		observed, threshold = messages.ProbeFailed, p.spec.FailureThreshold
		if threshold <= 0 {
			threshold = 3
		}
	}
	is := p.container.results.Of(p.kind)
	changed := p.inRow >= threshold && *is != observed
	if changed || (o.result == failure && p.inRow == 1) {
		out = append(out, logNote{p.pod.uid, p.container.spec.Name, o.message, p.kind, p.inRow, o.result, changed})
	}
	if !changed && worse && *is != messages.ProbeSucceeded {
		out = append(out, s.report(now, p.pod))
	}
	if !changed {
		return out
	}
	*is = observed
	if finished(p.kind, observed) {
		s.end(p.container, p.kind)
	}
	return append(append(out, s.report(now, p.pod)), s.keep(p.pod)...)
}

// fails records the failure of a probe, or its end, and returns whether it has changed.
func (p *probe) fails(now time.Time, o outcome) bool {
	was, failed := p.container.failing[p.kind]
	if o.result != failure {
		delete(p.container.failing, p.kind)
		return failed
	}
	is := messages.FailingProbe{Kind: p.kind, Said: p.cleanMessage(o), Since: was.Since}
	if !failed {
		is.Since = now
	}
	p.container.failing[p.kind] = is
	return is != was
}

// cleanMessage returns the outcome's message with the container's name in place of its ID, so that attempts share one Event.
func (p *probe) cleanMessage(o outcome) string {
	return strings.ReplaceAll(o.message, p.container.id, p.container.spec.Name)
}

// news returns the Events for one run: one for each failure, as in the kubelet, and one for the first run that could not be
// carried out.
func (p *probe) news(o outcome, wasBlind bool) []effect {
	if o.result == success || (o.result == unknown && wasBlind) {
		return nil
	}
	n := podEvent{pod: p.pod.desired.Pod, container: p.container.spec.Name, reason: messages.EventUnhealthy}
	kind := strings.ToUpper(string(p.kind)[:1]) + string(p.kind)[1:]
	said := p.cleanMessage(o)
	switch o.result {
	case failure:
		n.message = explain.EventOf(kind+" probe failed: "+said, n.pod, messages.Reason{Code: messages.ReasonUnhealthy,
			Container: n.container, Probe: p.kind, Cause: messages.Cause{Text: said}})
	case warning:
		n.reason, n.message = messages.EventProbeWarning, kind+" probe warning: "+said
	default:
		n.message = kind + " probe errored and resulted in unknown state: " + said
	}
	return []effect{n}
}

// report returns the report for a pod. It is repeated until the pod confirms it.
func (s *state) report(now time.Time, p *podState) effect {
	out := messages.ProbesObserved{UID: p.uid, Generation: p.desired.Generation}
	confirmed := true
	for _, name := range slices.Sorted(maps.Keys(p.containers)) {
		c := p.containers[name]
		o := messages.ObservedContainer{Name: name, ID: c.id, Results: c.results}
		for _, kind := range messages.ProbeKinds {
			if f, failing := c.failing[kind]; failing {
				o.Failing = append(o.Failing, f)
			}
		}
		out.Containers = append(out.Containers, o)
		confirmed = confirmed && c.results == c.confirmed
	}
	if confirmed {
		p.again.take()
	} else {
		s.put(&s.unconfirmed, &p.again, now.Add(reportAgain))
	}
	return report{out}
}
