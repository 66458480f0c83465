package prober

import (
	"container/heap"
	"time"
)

// pool is what the probes of one class share: so many run at a time. Commands run in the runtime, which has its own budget;
// a runtime that hangs must not keep the others from running.
type pool int

const (
	commands pool = iota // exec
	network              // HTTP, TCP, gRPC
	pools
)

// dues is a heap of what is to be done at a time, the earliest first; equal ones in order of asking.
type dues []*due

// due is one thing in it.
type due struct {
	at    time.Time
	turn  uint64
	index int // in its heap; -1 when it is in none
	probe *probe
	pod   *podBook
}

func (d dues) Len() int { return len(d) }
func (d dues) Less(i, j int) bool {
	if d[i].at.Equal(d[j].at) {
		return d[i].turn < d[j].turn
	}
	return d[i].at.Before(d[j].at)
}
func (d dues) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

// Push implements heap.Interface.
func (d *dues) Push(x any) {
	e := x.(*due) //nolint:forcetypeassert // put alone pushes
	e.index = len(*d)
	*d = append(*d, e)
}

// Pop implements heap.Interface.
func (d *dues) Pop() any {
	old := *d
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	e.index = -1
	return e
}

// put has something due at a time, in place of any time before.
func (b *book) put(d *dues, e *due, at time.Time) {
	b.turn++
	e.at, e.turn = at, b.turn
	if e.index >= 0 {
		heap.Fix(d, e.index)
		return
	}
	heap.Push(d, e)
}

// take takes something out, wherever it is.
func take(d *dues, e *due) {
	if e.index >= 0 {
		heap.Remove(d, e.index)
	}
}

// first is the earliest, when it is due now.
func (d dues) first(now time.Time) *due {
	if len(d) == 0 || d[0].at.After(now) {
		return nil
	}
	return d[0]
}

// firstRun is when a probe runs for the first time. A container that is new to us and has run for longer than a period was
// there before this agent: its probes are spread over the period, so that a restart makes no thunder. Otherwise there is a
// little jitter, so that what started together does not stay together.
func (b *book) firstRun(now time.Time, p *probe, isNew bool) time.Time {
	delay, period := seconds(p.spec.InitialDelaySeconds, 0), seconds(p.spec.PeriodSeconds, 10)
	at := p.con.startedAt.Add(delay)
	if at.After(now.Add(delay)) {
		at = now.Add(delay) // the runtime's clock is not ours: nobody waits longer than the delay
	}
	if isNew && now.Sub(at) > period {
		return now.Add(time.Duration(b.random() * float64(period)))
	}
	if at.Before(now) {
		at = now
	}
	return at.Add(time.Duration(b.random() * float64(min(period/10, time.Second/2))))
}

// crowded says that a pod has to wait for one of its own runs to end. Half of a pool is for everybody; of the other half a
// pod has an eighth of the pool and no more, so that a few pods whose probes hang do not keep those of the others from running.
func (b *book) crowded(p *podBook, in pool) bool {
	limit := b.limits[in]
	return b.busy[in] >= limit-limit/2 && p.running[in] >= max(limit/8, 1)
}

// tick starts what is due, oldest first, as far as there are workers, and repeats what was not taken.
func (b *book) tick(now time.Time) []effect {
	var out []effect
	for e := b.unheard.first(now); e != nil; e = b.unheard.first(now) {
		out = append(out, b.tell(now, e.pod))
	}
	for pool := range pools {
		for b.busy[pool] < b.limits[pool] {
			e := b.queues[pool].first(now)
			if e == nil {
				break
			}
			take(&b.queues[pool], e)
			if p := e.probe.pod; b.crowded(p, pool) {
				p.held[pool] = append(p.held[pool], e)
				continue
			}
			b.busy[pool]++
			e.probe.running = true
			e.probe.pod.running[pool]++
			out = append(out, run{probe: e.probe, job: e.probe.job(e.at)})
		}
	}
	return out
}

// next is when the clock is to be looked at again; zero when nothing is to come. What waits for a worker is looked at when
// one is free.
func (b *book) next() time.Time {
	var at time.Time
	earlier := func(d dues) {
		if len(d) > 0 && (at.IsZero() || d[0].at.Before(at)) {
			at = d[0].at
		}
	}
	earlier(b.unheard)
	for pool := range pools {
		if b.busy[pool] < b.limits[pool] {
			earlier(b.queues[pool])
		}
	}
	return at
}

// ran takes the outcome of one run of a probe.
func (b *book) ran(now time.Time, p *probe, o outcome) []effect {
	b.busy[p.pool]--
	p.running = false
	p.pod.running[p.pool]--
	for _, e := range p.pod.held[p.pool] {
		if !e.probe.gone {
			b.put(&b.queues[p.pool], e, e.at)
		}
	}
	p.pod.held[p.pool] = nil
	if p.gone {
		return b.tick(now)
	}
	next := p.due.at.Add(seconds(p.spec.PeriodSeconds, 10))
	if next.Before(now) {
		next = now // it took longer than its period
	}
	out := b.count(now, p, o)
	if !p.gone {
		b.put(&b.queues[p.pool], &p.due, next)
	}
	return append(out, b.tick(now)...)
}

// seconds is a field of a probe, which is more than zero unless its default is.
func seconds(n, otherwise int32) time.Duration {
	if n <= 0 {
		n = otherwise
	}
	return time.Duration(n) * time.Second
}
