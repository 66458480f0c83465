package prober

import (
	"slices"
	"time"
)

// lateness keeps how late the last probes ran.
type lateness struct {
	last []time.Duration
	at   int
}

const latenessKept = 4096

func (l *lateness) add(d time.Duration) {
	if len(l.last) < latenessKept {
		l.last = append(l.last, d)
		return
	}
	l.last[l.at] = d
	l.at = (l.at + 1) % latenessKept
}

func (l *lateness) quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// Inspection is what the prober says of itself. Lateness is how long after its time a probe began, of the last 4,096 runs.
type Inspection struct {
	Pods     int           `json:"pods"`
	Waiting  int           `json:"waiting"` // probes whose time is to come, or that wait for a worker
	Commands int           `json:"runningCommands"`
	Network  int           `json:"runningNetwork"`
	Runs     int           `json:"runs"` // that the figures are of
	Late50   time.Duration `json:"latenessMedianNanoseconds"`
	Late99   time.Duration `json:"lateness99thPercentileNanoseconds"`
}

// Inspect implements supervisors.Inspectable.
func (a *actor) Inspect() any {
	sorted := slices.Sorted(slices.Values(a.late.last))
	return Inspection{
		Pods: len(a.book.pods), Waiting: len(a.book.queues[commands]) + len(a.book.queues[network]),
		Commands: a.book.busy[commands], Network: a.book.busy[network], Runs: len(sorted),
		Late50: a.late.quantile(sorted, 0.5), Late99: a.late.quantile(sorted, 0.99),
	}
}
