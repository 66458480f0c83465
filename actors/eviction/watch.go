package eviction

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/eviction/memwatch"
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
	// leastPause is between two looks at memory where the kernel tells of it all the time.
	leastPause = 100 * time.Millisecond
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
		if s.kind() == v1.NodeMemoryPressure {
			of = string(s.kind())
		}
		if apart[of] == nil {
			apart[of] = map[Signal]int64{}
		}
		apart[of][s] = level
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var short atomic.Bool
	all := together{broken: cancel}
	for of, levels := range apart {
		wait := p.awaitOthers
		if of == string(v1.NodeMemoryPressure) {
			wait = p.awaitMemory
		}
		all.Go(func() {
			if wait(ctx, levels) {
				short.Store(true)
				cancel()
			}
		})
	}
	all.Wait()
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

// memoryWatch has the kernel tell; *memwatch.Watch does.
type memoryWatch interface {
	Exact() bool
	Broken() bool
	Wait(ctx context.Context, limit time.Duration)
	Close()
}

func arm(cgroups, proc string, list []memwatch.Threshold) memoryWatch {
	return memwatch.Arm(cgroups, proc, list)
}

// awaitMemory waits for memory. A kernel that is told to tell of usage tells of that alone, and the thresholds are of the working
// set: which pages of the cache are not in use changes all the time. So it is told anew at each look.
func (p *Meter) awaitMemory(ctx context.Context, levels map[Signal]int64) bool {
	var watch memoryWatch = (*memwatch.Watch)(nil)
	defer func() { watch.Close() }()
	for ctx.Err() == nil {
		readings, wait := p.MeasureMemory(ctx).Readings, mostLook
		var list []usageLevel
		for s, level := range levels {
			r, measured := readings[s]
			if !measured {
				continue
			}
			if r.Available < level {
				return true
			}
			wait = min(wait, lookIn(s, r.Available-level))
			list = append(list, p.usageAt(s, r, level))
		}
		if watch.Exact() || watch.Broken() {
			watch.Close()
			watch = p.arm(p.Cgroups, p.Proc, thresholds(list))
		}
		if watch.Exact() && p.allSure(list) {
			wait = mostLook
		}
		looked := time.Now()
		watch.Wait(ctx, wait)
		// A use that goes up and down about a threshold is told of all the time.
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(looked.Add(min(wait, leastPause)))):
		}
	}
	return false
}

// usageLevel is what the kernel is to tell of a cgroup of version 1, which knows no working set but only all that is used, the
// cache with it.
type usageLevel struct {
	memwatch.Threshold
	// sure says that the working set cannot reach its level before usage crosses the threshold, whatever becomes of the cache.
	sure bool
}

// usageAt is the use of memory to be told of. Where all that is used is less than the working set may be, that is what the
// working set may be. Where the cache has filled the rest, such a threshold was crossed long ago; then it is the use that there
// is if the cache stays as it is, which may lie beyond what there is.
func (p *Meter) usageAt(s Signal, r Reading, level int64) usageLevel {
	group := ""
	if s == AllocatableMemoryAvailable && p.Kubepods != nil {
		group = p.Kubepods()
	}
	l := usageLevel{memwatch.Threshold{Group: group, Usage: r.Capacity - level}, true}
	if usage, ok := p.usage(group); !ok || usage >= l.Usage {
		l.Usage, l.sure = usage+r.Available-level, false
	}
	return l
}

// usage is all that is used of a cgroup of version 1.
func (p *Meter) usage(group string) (int64, bool) {
	n, err := number(filepath.Join(p.Cgroups, "memory", group, "memory.usage_in_bytes"))
	return n, err == nil
}

func thresholds(list []usageLevel) []memwatch.Threshold {
	out := make([]memwatch.Threshold, 0, len(list))
	for _, l := range list {
		out = append(out, l.Threshold)
	}
	return out
}

// allSure says that the kernel tells of each level in time. What was crossed before it was asked to tell is not told.
func (p *Meter) allSure(list []usageLevel) bool {
	return !slices.ContainsFunc(list, func(l usageLevel) bool {
		usage, ok := p.usage(l.Group)
		return !l.sure || !ok || usage >= l.Usage
	})
}
