// Package lanes decides for which tenant and from which registry the next image is pulled.
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
	// Kept is how long a registry or tenant counts as one of the node's after an image of it was needed.
	Kept = time.Hour
)

// Line is the pulls that wait together: a tenant's, from one registry. The tenant is the namespace of the pods; a person's pulls
// have none.
type Line struct{ Tenant, Registry string }

// Lanes has one lane a tenant and one a registry. The tenant with the fewest pulls goes first, and among its registries the one
// with the fewest; equal ones take turns. On a node that several use, a tenant has at most half of the slots that the others
// leave, and a registry all but one. It is not safe for concurrent use.
type Lanes struct {
	limit      int // pulls at once
	share      int // those of one registry at once; 0: all but one where the node uses several, and all where it does not
	limiter    *rate.Limiter
	running    int
	served     uint64
	registries map[string]*lane
	tenants    map[string]*lane
	tokenAt    time.Time
}

type lane struct {
	running int
	lent    int       // of a tenant: running pulls that gave their slots away
	served  uint64    // of its latest pull
	seen    time.Time // when something of it was needed
}

// New is for so many pulls at once (0: no bound of the configuration), so many a second (0: no bound), and so many in a
// burst.
func New(limit, qps, burst int32) *Lanes {
	l := &Lanes{limit: int(limit), limiter: rate.NewLimiter(rate.Inf, 0),
		registries: map[string]*lane{}, tenants: map[string]*lane{}}
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
	of = make(map[string]int, len(l.registries))
	for registry, lane := range l.registries {
		of[registry] = lane.running
	}
	return l.running, of
}

// Need records that an image of the line is needed.
func (l *Lanes) Need(now time.Time, line Line) {
	seen(l.registries, line.Registry, now)
	seen(l.tenants, line.Tenant, now)
}

func seen(lanes map[string]*lane, name string, now time.Time) *lane {
	of := lanes[name]
	if of == nil {
		of = &lane{}
		lanes[name] = of
	}
	of.seen = now
	return of
}

// Begin takes a slot, whether there is one or not.
func (l *Lanes) Begin(now time.Time, line Line) {
	l.served++
	l.running++
	for _, of := range []*lane{seen(l.registries, line.Registry, now), seen(l.tenants, line.Tenant, now)} {
		of.served = l.served
		of.running++
	}
}

// Lend gives the slot of a pull back. The pull still counts for its tenant.
func (l *Lanes) Lend(line Line) {
	l.running--
	l.registries[line.Registry].running--
	l.tenants[line.Tenant].lent++
}

// EndLent ends the count of a pull that gave its slot back.
func (l *Lanes) EndLent(line Line) {
	l.tenants[line.Tenant].lent--
	l.tenants[line.Tenant].running--
}

// End gives a slot back.
func (l *Lanes) End(line Line) {
	l.Lend(line)
	l.EndLent(line)
}

// Idle reports that a tenant has no pull.
func (l *Lanes) Idle(tenant string) bool {
	return l.tenants[tenant] == nil || l.tenants[tenant].running == 0
}

// May reports whether a line that is needed may have another slot.
func (l *Lanes) May(line Line) bool {
	share := l.share
	if share == 0 {
		share = l.limit
		if len(l.registries) > 1 {
			share = max(l.limit-1, 1)
		}
	}
	return l.running < l.limit && l.registries[line.Registry].running < share && l.mayTenant(l.tenants[line.Tenant])
}

func (l *Lanes) mayTenant(of *lane) bool {
	left := l.limit - (l.running - (of.running - of.lent)) // by the others
	return len(l.tenants) == 1 || of.running < (left+1)/2
}

// Prune forgets registries and tenants that had no need for long.
func (l *Lanes) Prune(now time.Time) {
	old := func(_ string, of *lane) bool { return of.running == 0 && now.Sub(of.seen) > Kept }
	maps.DeleteFunc(l.registries, old)
	maps.DeleteFunc(l.tenants, old)
}

// Next takes a slot for one of the lines, sorted and needed, in which a pull waits. It reports false if none may have one now.
func (l *Lanes) Next(now time.Time, waiting []Line) (Line, bool) {
	l.tokenAt = time.Time{}
	line, found := l.next(waiting)
	if !found {
		return line, false
	}
	if token := l.limiter.ReserveN(now, 1); token.DelayFrom(now) > 0 {
		l.tokenAt = now.Add(token.DelayFrom(now))
		token.CancelAt(now)
		return line, false
	}
	l.Begin(now, line)
	return line, true
}

// TokenAt is when a pull may begin that only the limit of pulls a second keeps; zero where there is none.
func (l *Lanes) TokenAt() time.Time { return l.tokenAt }

func (l *Lanes) next(waiting []Line) (best Line, found bool) {
	for _, line := range waiting {
		if l.May(line) && (!found || l.before(line, best)) {
			best, found = line, true
		}
	}
	return best, found
}

func (l *Lanes) before(x, y Line) bool {
	t, u, r, s := l.tenants[x.Tenant], l.tenants[y.Tenant], l.registries[x.Registry], l.registries[y.Registry]
	return cmp.Or(cmp.Compare(t.running, u.running), cmp.Compare(r.running, s.running), cmp.Compare(t.served, u.served),
		cmp.Compare(r.served, s.served)) < 0
}
