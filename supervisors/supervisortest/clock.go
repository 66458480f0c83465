package supervisortest

import (
	"time"
	"unsafe"
)

// rawTime has the fields of a time.Time. TestSetClock fails if the standard library changes them.
type rawTime struct {
	wall uint64
	ext  int64
	loc  *time.Location
}

// Parts of a time.Time with a monotonic part: wall has a flag, the seconds since 1885 and the nanoseconds. ext has the monotonic
// clock.
const (
	hasMonotonic = 1 << 63
	secondBits   = 30
	wallSeconds  = 1<<33 - 1
	since1885    = 2_682_288_000 // until 1970
)

// begin is when a Kit's clock begins.
var (
	begin    = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	beginNow = time.Now()
)

// Monotonic returns this time with a monotonic part, as time.Now has it. Equal times have equal parts.
func Monotonic(t time.Time) time.Time {
	out := beginNow.Add(t.Sub(begin))
	setWall(&out, t)
	return out
}

// SetClock returns the time of the same moment by a wall clock that was set forward by d, or back if d is negative. The monotonic
// part, which t must have, is unchanged.
func SetClock(t time.Time, d time.Duration) time.Time {
	setWall(&t, t.Round(0).Add(d))
	return t
}

func setWall(t *time.Time, wall time.Time) {
	raw := (*rawTime)(unsafe.Pointer(t)) // there is no other way to have the two clocks differ
	if raw.wall&hasMonotonic == 0 {
		panic("a time without a monotonic part")
	}
	seconds := uint64(wall.Unix()+since1885) & wallSeconds                                      //nolint:gosec // after 1885
	raw.wall = hasMonotonic | seconds<<secondBits | uint64(wall.Nanosecond())&(1<<secondBits-1) //nolint:gosec // not negative
	if raw.loc = wall.Location(); raw.loc == time.UTC {
		raw.loc = nil // as the library has it, so that equal times are equal values
	}
}

// SetClock sets the actor's wall clock forward by d, or back if d is negative. No time passes: timers are due when they were.
// Clock stays as it is.
func (k *Kit) SetClock(d time.Duration) { k.jumped += d }

// Now implements supervisors.Context.
func (k *recordingContext) Now() time.Time {
	if k.jumped == 0 {
		return k.Clock.Now()
	}
	return SetClock(k.Clock.Now(), k.jumped)
}
