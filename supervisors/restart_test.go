package supervisors

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestJudge(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(1000+s), 0) }
	s := Strategy{Panics: 2, Within: time.Minute, Then: Quarantine}
	full := func() float64 { return 1 }
	var r record
	for i, c := range []struct {
		at   int
		want verdict
	}{
		{0, verdict{}},
		{1, verdict{after: 100 * time.Millisecond}},
		{2, verdict{outcome: Quarantine, after: QuarantinePeriod}},
	} {
		if got := r.judge(s, at(c.at), full); got != c.want {
			t.Errorf("panic %d: %+v, want %+v", i, got, c.want)
		}
	}
	r.release(at(400))
	if got := r.judge(s, at(410), full); got.outcome != Quarantine {
		t.Errorf("a panic soon after the quarantine: %+v", got)
	}
	r.release(at(800))
	if got := r.judge(s, at(1000), full); got.outcome != "" {
		t.Errorf("a panic long after the quarantine: %+v", got)
	}
}

// Long after a quarantine, a child is again allowed all the panics of its row.
func TestProbationEnds(t *testing.T) {
	s := Strategy{Panics: 3, Within: time.Minute, Then: Quarantine}
	var r record
	r.release(time.Unix(0, 0))
	later := time.Unix(0, 0).Add(24 * time.Hour)
	for i := range s.Panics {
		if got := r.judge(s, later.Add(time.Duration(i)*time.Second), func() float64 { return 0 }); got.outcome != "" {
			t.Errorf("panic %d of %d that are allowed: %+v", i+1, s.Panics, got)
		}
	}
	if got := r.judge(s, later.Add(time.Duration(s.Panics)*time.Second), func() float64 { return 0 }); got.outcome != Quarantine {
		t.Errorf("one more: %+v", got)
	}
}

func TestJudgeNeverExceedsIntensity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Strategy{Panics: rapid.IntRange(0, 6).Draw(t, "panics"), Within: time.Minute,
			Then: rapid.SampledFrom([]Outcome{Escalate, Quarantine}).Draw(t, "then")}
		var r record
		var times []time.Time
		now := time.Unix(0, 0)
		for range rapid.IntRange(1, 30).Draw(t, "n") {
			now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "gap")) * time.Second)
			recent := 1
			for _, p := range times {
				if now.Sub(p) < s.Within {
					recent++
				}
			}
			times = append(times, now)
			v := r.judge(s, now, func() float64 { return 0.5 })
			if (v.outcome != "") != (recent > s.Panics) {
				t.Fatalf("%d panics within %s of %d allowed, and the verdict is %+v", recent, s.Within, s.Panics, v)
			}
			if v.outcome == "" && (v.after < 0 || v.after > panicRetry.Max) {
				t.Fatalf("back-off %s", v.after)
			}
		}
	})
}
