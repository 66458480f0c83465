package volumes

import (
	"slices"
	"testing"
	"time"
)

func TestDriverReads_Due(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	periods := map[string]time.Duration{"a": 10 * time.Second, "b": time.Minute}
	var l driverReads
	check := func(after time.Duration, want []string, next time.Duration) {
		t.Helper()
		got, at := l.due(periods, begin.Add(after))
		slices.Sort(got)
		if !slices.Equal(got, want) || next == 0 != at.IsZero() || next > 0 && !at.Equal(begin.Add(next)) {
			t.Errorf("after %v %q are due, the next at %v; want %q, %v", after, got, at, want, begin.Add(next))
		}
	}
	check(0, nil, 10*time.Second)
	check(9*time.Second, nil, 10*time.Second)
	check(10*time.Second, []string{"a"}, time.Minute)
	l.reading["a"] = true
	check(70*time.Second, []string{"b"}, 0)
	delete(l.reading, "a")
	l.readAt["a"], l.readAt["b"] = begin.Add(70*time.Second), begin.Add(70*time.Second)
	check(71*time.Second, nil, 80*time.Second)
	delete(periods, "a")
	check(90*time.Second, nil, 130*time.Second)
	periods["a"] = 10 * time.Second // begins again
	check(91*time.Second, nil, 101*time.Second)
}
