package eviction

import (
	"context"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/memwatch"
	"github.com/playlet-dev/playlet/actors/internal/threshold"
)

// fillRate is how fast memory can be filled, in bytes a second, as far as a few busy cores do. Where the kernel does not tell of
// each threshold, memory is looked at again before one could be crossed.
const fillRate = 4 << 30

// leastLook and mostLook bound the time between two looks at memory alone.
const (
	leastLook = 250 * time.Millisecond
	mostLook  = 10 * time.Second
)

// levels are the thresholds of memory to be met next, in bytes that are left.
func (s pressureState) levels(m Measurement) map[Signal]int64 {
	out := map[Signal]int64{}
	for i, l := range s.limits {
		r, measured := m.Readings[l.signal]
		if _, met := s.met[i]; met || !measured || l.signal.kind() != v1.NodeMemoryPressure {
			continue
		}
		at := threshold.Quantity(l.text, r.Capacity)
		out[l.signal] = max(out[l.signal], at.Value())
	}
	return out
}

// lookIn is when memory has to be looked at again that has so many bytes left until a threshold.
func lookIn(left int64) time.Duration {
	return min(max(time.Duration(float64(left)/fillRate*float64(time.Second)), leastLook), mostLook)
}

// AwaitMemory waits until less memory is left than one of the levels, and reports that, or until ctx ends.
func (p *Meter) AwaitMemory(ctx context.Context, levels map[Signal]int64) bool {
	var watch *memwatch.Watch
	defer func() { watch.Close() }()
	for ctx.Err() == nil {
		now, wait := p.MeasureMemory(ctx).Readings, mostLook
		var list []memwatch.Threshold
		for s, level := range levels {
			r, measured := now[s]
			if !measured {
				continue
			}
			left := r.Available - level
			if left < 0 {
				return true
			}
			wait = min(wait, lookIn(left))
			list = append(list, p.usageAt(s, left))
		}
		if watch == nil || watch.Exact { // what counts as used besides the working set has changed
			watch.Close()
			watch = memwatch.Arm(p.Cgroups, p.Proc, list)
		}
		if watch.Exact {
			wait = mostLook
		}
		watch.Wait(ctx, wait)
	}
	return false
}

// usageAt is the use of memory with so many bytes less than now. It is asked for of cgroups of version 1 alone.
func (p *Meter) usageAt(s Signal, left int64) memwatch.Threshold {
	group := ""
	if s == AllocatableMemoryAvailable {
		group = p.Kubepods()
	}
	usage, _ := number(filepath.Join(p.Cgroups, "memory", group, "memory.usage_in_bytes"))
	return memwatch.Threshold{Group: group, Usage: usage + left}
}
