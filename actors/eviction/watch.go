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

// The rates at which a few busy cores can use up memory and disks, in bytes per second, and inodes and tasks. Where the kernel
// does not notify, a signal is checked again before it could cross the threshold: polling is slow while much is left.
const (
	memoryRate = 4 << 30
	diskRate   = 2 << 30
	countRate  = 50_000
)

// The interval between two checks of memory, or of other signals, is at least this and at most mostLook.
const (
	leastLook      = 250 * time.Millisecond
	leastOtherLook = time.Second
	mostLook       = 10 * time.Second
	// leastPause is the interval between checks of memory while the kernel notifies all the time.
	leastPause = 100 * time.Millisecond
)

// levels returns the thresholds to be met next, in remaining bytes, inodes or tasks.
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

// lookIn returns the time to the next check of a signal with this much left until a threshold.
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

// Await blocks until less than one of the levels is left, and reports that, or until ctx ends. A hanging disk delays no check of
// memory or another disk.
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
	all := workGroup{broken: cancel}
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

// awaitOthers waits for disks and tasks, for which the kernel has no notification.
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

// memoryWatch is the kernel's notification; *memwatch.Watch implements it.
type memoryWatch interface {
	Exact() bool
	Broken() bool
	Wait(ctx context.Context, limit time.Duration)
	Close()
}

func arm(cgroups, proc string, list []memwatch.Threshold) memoryWatch {
	return memwatch.Arm(cgroups, proc, list)
}

// awaitMemory waits for memory. The kernel's thresholds are of usage, ours of the working set, and the inactive part of the
// cache changes all the time. The kernel's thresholds are therefore set again at each check.
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
		// A usage that oscillates about a threshold notifies all the time.
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(looked.Add(min(wait, leastPause)))):
		}
	}
	return false
}

// usageLevel is the kernel's threshold for a cgroup of version 1, which knows only the whole usage, including the cache, and no
// working set.
type usageLevel struct {
	memwatch.Threshold
	// sure is true if usage must cross the threshold before the working set can reach its level, whatever happens to the cache.
	sure bool
}

// usageAt returns the threshold of usage. If usage is below the permitted working set, that is the threshold. If the cache fills
// the rest, that threshold was crossed long ago; the result is then the usage for an unchanged cache, which may exceed the
// capacity.
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

// usage returns the whole usage of a cgroup of version 1.
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

// allSure reports whether the kernel notifies of each level in time. It does not notify of thresholds crossed before they were
// set.
func (p *Meter) allSure(list []usageLevel) bool {
	return !slices.ContainsFunc(list, func(l usageLevel) bool {
		usage, ok := p.usage(l.Group)
		return !l.sure || !ok || usage >= l.Usage
	})
}
