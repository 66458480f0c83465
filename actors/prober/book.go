package prober

import (
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/playlet-dev/playlet/messages"
)

// tellAgain is how long the pod has to show that it knows a result, before it is told again.
const tellAgain = 10 * time.Second

// book is the pure core: wishes and outcomes in, effects out; no clock, no I/O.
type book struct {
	pods    map[string]*podBook
	queues  [pools]dues // probes that wait for their time, or for a worker
	busy    [pools]int
	limits  [pools]int
	unheard dues // pods that have not shown yet that they know
	turn    uint64
	random  func() float64 // in [0,1)
	saves   []*podBook     // wait for their turn to be written
	saving  int
	cut     []*probe // ended in the middle of a run, which the actor is to cut off
}

// podBook is what is known of one pod.
type podBook struct {
	uid    string
	wish   messages.WatchProbes
	loaded bool
	cons   map[string]*conBook
	saved  record // as it lies on the disk, or is on its way there
	saving bool
	queued bool // for the disk
	again  due  // in unheard
	// running are its runs under way, held its probes that wait for one of these to end, in each pool.
	running [pools]int
	held    [pools][]*due
}

// conBook is what is known of one attempt of a container.
type conBook struct {
	spec      *v1.Container
	id        string
	startedAt time.Time
	results   messages.ProbeResults
	known     messages.ProbeResults // as the pod last said
	probes    map[messages.ProbeKind]*probe
}

// probe is one probe that runs.
type probe struct {
	pod     *podBook
	con     *conBook
	kind    messages.ProbeKind
	spec    *v1.Probe
	pool    pool
	due     due
	running bool
	gone    bool // what still comes of it is of no use
	blind   bool // its latest run said nothing of the application
	last    result
	inRow   int32 // so many of the same outcome
}

// effect is something for the actor to carry out.
type effect any

type (
	// run starts one run of a probe; ran brings its outcome.
	run struct {
		probe *probe
		job   job
	}
	// tell sends a pod what is known.
	tell struct{ word messages.ProbesObserved }
	// load reads what lies on the disk of a pod; loaded brings it.
	load struct{ uid string }
	// save writes it; saved says that it was tried.
	save struct {
		uid string
		rec record
	}
	// note is for the log.
	note struct {
		uid, container, message string
		kind                    messages.ProbeKind
		inRow                   int32
		result                  result
		changed                 bool
	}
	// news is for an event.
	news struct {
		pod                        *v1.Pod
		container, reason, message string
	}
)

func newBook(limits [pools]int, random func() float64) *book {
	return &book{pods: map[string]*podBook{}, limits: limits, random: random}
}

// watch takes the whole wish of a pod. The first one of a pod is answered when the disk has been read.
func (b *book) watch(now time.Time, m messages.WatchProbes) []effect {
	p := b.pods[m.UID]
	if p == nil {
		if len(m.Containers) == 0 {
			return []effect{tell{messages.ProbesObserved{UID: m.UID, Turn: m.Turn}}}
		}
		p = &podBook{uid: m.UID, wish: m, cons: map[string]*conBook{}, again: due{index: -1}}
		p.again.pod = p
		b.pods[m.UID] = p
		return []effect{load{m.UID}}
	}
	p.wish = m
	if !p.loaded {
		return nil
	}
	return b.apply(now, p)
}

// read takes what lay on the disk of a pod.
func (b *book) read(now time.Time, uid string, rec record) []effect {
	p := b.pods[uid]
	if p == nil || p.loaded {
		return nil
	}
	p.loaded, p.saved = true, rec
	return b.apply(now, p)
}

// apply makes the books match the wish, and answers it.
func (b *book) apply(now time.Time, p *podBook) []effect {
	wanted := map[string]bool{}
	for i := range p.wish.Containers {
		w := &p.wish.Containers[i]
		wanted[w.Spec.Name] = true
		b.applyContainer(now, p, w)
	}
	for name, c := range p.cons {
		if !wanted[name] {
			b.drop(c)
			delete(p.cons, name)
		}
	}
	if len(p.cons) == 0 && p.saving {
		return nil // its folder is about to be removed: the answer waits until nothing is written there
	}
	if len(p.cons) == 0 {
		return b.forget(p)
	}
	return append([]effect{b.tell(now, p)}, append(b.keep(p), b.tick(now)...)...)
}

func (b *book) forget(p *podBook) []effect {
	take(&b.unheard, &p.again)
	delete(b.pods, p.uid)
	b.saves = slices.DeleteFunc(b.saves, func(o *podBook) bool { return o == p })
	return []effect{tell{messages.ProbesObserved{UID: p.uid, Turn: p.wish.Turn}}}
}

