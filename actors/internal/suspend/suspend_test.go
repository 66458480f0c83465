package suspend

import (
	"testing"
	"time"
)

// The test's machine is not suspended meanwhile.
func TestTotal(t *testing.T) {
	if got := min(Total(), Total(), Total()); got.Abs() >= Short {
		t.Errorf("got a suspension of %s, want none", got)
	}
}

func TestMeter(t *testing.T) {
	var ahead, asleep, want time.Duration
	m := newMeter(func() (time.Duration, time.Duration) { return ahead, asleep })
	for _, c := range []struct {
		name               string
		set, slept, counts time.Duration
	}{
		{"nothing", 0, 0, 0},
		{"a short suspension", 2 * time.Second, 2 * time.Second, 2 * time.Second},
		{"a suspension", time.Hour, time.Hour, time.Hour},
		{"a paused virtual machine", 10 * time.Minute, 0, 10 * time.Minute},
		{"a clock that is set a little", 50 * time.Second, 0, 0},
		{"and once more", 50 * time.Second, 0, 100 * time.Second},
		{"a clock that is set back", -time.Hour, 0, SetBack},
		{"a suspension and a pause", 3 * time.Hour, time.Hour, 3 * time.Hour},
		{"a clock that is set back in a suspension", 0, time.Hour, time.Hour + SetBack},
		{"readings of the clocks one after the other", 0, -time.Microsecond, 0},
	} {
		ahead, asleep, want = ahead+c.set, asleep+c.slept, want+c.counts
		for range 2 {
			if got := m.total(); got != want {
				t.Errorf("after %s: got %s, want %s", c.name, got, want)
			}
		}
	}
}
