// Package lanes says from which registry the next image is pulled.
package lanes

import (
	"cmp"
	"maps"
	"time"

	"golang.org/x/time/rate"
)

const (
	// AtOnce bounds pulls where the configuration does not.
	AtOnce = 32
	// EachOf bounds those of one registry then.
	EachOf = 16
	// Kept is how long a registry counts as one of the node's after somebody needed an image of it.
	Kept = time.Hour
)

// Lanes has one lane a registry. The one with the fewest pulls under way goes first, and among those in turn. One registry
// never holds every slot of a node that uses several, so that a slow one cannot stop the pulls from the others. It is not safe
// for concurrent use.
type Lanes struct {
	limit   int // pulls at once
	share   int // those of one registry at once; 0: all but one where the node uses several, and all where it does not
	limiter *rate.Limiter
	running int
	served  uint64
	lanes   map[string]*lane
	tokenAt time.Time
}

type lane struct {
	running int
	served  uint64    // of its latest pull
	seen    time.Time // when somebody needed something of it
}

// New is for so many pulls at once (0: no bound of the configuration), so many a second (0: no bound), and so many in a
// burst.
func New(limit, qps, burst int32) *Lanes {
	l := &Lanes{limit: int(limit), limiter: rate.NewLimiter(rate.Inf, 0), lanes: map[string]*lane{}}
	if limit == 0 {
		l.limit, l.share = AtOnce, EachOf
	}
	if qps > 0 {
		l.limiter = rate.NewLimiter(rate.Limit(qps), int(max(burst, 1)))
	}
	return l
}

// Limit is how many pulls there may be at once.
func (l *Lanes) Limit() int { return l.limit }

// Running is how many pulls there are, and how many of each registry.
func (l *Lanes) Running() (all int, of map[string]int) {
	of = make(map[string]int, len(l.lanes))
	for registry, lane := range l.lanes {
		of[registry] = lane.running
	}
	return l.running, of
}

// Need says that somebody needs an image of a registry.
func (l *Lanes) Need(now time.Time, registry string) { l.lane(now, registry) }

func (l *Lanes) lane(now time.Time, registry string) *lane {
	of := l.lanes[registry]
	if of == nil {
		of = &lane{}
		l.lanes[registry] = of
	}
	of.seen = now
	return of
}

// Begin takes a slot, whether there is one or not.
func (l *Lanes) Begin(now time.Time, registry string) {
	of := l.lane(now, registry)
	l.served++
	of.served = l.served
	of.running++
	l.running++
}

// End gives a slot back.
func (l *Lanes) End(registry string) {
	l.running--
	if of := l.lanes[registry]; of != nil {
		of.running--
	}
}

// May says whether a registry that somebody needs may have another slot.
func (l *Lanes) May(registry string) bool {
	share := l.share
	if share == 0 {
		share = l.limit
		if len(l.lanes) > 1 {
			share = max(l.limit-1, 1)
		}
	}
	return l.running < l.limit && l.lanes[registry].running < share
}

// Prune forgets registries that nobody has needed for long.
func (l *Lanes) Prune(now time.Time) {
	maps.DeleteFunc(l.lanes, func(_ string, of *lane) bool { return of.running == 0 && now.Sub(of.seen) > Kept })
}

// Next takes a slot for one of the registries, sorted and needed, of which a pull waits. It gives "" where none may have one now.
func (l *Lanes) Next(now time.Time, waiting []string) string {
	l.tokenAt = time.Time{}
	registry := l.next(waiting)
	if registry == "" {
		return ""
	}
	if token := l.limiter.ReserveN(now, 1); token.DelayFrom(now) > 0 {
		l.tokenAt = now.Add(token.DelayFrom(now))
		token.CancelAt(now)
		return ""
	}
	l.Begin(now, registry)
	return registry
}

// TokenAt is when a pull may begin that only the limit of pulls a second keeps; zero where there is none.
func (l *Lanes) TokenAt() time.Time { return l.tokenAt }

func (l *Lanes) next(waiting []string) string {
	best := ""
	for _, registry := range waiting {
		if !l.May(registry) {
			continue
		}
		of := l.lanes[registry]
		if b := l.lanes[best]; best == "" || cmp.Or(cmp.Compare(of.running, b.running), cmp.Compare(of.served, b.served)) < 0 {
			best = registry
		}
	}
	return best
}
