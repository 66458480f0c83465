package stats

import (
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

const (
	// walkers is how many pods are walked at once, and urgentWalkers how many more of those that eviction waits for.
	walkers, urgentWalkers = 2, 2
	// longWalks is how many walks go on beside these that have taken longer than walkTimeout. Those that hang do not count.
	longWalks = 8
)

// New is the constructor of the actor that walks volumes and logs for the collector.
func New(c *Collector) supervisors.Constructor {
	return func(string) supervisors.Actor {
		return &actor{collector: c, walking: map[types.UID]walkPlace{}, long: map[types.UID]walkPlace{}}
	}
}

// actor walks the pods that are due, a few at a time, when a reader asks. It keeps nothing: its figures are on the
// collector's board, and the pods in its queue are due with the next request.
type actor struct {
	collector *Collector
	queue     []queuedWalk // urgent ones first, then the one that waits longest
	walking   map[types.UID]walkPlace
	long      map[types.UID]walkPlace // walks that take longer than walkTimeout
}

// queuedWalk is a pod that is due.
type queuedWalk struct {
	pod    *v1.Pod
	urgent bool
}

// walkPlace is the state of a walk when it was looked at last.
type walkPlace struct {
	queuedWalk
	batches int64
	hangs   bool
}

// walked is sent when a walk has ended, or has taken so long that others need its place.
type walked struct {
	uid   types.UID
	ended bool
}

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
	case messages.MeasureUsage:
		a.measure(ctx, m)
	case walked:
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
	_, running := a.collector.usage.progress(uid)
	return running
}

const (
	// urgentAge is how old the figures may be by which eviction decides: by older ones, a pod that fills a disk fast ranks among
	// the small ones still.
	urgentAge = time.Second
	// limitAge is how old the figures may be of a pod with a limit of its own, while nothing is short. Eviction asks every 10 s.
	limitAge = 5 * time.Second
)

// ageOf returns how old the figures of a pod's volumes may be.
func (c *Collector) ageOf(p *v1.Pod, urgent urgency) time.Duration {
	switch {
	case !urgent.pods[p.UID]:
		return c.opts.UsageAge
	case urgent.short:
		return min(urgentAge, c.opts.UsageAge)
	}
	return min(limitAge, c.opts.UsageAge)
}

// next begins as many walks as may be made at once.
func (a *actor) next(ctx supervisors.Context) {
	for len(a.queue) > 0 {
		q, most := a.queue[0], walkers
		if q.urgent {
			most += urgentWalkers
		}
		if len(a.walking) >= most {
			return
		}
		a.queue = a.queue[1:]
		a.begin(ctx, q)
	}
}

// begin walks a pod, or joins its walk.
func (a *actor) begin(ctx supervisors.Context, q queuedWalk) {
	c := a.collector
	batches, _ := c.usage.progress(q.pod.UID)
	a.walking[q.pod.UID] = walkPlace{queuedWalk: q, batches: batches}
	ctx.Do(supervisors.Work{Name: "MeasureUsage", Timeout: walkTimeout + partTimeout, Run: func(ctx context.Context) any {
		ctx, cancel := context.WithTimeout(ctx, walkTimeout)
		defer cancel()
		return walked{q.pod.UID, c.walkPod(ctx, q.pod)}
	}})
}

// onWalked gives the place of a walk to another one. A walk that is not done goes on, unless too many do: it keeps its place.
func (a *actor) onWalked(ctx supervisors.Context, m walked) {
	place, usage := a.walking[m.uid], a.collector.usage
	delete(a.walking, m.uid)
	maps.DeleteFunc(a.long, func(uid types.UID, _ walkPlace) bool {
		_, running := usage.progress(uid)
		return !running
	})
	if !m.ended && place.pod != nil {
		batches, _ := usage.progress(m.uid)
		place.hangs = batches == place.batches
		progressing := 0
		for _, other := range a.long {
			if !other.hangs {
				progressing++
			}
		}
		if place.hangs || progressing < longWalks {
			a.long[m.uid] = place
		} else {
			a.begin(ctx, place.queuedWalk)
		}
	}
	a.next(ctx)
}

// walkPod measures one pod, and reports whether that has ended when ctx does. The walk itself goes on.
func (c *Collector) walkPod(ctx context.Context, p *v1.Pod) (ended bool) {
	w := c.usage.walk(p.UID, func(w *podWalk) { c.measureFiles(p, w) },
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
		if u.bound == nil { // the figures are those of an older walk
			u.bound = &podUsage{}
		}
		return &u
	})
	return false
}

// Inspection is the actor's answer to an inspection.
type Inspection struct {
	Measured int      `json:"measured"` // pods whose volumes have figures
	Waiting  int      `json:"waiting"`  // pods whose volumes are to be walked
	Walking  []string `json:"walking,omitempty"`
	Failed   []string `json:"failed,omitempty"` // pods some of whose figures are missing, with the reason
}

// Inspect implements supervisors.Inspectable.
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

// summary counts pods with figures, and names those that lack some.
func (b *usageBoard) summary() (measured int, failed []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid, u := range b.pods {
		if err := u.lack(); err != nil {
			failed = append(failed, string(uid)+": "+err.Error())
		}
	}
	slices.Sort(failed)
	return len(b.pods), failed
}
