package prober

import (
	"container/heap"
	"time"
)

// pool is a class of probes with a common limit of concurrent runs. Exec probes have their own: they run in the runtime, and
// a hung runtime must not block other probes.
type pool int

const (
	commands pool = iota // exec
	network              // HTTP, TCP, gRPC
	pools
)

// lane is where a probe queues for the workers of its pool.
type lane int

const (
	prompt  lane = iota // the probe's latest run ended within its time, or it has not run yet
	lagging             // it timed out: such probes share half of the pool
	lanes
)

func (p *probe) nextLane() lane {
	if p.timedOut {
		return lagging
	}
	return prompt
}

// dues is a heap of pending entries by time; equal ones keep their order of insertion.
type dues []*dueEntry

// dueEntry is one thing in it.
type dueEntry struct {
	at       time.Time
	sequence uint64
	in       *dues // nil when it is in none
	index    int
	probe    *probe
	pod      *podState
}

func (d dues) Len() int { return len(d) }
func (d dues) Less(i, j int) bool {
	if d[i].at.Equal(d[j].at) {
		return d[i].sequence < d[j].sequence
	}
	return d[i].at.Before(d[j].at)
}
func (d dues) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

// Push implements heap.Interface.
func (d *dues) Push(x any) {
	e := x.(*dueEntry) // put alone pushes
	e.index = len(*d)
	*d = append(*d, e)
}

// Pop implements heap.Interface.
func (d *dues) Pop() any {
	old := *d
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	e.in = nil
	return e
}

// put has something due at a time, in place of any time before.
func (s *state) put(d *dues, e *dueEntry, at time.Time) {
	e.take()
	s.sequence++
	e.at, e.sequence, e.in = at, s.sequence, d
	heap.Push(d, e)
}

func (s *state) enqueue(p *probe, at time.Time) { s.put(&s.queues[p.pool][p.nextLane()], &p.due, at) }

// take takes something out, wherever it is.
func (e *dueEntry) take() {
	if e.in != nil {
		heap.Remove(e.in, e.index)
	}
}

// first is the earliest, when it is due now.
func (d dues) first(now time.Time) *dueEntry {
	if len(d) == 0 || d[0].at.After(now) {
		return nil
	}
	return d[0]
}

// firstRun returns the time of a probe's first run. A new container that has run for more than a period was there before this
// agent. Its probes are spread over the period, so that a restart causes no burst. Others get a little jitter, so that
// containers started together drift apart.
func (s *state) firstRun(now time.Time, p *probe, isNew bool) time.Time {
	delay, period := seconds(p.spec.InitialDelaySeconds, 0), seconds(p.spec.PeriodSeconds, 10)
	// The start has the runtime's time. Only its difference to now counts, so that a clock that is set later moves no run, and a
	// start after now delays the first run by the delay at most.
	at := now.Add(min(p.container.startedAt.Sub(now), 0) + delay)
	if isNew && now.Sub(at) > period {
		return now.Add(time.Duration(s.random() * float64(period)))
	}
	if at.Before(now) {
		at = now
	}
	return at.Add(time.Duration(s.random() * float64(min(period/10, time.Second/2))))
}

// crowded reports whether a pod must wait for the end of one of its own runs. Once half of a pool is busy, a pod has an
// eighth of the pool at most, so that a few pods with hanging probes do not block others.
func (s *state) crowded(p *podState, in pool) bool {
	limit := s.limits[in]
	return s.running(in) >= limit-limit/2 && p.running[in] >= max(limit/8, 1)
}

// running counts the workers of a pool that are busy.
func (s *state) running(in pool) int { return s.busy[in][prompt] + s.busy[in][lagging] }

// free reports whether a pool has a worker for this lane. Probes that timed out use at most half of the workers.
func (s *state) free(in pool, l lane) bool {
	return s.running(in) < s.limits[in] && (l == prompt || s.busy[in][lagging] < max(s.limits[in]/2, 1))
}

// pick is the earliest probe of a pool that is due and has a worker; nil: there is none.
func (s *state) pick(now time.Time, in pool) *dueEntry {
	var best *dueEntry
	for l := range lanes {
		e := s.queues[in][l].first(now)
		if e != nil && s.free(in, l) && (best == nil || e.at.Before(best.at)) {
			best = e
		}
	}
	return best
}

// tick starts due probes, oldest first, while there are workers, and repeats unconfirmed reports.
func (s *state) tick(now time.Time) []effect {
	var out []effect
	for e := s.unconfirmed.first(now); e != nil; e = s.unconfirmed.first(now) {
		out = append(out, s.report(now, e.pod))
	}
	for pool := range pools {
		for e := s.pick(now, pool); e != nil; e = s.pick(now, pool) {
			e.take()
			p := e.probe
			if s.crowded(p.pod, pool) {
				p.pod.held[pool] = append(p.pod.held[pool], e)
				continue
			}
			p.running, p.lane = true, p.nextLane()
			s.busy[pool][p.lane]++
			p.pod.running[pool]++
			out = append(out, run{probe: p, job: p.job(), due: e.at})
		}
	}
	return out
}

// next returns the time of the next tick; zero without pending entries. Probes without a free worker are not counted: the end
// of a run causes a tick.
func (s *state) next() time.Time {
	var at time.Time
	earlier := func(d dues) {
		if len(d) > 0 && (at.IsZero() || d[0].at.Before(at)) {
			at = d[0].at
		}
	}
	earlier(s.unconfirmed)
	for pool := range pools {
		for l := range lanes {
			if s.free(pool, l) {
				earlier(s.queues[pool][l])
			}
		}
	}
	return at
}

// ran takes the outcome of one run of a probe.
func (s *state) ran(now time.Time, p *probe, o outcome) []effect {
	s.busy[p.pool][p.lane]--
	p.running = false
	p.pod.running[p.pool]--
	for _, e := range p.pod.held[p.pool] {
		if !e.probe.ended {
			s.enqueue(e.probe, e.at)
		}
	}
	p.pod.held[p.pool] = nil
	if p.ended {
		return s.tick(now)
	}
	p.timedOut = o.timedOut
	next := p.due.at.Add(seconds(p.spec.PeriodSeconds, 10))
	if next.Before(now) {
		next = now // it took longer than its period
	}
	out := s.count(now, p, o)
	if !p.ended {
		s.enqueue(p, next)
	}
	return append(out, s.tick(now)...)
}

// seconds is a field of a probe, which is more than zero unless its default is.
func seconds(n, otherwise int32) time.Duration {
	if n <= 0 {
		n = otherwise
	}
	return time.Duration(n) * time.Second
}
