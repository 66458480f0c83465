// Package suspend measures how long the monotonic clock stood still: the machine was suspended, or its host paused it. Go's
// timers and durations stop meanwhile, while the things that expire at a date do not wait.
package suspend

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Short is a suspension that needs no attention.
	Short = time.Second
	// ClockSet is the least difference between wall clock and monotonic clock that counts as a clock that was set.
	ClockSet = time.Minute
	// SetBack is the suspension that a wall clock counts for that is set back: more than a day, so that every token is renewed.
	SetBack = 25 * time.Hour
)

// process measures the suspensions since the process began.
var process = newMeter(sinceNow())

// Total returns for how long the machine was suspended or paused since the process began. It never shrinks. A virtual machine
// that its host pauses has no clock that shows it: it finds its wall clock ahead. So a wall clock that is set forward by ClockSet
// or more counts as well. One that is set back by as much counts for SetBack: until it is there again, servers reject
// tokens that were issued before. Safe for concurrent use.
func Total() time.Duration { return process.total() }

// Set returns by how much the wall clock was set between two times of this process, or 0 if by less than ClockSet. A suspension
// sets it forward.
func Set(from, to time.Time) time.Duration {
	if by := ahead(from, to); by.Abs() >= ClockSet {
		return by
	}
	return 0
}

func ahead(from, to time.Time) time.Duration {
	return to.Round(0).Sub(from.Round(0)) - to.Sub(from)
}

// clocks returns by how much the wall clock is ahead of the monotonic clock, and for how long the kernel was suspended, both
// since a moment before.
type clocks func() (ahead, asleep time.Duration)

func sinceNow() clocks {
	from, slept := time.Now(), boot()
	return func() (time.Duration, time.Duration) { return ahead(from, time.Now()), boot() - slept }
}

// meter is safe for concurrent use.
type meter struct {
	read clocks

	mu    sync.Mutex
	slept time.Duration // the longest suspension read
	steps time.Duration // the suspensions that steps of the wall clock count for
	seen  time.Duration // the wall clock's steps, both ways, as last taken into account
}

func newMeter(read clocks) *meter { return &meter{read: read} }

func (m *meter) total() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	ahead, asleep := m.read()
	m.slept = max(m.slept, asleep)
	if step := ahead - asleep - m.seen; step.Abs() >= ClockSet {
		m.seen += step
		if step < 0 {
			step = SetBack
		}
		m.steps += step
	}
	return m.slept + m.steps
}

// boot compares the two clocks that differ by suspensions alone; see clock_gettime(2).
func boot() time.Duration {
	var awake, boot unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil {
		return 0 // not on Linux since 2.6.39
	}
	return time.Duration(boot.Nano() - awake.Nano())
}
