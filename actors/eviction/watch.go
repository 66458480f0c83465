package eviction

import (
	"context"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/threshold"
)

// How fast a few busy cores can use up memory and disks, in bytes a second, and inodes and tasks. What is left is looked at again
// before a threshold could be crossed: nothing is polled hard while much is left.
const (
	memoryRate = 4 << 30
	diskRate   = 2 << 30
	countRate  = 50_000
)

// The time between two looks at memory, and at all else, is no less than these, and no more than mostLook. No pod ends within
// leastLook, whoever tells of a threshold.
const (
	leastLook      = 250 * time.Millisecond
	leastOtherLook = time.Second
	mostLook       = 10 * time.Second
)

// levels are the thresholds to be met next, in bytes, inodes or tasks that are left.
func (s pressureState) levels(m Measurement) map[Signal]int64 {
	out := map[Signal]int64{}
	for i, l := range s.limits {
		r, measured := m.Readings[l.signal]
		if _, met := s.met[i]; met || !measured {
			continue
		}
		at := threshold.Quantity(l.text, r.Capacity)
		out[l.signal] = max(out[l.signal], at.Value())
	}
	return out
}

// lookIn is when a signal has to be looked at again of which so much is left until a threshold.
func lookIn(s Signal, left int64) time.Duration {
	rate, least := float64(diskRate), leastOtherLook
	switch {
	case s.kind() == v1.NodeMemoryPressure:
		rate, least = memoryRate, leastLook
	case s == PIDAvailable || strings.HasSuffix(string(s), ".inodesFree"):
		rate = countRate
	}
	return min(max(time.Duration(float64(left)/rate*float64(time.Second)), least), mostLook)
}

// Await waits until less is left than one of the levels, and reports that, or until ctx ends. A disk that hangs holds up no look
// at memory, nor at another disk.
func (p *Meter) Await(ctx context.Context, levels map[Signal]int64) bool {
	apart := map[string]map[Signal]int64{} // memory, each file system, tasks
	for s, level := range levels {
		of, _, _ := strings.Cut(string(s), ".")
		if apart[of] == nil {
			apart[of] = map[Signal]int64{}
		}
		apart[of][s] = level
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type end struct {
		short    bool
		panicked any
	}
	ends := make(chan end)
	for _, levels := range apart {
		go func() {
			var e end
			defer func() {
				e.panicked = recover()
				ends <- e
			}()
			e.short = p.await(ctx, levels)
		}()
	}
	var all end
	for range apart {
		e := <-ends
		if e.short || e.panicked != nil {
			cancel() // so that the others end
		}
		if all.short = all.short || e.short; e.panicked != nil {
			all.panicked = e.panicked
		}
	}
	if all.panicked != nil {
		panic(all.panicked) // here it is caught, and restarts the actor instead of ending the agent
	}
	return all.short
}

// await looks at what these levels are of until less is left than one of them.
func (p *Meter) await(ctx context.Context, levels map[Signal]int64) bool {
	for ctx.Err() == nil {
		now, wait := p.measureThese(ctx, levels), mostLook
		for s, level := range levels {
			r, measured := now[s]
			if !measured {
				continue
			}
			if r.Available < level {
				return true
			}
			wait = min(wait, lookIn(s, r.Available-level))
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	return false
}
