package eviction

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkIdle reports the meter's processor time per second at rest. It waits for memory, the node's file system and tasks
// while much is left, and measures once per interval of the actor.
func BenchmarkIdle(b *testing.B) {
	const every = 10 * time.Second // the actor's
	meter := Places{"/proc", "/sys/fs/cgroup", "/", "/", imageFs{at: "/"}, nil}.Meter()
	now := meter.Measure(b.Context())
	levels := map[Signal]int64{}
	for s, r := range now.Readings {
		levels[s] = r.Available / 20
	}
	var used, passed time.Duration
	for b.Loop() {
		began, before := time.Now(), processorTime(b)
		ctx, cancel := context.WithTimeout(b.Context(), every)
		meter.Measure(ctx)
		if meter.Await(ctx, levels) {
			b.Fatal("this machine is short of something")
		}
		cancel()
		used, passed = used+processorTime(b)-before, passed+time.Since(began)
	}
	b.ReportMetric(float64(used.Nanoseconds())/passed.Seconds(), "cpu-ns/s")
}

// processorTime returns this process's processor time.
func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
