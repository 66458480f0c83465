package known

import "time"

// Anchor returns the time at by the monotonic clock of now, so that a wall clock that is set later changes no difference to it.
// The runtime, checkpoints and the API server record times of the wall clock. A recorded time after now precedes a clock that was
// set back, and counts as now.
func Anchor(at, now time.Time) time.Time { return now.Add(min(at.Sub(now), 0)) }

// SetStart records the pod's start time, unless an earlier one is known.
func (s *State) SetStart(at, now time.Time) {
	if s.Started.IsZero() || at.Before(s.Started) {
		s.setStart(at, now)
	}
}

// seedStart restores the start time from the pod's last status. A status of this process has a monotonic time, which is better
// than the wall time of the runtime's record.
func (s *State) seedStart(at, now time.Time) {
	same := at.Equal(s.Started.Truncate(time.Second))
	if s.Started.IsZero() || same && at != withoutMonotonic(at) {
		s.setStart(at, now)
	}
}

// setStart sets both start times. The reported one keeps its wall time, and has a monotonic part if possible.
func (s *State) setStart(at, now time.Time) {
	s.Started, s.active = at, Anchor(at, now)
	if withoutMonotonic(s.active).Equal(withoutMonotonic(at)) {
		s.Started = s.active
	}
}

// ReportedStart returns the start time in seconds, for the status. Unlike Truncate, it keeps the monotonic part.
func (s *State) ReportedStart() time.Time {
	return s.Started.Add(-time.Duration(s.Started.Nanosecond()))
}

func withoutMonotonic(t time.Time) time.Time { return t.Round(0) }
