package prober

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// lateRuns keeps how late the last probes ran.
type lateRuns struct {
	last []time.Duration
	at   int
}

const lateRunsKept = 4096

func (l *lateRuns) add(d time.Duration) {
	if len(l.last) < lateRunsKept {
		l.last = append(l.last, d)
		return
	}
	l.last[l.at] = d
	l.at = (l.at + 1) % lateRunsKept
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// Lateness holds the delays of probes for health. It outlives the actor, so that health sees a hung actor as well. The zero
// value reports no problem. Safe for concurrent use.
type Lateness struct{ delays atomic.Pointer[delays] }

// delays holds the delay of each queue.
type delays [pools][lanes]delay

// delay is how late the probes of one queue begin.
type delay struct {
	earliest    time.Time // when the probe at the head of the queue is due
	worst       time.Duration
	at          time.Time // when a probe began so late
	busy, limit int       // workers
}

const (
	// lateLimit is the delay of a probe above which health reports it: half of the usual period.
	lateLimit = 5 * time.Second
	// lateWindow is the time for which a late run is reported.
	lateWindow = time.Minute
)

// Problems returns sentences about probes that begin more than 5 s late, now or within the last minute. Per kind of worker
// there is one for prompt probes, and one for those that timed out.
func (l *Lateness) Problems(now time.Time) []string {
	all := l.delays.Load()
	if all == nil {
		return nil
	}
	var out []string
	for pool, kind := range [pools]string{commands: "exec probes", network: "HTTP, TCP and gRPC probes"} {
		for lane, which := range [lanes]string{lagging: " whose latest run timed out"} {
			d := all[pool][lane]
			late := d.waited(now)
			if d.worst > late && now.Sub(d.at) < lateWindow {
				late = d.worst
			}
			if late > lateLimit {
				out = append(out, fmt.Sprintf("%s%s begin up to %s late: %d of %d workers are busy",
					kind, which, late.Round(time.Second), d.busy, d.limit))
			}
		}
	}
	return out
}

func (d delay) waited(now time.Time) time.Duration {
	if d.earliest.IsZero() {
		return 0
	}
	return now.Sub(d.earliest)
}

// begun notes that a run began. The worst of the window is kept.
func (d *delay) begun(now time.Time, late time.Duration) {
	if late >= d.worst || now.Sub(d.at) >= lateWindow {
		d.worst, d.at = late, now
	}
}

// publish publishes the state of the queues for health.
func (a *actor) publish() {
	now := a.delays
	for pool := range pools {
		for l := range lanes {
			d := &now[pool][l]
			d.busy, d.limit = a.state.running(pool), a.state.limits[pool]
			if q := a.state.queues[pool][l]; len(q) > 0 {
				d.earliest = q[0].at
			}
		}
	}
	a.opts.Lateness.delays.Store(&now)
}

// Inspection is the state of the prober. Lateness is the delay of probes, over the last 4,096 runs.
type Inspection struct {
	Pods     int           `json:"pods"`
	Waiting  int           `json:"waiting"` // probes that are not due yet, or wait for a worker
	Commands int           `json:"runningCommands"`
	Network  int           `json:"runningNetwork"`
	Runs     int           `json:"runs"` // that the figures are of
	Late50   time.Duration `json:"latenessMedianNanoseconds"`
	Late99   time.Duration `json:"lateness99thPercentileNanoseconds"`
}

// Inspect implements supervisors.Inspector.
func (a *actor) Inspect() any {
	sorted := slices.Sorted(slices.Values(a.late.last))
	waiting := 0
	for _, queues := range a.state.queues {
		waiting += len(queues[prompt]) + len(queues[lagging])
	}
	return Inspection{
		Pods: len(a.state.pods), Waiting: waiting,
		Commands: a.state.running(commands), Network: a.state.running(network), Runs: len(sorted),
		Late50: quantile(sorted, 0.5), Late99: quantile(sorted, 0.99),
	}
}
