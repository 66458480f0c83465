package eviction

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/memwatch"
	"github.com/playlet-dev/playlet/actors/internal/threshold"
)

// How fast a few busy cores can use up memory and disks, in bytes a second, and inodes and tasks. Where the kernel does not tell
// of a threshold, what is left is looked at again before it could be crossed: nothing is polled hard while much is left.
const (
	memoryRate = 4 << 30
	diskRate   = 2 << 30
	countRate  = 50_000
)

// The time between two looks at memory, and at all else, is no less than these, and no more than mostLook.
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
// at memory.
func (p *Meter) Await(ctx context.Context, levels map[Signal]int64) bool {
	memory, others := map[Signal]int64{}, map[Signal]int64{}
	for s, level := range levels {
		if s.kind() == v1.NodeMemoryPressure {
			memory[s] = level
		} else {
			others[s] = level
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var short atomic.Bool
	var all sync.WaitGroup
	await := func(wait func(context.Context, map[Signal]int64) bool, levels map[Signal]int64) {
		if len(levels) > 0 && wait(ctx, levels) {
			short.Store(true)
			cancel()
		}
	}
	var panicked any
	all.Go(func() {
		defer func() {
			if panicked = recover(); panicked != nil {
				cancel()
			}
		}()
		await(p.awaitOthers, others)
	})
	await(p.awaitMemory, memory)
	if all.Wait(); panicked != nil {
		panic(panicked) // where it is caught, and the actor restarted
	}
	return short.Load()
}

// awaitOthers waits for disks and tasks, of which no kernel tells.
func (p *Meter) awaitOthers(ctx context.Context, levels map[Signal]int64) bool {
	for ctx.Err() == nil {
		now, wait := p.measureOthers(ctx, levels), mostLook
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

func (p *Meter) awaitMemory(ctx context.Context, levels map[Signal]int64) bool {
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
			wait = min(wait, lookIn(s, left))
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
