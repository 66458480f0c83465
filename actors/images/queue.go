package images

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/playlet-dev/playlet/messages"
)

const (
	// atOnce bounds pulls where the configuration does not, and eachOf those of one registry then.
	atOnce = 32
	eachOf = 16
	// laneKept is how long a registry counts as one of the node's after somebody needed an image of it.
	laneKept = time.Hour
	// places is how far from the front a need is told its place; beyond it only that it is further behind.
	places = 10
)

// queue says which pull begins next. Each registry has a lane, in which the oldest pod goes first; of the lanes, the one
// with the fewest pulls under way goes first, and among those in turn. One registry never holds every slot of a node that
// uses several, so that a slow one cannot stop the pulls from the others.
type queue struct {
	limit   int // pulls at once
	share   int // those of one registry at once; 0: all but one where the node uses several, and all where it does not
	limiter *rate.Limiter
	running int
	served  uint64
	lanes   map[string]*lane
	tokenAt time.Time // when a pull may begin that only the limiter keeps; zero when there is none
}

type lane struct {
	running int
	served  uint64    // of its latest pull
	seen    time.Time // when somebody needed something of it
}

// newQueue is for so many pulls at once (0: no bound of the configuration), so many a second (0: no bound), and so many in
// a burst.
func newQueue(limit, qps, burst int32) queue {
	q := queue{limit: int(limit), limiter: rate.NewLimiter(rate.Inf, 0)}
	if limit == 0 {
		q.limit, q.share = atOnce, eachOf
	}
	if qps > 0 {
		q.limiter = rate.NewLimiter(rate.Limit(qps), int(max(burst, 1)))
	}
	return q
}

func (q *queue) lane(now time.Time, registry string) *lane {
	l := q.lanes[registry]
	if l == nil {
		l = &lane{}
		q.lanes[registry] = l
	}
	l.seen = now
	return l
}

func (q *queue) begin(now time.Time, registry string) {
	l := q.lane(now, registry)
	q.served++
	l.served = q.served
	l.running++
	q.running++
}

func (q *queue) end(registry string) {
	q.running--
	if l := q.lanes[registry]; l != nil {
		l.running--
	}
}

// may says whether a registry may have another slot.
func (q *queue) may(registry string) bool {
	share := q.share
	if share == 0 {
		share = q.limit
		if len(q.lanes) > 1 {
			share = max(q.limit-1, 1)
		}
	}
	return q.running < q.limit && q.lanes[registry].running < share
}

func (q *queue) prune(now time.Time) {
	maps.DeleteFunc(q.lanes, func(_ string, l *lane) bool { return l.running == 0 && now.Sub(l.seen) > laneKept })
}

// candidate is a pull that waits for its turn.
type candidate struct {
	im    *image
	pull  *pull
	needs []*need
}

// lines are the queued pulls by registry, each line in order.
func (b *machine) lines(now time.Time) map[string][]candidate {
	lines := map[string][]candidate{}
	for _, im := range b.images {
		b.queue.lane(now, im.registry)
		for id, p := range im.pulls {
			if p.phase != queued {
				continue
			}
			needs := im.pulling(id)
			if len(needs) == 0 { // nobody waits for it any more
				p.phase = idle
				continue
			}
			lines[im.registry] = append(lines[im.registry], candidate{im, p, needs})
		}
	}
	for _, line := range lines {
		slices.SortFunc(line, func(x, y candidate) int {
			return cmp.Or(cmp.Compare(x.needs[0].priority, y.needs[0].priority),
				cmp.Compare(x.needs[0].arrived, y.needs[0].arrived))
		})
	}
	return lines
}

// next is the registry whose turn it is; empty when none may begin a pull.
func (q *queue) next(lines map[string][]candidate) string {
	best := ""
	for _, registry := range slices.Sorted(maps.Keys(lines)) {
		if len(lines[registry]) == 0 || !q.may(registry) {
			continue
		}
		l := q.lanes[registry]
		if b := q.lanes[best]; best == "" || cmp.Or(cmp.Compare(l.running, b.running), cmp.Compare(l.served, b.served)) < 0 {
			best = registry
		}
	}
	return best
}

// dispatch starts queued pulls while they may, and tells those who wait where they stand.
func (b *machine) dispatch(now time.Time) {
	q := &b.queue
	lines := b.lines(now)
	q.prune(now)
	q.tokenAt = time.Time{}
	for {
		registry := q.next(lines)
		if registry == "" {
			break
		}
		if token := q.limiter.ReserveN(now, 1); token.DelayFrom(now) > 0 {
			q.tokenAt = now.Add(token.DelayFrom(now))
			token.CancelAt(now)
			break
		}
		c := lines[registry][0]
		lines[registry] = lines[registry][1:]
		q.begin(now, registry)
		c.pull.phase, c.pull.since = busy, now
		b.out = append(b.out, startPull{c.im.name, c.pull.keys, c.needs[0].priority})
	}
	b.tellPlaces(lines)
}

// tellPlaces tells each need what it waits for, when that is news.
func (b *machine) tellPlaces(lines map[string][]candidate) {
	for _, registry := range slices.Sorted(maps.Keys(lines)) {
		for i, c := range lines[registry] {
			where := fmt.Sprintf("behind more than %d others", places)
			if i < places {
				where = ordinal(i + 1)
			}
			for _, n := range c.needs {
				b.await(n, messages.Reason{
					Code: messages.ReasonPullQueued, Since: c.pull.since,
					Message: fmt.Sprintf("the image %q is %s in the queue of the registry %s", n.image, where, registry),
				})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.images)) {
		im := b.images[name]
		for id, p := range im.pulls {
			if p.phase != busy {
				continue
			}
			for _, n := range im.pulling(id) {
				b.await(n, messages.Reason{
					Code: messages.ReasonPulling, Since: p.since,
					Message: fmt.Sprintf("the image %q is being pulled from the registry %s", n.image, im.registry),
				})
			}
		}
	}
}

func (b *machine) await(n *need, r messages.Reason) {
	text := r.String()
	if n.awaits == text {
		return
	}
	n.awaits = text
	m := messages.ImageAwaited{Key: n.key, Image: n.image, Reason: r}
	if r.Code == messages.ReasonPulling {
		m.Again, n.pulling = n.pulling.Equal(r.Since), r.Since
	}
	b.tell(n, m)
}

func ordinal(n int) string {
	suffix := "th"
	if n < 11 || n > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n, suffix)
}
