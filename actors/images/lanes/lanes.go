// Package lanes selects the tenant and the registry of the next pull.
package lanes

import (
	"cmp"
	"maps"
	"time"

	"golang.org/x/time/rate"
)

const (
	// AtOnce limits concurrent pulls without a configured limit.
	AtOnce = 32
	// EachOf limits the concurrent pulls from one registry in that case.
	EachOf = 16
	// Kept is the time for which a registry or tenant counts as used after the latest need of one of its images.
	Kept = time.Hour
)

// Line identifies pulls that wait together: those for one tenant, from one registry. The tenant is the namespace of the pods; a
// person's pulls have none.
type Line struct{ Tenant, Registry string }

// Lanes has one lane per tenant and one per registry. The tenant with the fewest pulls goes first, and among its registries the
// one with the fewest; equal ones take turns. If a node has several, a tenant gets at most half of the slots that the others
// leave, and a registry all but one. Lanes is not safe for concurrent use.
type Lanes struct {
	limit      int // pulls at once
	share      int // pulls from one registry at once; 0: all slots but one if the node uses several registries, otherwise all
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
	seen    time.Time // the time of the latest need
}

// New returns lanes for the configured number of pulls at once (0: not configured), pulls per second (0: no limit), and pulls in
// a burst.
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

// Limit returns the number of slots.
func (l *Lanes) Limit() int { return l.limit }

// Running returns the number of pulls with slots, in total and by registry.
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

// Begin takes a slot, even if none is available.
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

// Idle reports whether a tenant has no pull.
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

// Prune removes registries and tenants without a pull that had no need for longer than Kept.
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

// TokenAt returns the time at which a pull may begin that waits only for the rate limit; zero for none.
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
