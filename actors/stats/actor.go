package stats

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// walkers is how many pods are walked at once: walks are for figures that nobody is in a hurry for.
const walkers = 2

// New is the constructor of the actor that walks volumes and logs for the collector.
func New(c *Collector) supervisors.Constructor {
	return func(string) supervisors.Actor {
		return &actor{collector: c, walking: map[types.UID]bool{}}
	}
}

// actor walks what is due, a few pods at a time, when it is told that somebody reads. It keeps nothing: its figures are on the
// collector's board, and what was in its queue is due with the next request.
type actor struct {
	collector *Collector
	queue     []*v1.Pod // due, the one that waits longest first
	walking   map[types.UID]bool
}

// walked is the end of one pod's walk.
type walked struct{ uid types.UID }

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
	case messages.MeasureUsage:
		a.measure(ctx, m)
	case walked:
		delete(a.walking, m.uid)
		a.next(ctx)
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
	a.queue = slices.DeleteFunc(a.queue, func(p *v1.Pod) bool { return here[p.UID] == nil })
	for _, p := range a.queue {
		delete(here, p.UID)
	}
	for _, p := range m.Pods {
		if here[p.UID] != nil && !a.walking[p.UID] && (!m.Claims || hasClaims(p)) &&
			usage.of(p.UID).due(ctx.Now(), a.collector.ageOf(p, m.Urgent)) {
			a.queue = append(a.queue, p)
		}
	}
	a.next(ctx)
}

// urgentAge is how old the figures may be by which eviction decides: by older ones, a pod that fills a disk fast ranks among the
// small ones still.
const urgentAge = time.Second

// ageOf is how old the figures of a pod's volumes may be.
func (c *Collector) ageOf(p *v1.Pod, urgent map[types.UID]bool) time.Duration {
	if urgent[p.UID] {
		return min(urgentAge, c.opts.UsageAge)
	}
	return c.opts.UsageAge
}

// next begins walks, as many as may be.
func (a *actor) next(ctx supervisors.Context) {
	for len(a.queue) > 0 && len(a.walking) < walkers {
		p := a.queue[0]
		a.queue = a.queue[1:]
		a.walking[p.UID] = true
		c := a.collector
		ctx.Do(supervisors.Work{Name: "MeasureUsage", Timeout: walkTimeout + 2*partTimeout, Run: func(ctx context.Context) any {
			c.walkPod(ctx, p)
			return walked{p.UID}
		}})
	}
}

// walkPod measures one pod and leaves the figures on the board. Where that fails, those from before stay, with the reason.
func (c *Collector) walkPod(ctx context.Context, p *v1.Pod) {
	walk := c.usage.walk(p.UID, func() (*podUsage, error) {
		ctx, cancel := context.WithTimeout(context.Background(), walkTimeout) // who asked may be gone; others join
		defer cancel()
		return measurer{c.opts.RootDir, c.opts.PodLogsDir, c.opts.Persistent}.pod(ctx, p)
	})
	began := c.opts.Now()
	u, err := walk.Get(ctx)
	if err != nil {
		u = &podUsage{err: err, took: c.opts.Now().Sub(began)}
		if before := c.usage.of(p.UID); before != nil {
			u.volumes, u.logs, u.podLogs, u.kept = before.volumes, before.logs, before.podLogs, before.kept
		}
	}
	u.at = c.opts.Now()
	c.usage.put(p.UID, u)
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
	slices.Sort(out.Walking)
	out.Measured, out.Failed = a.collector.usage.summary()
	return out
}

// summary counts pods with figures, and names those that lack some.
func (b *usageBoard) summary() (measured int, failed []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid, u := range b.pods {
		if u.err != nil {
			failed = append(failed, string(uid)+": "+u.err.Error())
		}
	}
	slices.Sort(failed)
	return len(b.pods), failed
}
