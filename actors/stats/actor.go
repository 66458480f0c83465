package stats

import (
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/history"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// walkers limits the concurrent walks, and urgentWalkers the additional ones for pods that eviction waits for. Walks longer than
// walkTimeout do not count; they take turns.
const walkers, urgentWalkers = 2, 2

// New returns the constructor of the actor that walks volumes and logs for the collector.
func New(c *Collector) supervisors.Constructor {
	return func(string) supervisors.Actor {
		return &actor{collector: c, walking: map[types.UID]*v1.Pod{}, long: map[types.UID]bool{}}
	}
}

// actor walks the pods that are due, a few at a time, when a reader asks. It keeps no figures itself: they are on the collector's
// board, and the pods in its queue are due again with the next request.
type actor struct {
	collector *Collector
	queue     []queuedWalk // urgent pods first, then the one that has waited longest
	walking   map[types.UID]*v1.Pod
	long      map[types.UID]bool // walks that take longer than walkTimeout
	recording bool               // a sample of figures is in progress or scheduled
}

// queuedWalk is a pod that is due.
type queuedWalk struct {
	pod    *v1.Pod
	urgent bool
}

// walkResult is sent when a walk has ended, or has taken so long that others need its place.
type walkResult struct {
	uid   types.UID
	ended bool
}

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		a.record(ctx) // after a restart, recording goes on
	case messages.RecordFigures:
		a.record(ctx)
	case sampleResult:
		ctx.After(history.Every, sampleDue{})
	case sampleDue:
		a.sample(ctx)
	case messages.MeasureUsage:
		a.measure(ctx, m)
	case walkResult:
		a.onWalked(ctx, m)
	default:
		ctx.Unhandled(msg)
	}
}

// measure puts the pods that are due into the queue.
func (a *actor) measure(ctx supervisors.Context, m messages.MeasureUsage) {
	usage, here := a.collector.usage, map[types.UID]*v1.Pod{}
	for _, p := range m.Pods {
		here[p.UID] = p
	}
	usage.keep(here)
	a.queue = slices.DeleteFunc(a.queue, func(q queuedWalk) bool { return here[q.pod.UID] == nil })
	for i, q := range a.queue {
		a.queue[i].urgent = q.urgent || m.Urgent[q.pod.UID]
		delete(here, q.pod.UID)
	}
	for _, p := range m.Pods {
		if here[p.UID] != nil && !a.inProgress(p.UID) && (!m.Claims || hasClaims(p)) &&
			usage.of(p.UID).due(ctx.Now(), a.collector.ageOf(p, urgency{pods: m.Urgent, short: m.Short})) {
			a.queue = append(a.queue, queuedWalk{p, m.Urgent[p.UID]})
		}
	}
	slices.SortStableFunc(a.queue, func(x, y queuedWalk) int {
		switch {
		case x.urgent == y.urgent:
			return 0
		case x.urgent:
			return -1
		}
		return 1
	})
	a.next(ctx)
}

// inProgress reports whether the pod is being walked.
func (a *actor) inProgress(uid types.UID) bool {
	if _, ok := a.walking[uid]; ok {
		return true
	}
	return a.collector.usage.running(uid)
}

const (
	// urgentAge is the maximum age of figures for eviction's decisions: with older ones, a pod that fills a disk fast still ranks
	// among the small ones.
	urgentAge = time.Second
	// limitAge is the maximum age of the figures of a pod with a limit of its own, while no resource is short. Eviction asks
	// every 10 s.
	limitAge = 5 * time.Second
)

// ageOf returns the maximum age of the figures of a pod's volumes.
func (c *Collector) ageOf(p *v1.Pod, urgent urgency) time.Duration {
	switch {
	case !urgent.pods[p.UID]:
		return c.opts.UsageAge
	case urgent.short:
		return min(urgentAge, c.opts.UsageAge)
	}
	return min(limitAge, c.opts.UsageAge)
}

// next begins as many walks as are permitted: urgent pods first, then the namespaces with the fewest walks.
func (a *actor) next(ctx supervisors.Context) {
	for len(a.queue) > 0 {
		most := walkers
		if a.queue[0].urgent {
			most += urgentWalkers
		}
		if len(a.walking) >= most {
			return
		}
		places := map[string]int{}
		for _, p := range a.walking {
			places[p.Namespace]++
		}
		equals := slices.IndexFunc(a.queue, func(q queuedWalk) bool { return q.urgent != a.queue[0].urgent })
		if equals < 0 {
			equals = len(a.queue)
		}
		i := fewest(equals, func(i int) int { return places[a.queue[i].pod.Namespace] })
		q := a.queue[i]
		a.queue = slices.Delete(a.queue, i, i+1)
		a.begin(ctx, q.pod)
	}
}

// begin walks a pod, or joins its walk.
func (a *actor) begin(ctx supervisors.Context, p *v1.Pod) {
	a.walking[p.UID] = p
	ctx.Do(supervisors.Work{Name: "MeasureUsage", Timeout: walkTimeout + partTimeout, Run: func(ctx context.Context) any {
		ctx, cancel := context.WithTimeout(ctx, walkTimeout)
		defer cancel()
		return walkResult{p.UID, a.collector.walkPod(ctx, p)}
	}})
}

// onWalked frees the place of a walk. A walk that has not ended goes on in turns with other long ones.
func (a *actor) onWalked(ctx supervisors.Context, m walkResult) {
	usage := a.collector.usage
	delete(a.walking, m.uid)
	maps.DeleteFunc(a.long, func(uid types.UID, _ bool) bool { return !usage.running(uid) })
	if !m.ended {
		a.long[m.uid] = true
		usage.takeTurns(m.uid)
	}
	a.next(ctx)
}

// walkPod measures one pod, and reports whether the walk ended before ctx did. Otherwise the walk goes on.
func (c *Collector) walkPod(ctx context.Context, p *v1.Pod) (ended bool) {
	w := c.usage.walk(p, func(w *podWalk) { c.measureFiles(p, w) },
		func(ctx context.Context) (map[string]space, error) { return c.persistentUsage(ctx, p) })
	_, err := w.files.Get(ctx)
	if err == nil {
		return true
	}
	c.usage.put(p.UID, func(before *podUsage) *podUsage {
		u := podUsage{}
		if before != nil {
			u = *before
		}
		u.partial, u.err = true, err
		if u.bound == nil { // the figures are from an older walk
			u.bound = &podUsage{}
		}
		return &u
	})
	return false
}

// Inspection is the actor's answer to an inspection.
type Inspection struct {
	Measured int      `json:"measured"` // number of pods with figures for their volumes
	Waiting  int      `json:"waiting"`  // number of pods in the queue
	Walking  []string `json:"walking,omitempty"`
	Failed   []string `json:"failed,omitempty"` // pods with missing figures, and the reason
}

// Inspect implements supervisors.Inspector.
func (a *actor) Inspect() any {
	out := Inspection{Waiting: len(a.queue)}
	for uid := range a.walking {
		out.Walking = append(out.Walking, string(uid))
	}
	for uid := range a.long {
		out.Walking = append(out.Walking, string(uid))
	}
	slices.Sort(out.Walking)
	out.Measured, out.Failed = a.collector.usage.summary()
	return out
}

// summary counts pods with figures, and names those with missing ones.
func (b *usageBoard) summary() (measured int, failed []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid, u := range b.pods {
		if err := u.figuresError(); err != nil {
			failed = append(failed, string(uid)+": "+err.Error())
		}
	}
	slices.Sort(failed)
	return len(b.pods), failed
}
