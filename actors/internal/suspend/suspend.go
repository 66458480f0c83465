// Package suspend measures how long the machine was suspended. Go's monotonic clock, and with it each timer, stops meanwhile,
// while the things that expire at a date do not wait.
package suspend

import (
	"time"

	"golang.org/x/sys/unix"
)

// begin is the suspended time before the process.
var begin = total()

// Total returns for how long the machine was suspended since the process began. It only grows, apart from the microseconds
// between two readings. Setting the wall clock has no effect. Safe for concurrent use.
func Total() time.Duration { return total() - begin }

// total compares the two clocks that differ by suspensions alone; see clock_gettime(2).
func total() time.Duration {
	var awake, boot unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil {
		return 0 // not on Linux since 2.6.39
	}
	// A pause between the two readings counts as a suspension until the next call.
	return time.Duration(boot.Nano() - awake.Nano())
}

// Short is a suspension that needs no attention.
const Short = time.Second