// applyContainer takes the wish for one container. What the pod goes by is newer than the disk, and older than what was seen
// in this life.
func (b *book) applyContainer(now time.Time, p *podBook, w *messages.WatchedContainer) {
	c, isNew := p.cons[w.Spec.Name], false
	if c != nil && c.id != w.ID {
		b.drop(c)
		c = nil
	}
	if c == nil {
		c, isNew = &conBook{id: w.ID, probes: map[messages.ProbeKind]*probe{}}, true
		if was := p.saved.Containers[w.Spec.Name]; was.ID == w.ID {
			c.results = was.Results
		}
		c.results.Learn(w.Known)
		p.cons[w.Spec.Name] = c
	}
	results := w.Known
	results.Learn(c.results)
	c.spec, c.startedAt, c.known, c.results = w.Spec, w.StartedAt, w.Known, results
	for _, kind := range messages.ProbeKinds {
		spec := messages.Probe(w.Spec, kind)
		if spec == nil || !slices.Contains(w.Run, kind) || held(kind, *c.results.Of(kind)) {
			b.end(c, kind)
			continue
		}
		if is := c.probes[kind]; is != nil {
			if equality.Semantic.DeepEqual(is.spec, spec) {
				continue
			}
			b.end(c, kind)
		}
		n := &probe{pod: p, con: c, kind: kind, spec: spec, pool: poolOf(spec), due: due{index: -1}}
		n.due.probe = n
		c.probes[kind] = n
		b.put(&b.queues[n.pool], &n.due, b.firstRun(now, n, isNew))
	}
}

// held says that a probe has nothing more to say of this attempt of the container: it has started, or it is to end.
func held(kind messages.ProbeKind, r messages.ProbeResult) bool {
	switch kind {
	case messages.Startup:
		return r != ""
	case messages.Liveness:
		return r == messages.ProbeFailed
	case messages.Readiness:
	}
	return false
}

func (b *book) drop(c *conBook) {
	for _, kind := range messages.ProbeKinds {
		b.end(c, kind)
	}
}

// end ends one probe; a run of it that is under way is cut off and not waited for.
func (b *book) end(c *conBook, kind messages.ProbeKind) {
	if p := c.probes[kind]; p != nil {
		p.gone = true
		if p.running {
			b.cut = append(b.cut, p)
		}
		take(&b.queues[p.pool], &p.due)
		delete(c.probes, kind)
	}
}

// count applies the thresholds to one outcome. One that says nothing of the application counts for nothing.
func (b *book) count(now time.Time, p *probe, o outcome) []effect {
	was := p.blind
	p.blind = false
	out := p.news(o, was)
	if o.result == warning {
		o.result = success
	}
	if o.result == unknown {
		p.blind = true
		return append(out, note{uid: p.pod.uid, container: p.con.spec.Name, kind: p.kind, message: o.message, result: unknown, changed: !was})
	}
	if p.last != o.result {
		p.last, p.inRow = o.result, 0
	}
	p.inRow = min(p.inRow, 1<<30) + 1
	word, threshold := messages.ProbeSucceeded, max(p.spec.SuccessThreshold, 1)
	if o.result == failure {
		word, threshold = messages.ProbeFailed, p.spec.FailureThreshold
		if threshold <= 0 {
			threshold = 3
		}
	}
	is := p.con.results.Of(p.kind)
	changed := p.inRow >= threshold && *is != word
	if changed || (o.result == failure && p.inRow == 1) {
		out = append(out, note{p.pod.uid, p.con.spec.Name, o.message, p.kind, p.inRow, o.result, changed})
	}
	if !changed {
		return out
	}
	*is = word
	if held(p.kind, word) {
		b.end(p.con, p.kind)
	}
	return append(append(out, b.tell(now, p.pod)), b.keep(p.pod)...)
}

// news are what is told of one run: each failure, as with the kubelet, and that the probe cannot be run, once.
func (p *probe) news(o outcome, wasBlind bool) []effect {
	if o.result == success || (o.result == unknown && wasBlind) {
		return nil
	}
	n := news{pod: p.pod.wish.Pod, container: p.con.spec.Name, reason: messages.EventUnhealthy}
	kind := strings.ToUpper(string(p.kind)[:1]) + string(p.kind)[1:]
	said := strings.ReplaceAll(o.message, p.con.id, p.con.spec.Name) // an ID would make each attempt's an event of its own
	switch o.result {
	case failure:
		n.message = kind + " probe failed: " + said
	case warning:
		n.reason, n.message = messages.EventProbeWarning, kind+" probe warning: "+said
	default:
		n.message = kind + " probe errored and resulted in unknown state: " + said
	}
	return []effect{n}
}

// tell is the word for a pod. It is repeated until the pod shows that it knows.
func (b *book) tell(now time.Time, p *podBook) effect {
	word := messages.ProbesObserved{UID: p.uid, Turn: p.wish.Turn}
	heard := true
	for _, name := range slices.Sorted(maps.Keys(p.cons)) {
		c := p.cons[name]
		word.Containers = append(word.Containers, messages.ObservedContainer{Name: name, ID: c.id, Results: c.results})
		heard = heard && c.results == c.known
	}
	if heard {
		take(&b.unheard, &p.again)
	} else {
		b.put(&b.unheard, &p.again, now.Add(tellAgain))
	}
	return tell{word}
}
