package readqueue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Unix(100, 0)

func TestReadQueue(t *testing.T) {
	q := New(2)
	q.Ask("a")
	if _, _, ok := q.Next(epoch); ok {
		t.Fatal("read while closed")
	}
	q.Open = true
	for _, uid := range []string{"b", "c", "a"} {
		q.Ask(uid)
	}
	begin := func(want string) {
		t.Helper()
		got, _, ok := q.Next(epoch)
		if !ok {
			got = ""
		}
		if got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	begin("a")
	begin("b")
	begin("") // two at once
	q.Ask("a")
	q.Ask("a")
	q.Done("a")
	begin("c")
	q.Done("b")
	begin("a") // once more, and once only
	q.Done("a")
	q.Done("c")
	begin("")
	if len(q.pods) != 0 || q.running != 0 {
		t.Errorf("left behind: %+v", q)
	}
}

func TestReadQueueListings(t *testing.T) {
	old, same, other := &PodListing{Sig: 1}, &PodListing{Sig: 1}, &PodListing{Sig: 2}
	later := &PodListing{Sig: 1, ReadAt: epoch.Add(1)}
	tests := map[string]struct {
		asks  []*PodListing // before its turn
		while []*PodListing // while it is read
		from  *PodListing
		again bool
	}{
		"from an audit":                              {asks: []*PodListing{old}, from: old},
		"the newer audit's":                          {asks: []*PodListing{old, other}, from: other},
		"somebody asks for newer":                    {asks: []*PodListing{old, nil}},
		"an audit is not newer than what is to come": {asks: []*PodListing{nil, old}},
		"the same difference again":                  {asks: []*PodListing{old}, while: []*PodListing{same}, from: old},
		"another difference":                         {asks: []*PodListing{old}, while: []*PodListing{other}, from: old, again: true},
		"asked while it is read":                     {asks: []*PodListing{old}, while: []*PodListing{nil}, from: old, again: true},
		"a difference while it is read":              {asks: []*PodListing{nil}, while: []*PodListing{later}, again: true},
		"a difference from before it was read":       {asks: []*PodListing{nil}, while: []*PodListing{old}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			q := New(1)
			q.Open = true
			for _, l := range tc.asks {
				q.want("a", l)
			}
			if _, from, ok := q.Next(epoch); !ok || from != tc.from {
				t.Errorf("read from %v, %t", from, ok)
			}
			for _, l := range tc.while {
				q.want("a", l)
			}
			q.Done("a")
			if _, from, ok := q.Next(epoch); ok != tc.again || from != nil {
				t.Errorf("again: %v, %t", from, ok)
			}
		})
	}
}

func TestReadQueueWaits(t *testing.T) {
	q := New(1)
	q.Open = true
	q.Ask("a")
	q.Next(epoch)
	q.Busy("a")
	q.Ask("a")
	q.Rested("a") // not the event that it waits for
	if _, _, ok := q.Next(epoch); ok || q.running != 0 {
		t.Fatal("read before its own operations are over, or a slot is held meanwhile")
	}
	q.Settled("a")
	q.Settled("a")
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		if _, _, ok := q.Next(epoch); !ok {
			t.Fatalf("not read the %d. time", i)
		}
		if got := q.Failed("a"); got != want*time.Second {
			t.Errorf("rest %s after %d failures", got, i+1)
		}
		q.Rested("a")
	}
	q.Next(epoch)
	q.Failed("a")
	q.Rouse()
	if _, _, ok := q.Next(epoch); !ok {
		t.Error("not roused")
	}
	q.Done("a")
	q.Rested("a")
	q.Hold("b")
	q.Ask("b")
	q.Ask("c")
	if uid, _, _ := q.Next(epoch); uid != "c" {
		t.Errorf("read %q while b is held", uid)
	}
	q.Done("c")
	q.Release("b")
	if uid, _, _ := q.Next(epoch); uid != "b" {
		t.Errorf("%q after b was released", uid)
	}
}

// In any order of events, each requested pod is read, by one reading at a time, and no slot is lost.
func TestReadQueueKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 3).Draw(t, "limit")
		q := New(limit)
		var underWay []string
		asked := map[string]bool{} // since the last reading of it began
		uid := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		end := func(t *rapid.T, f func(string)) {
			if len(underWay) == 0 {
				t.Skip("nothing is read")
			}
			i := rapid.IntRange(0, len(underWay)-1).Draw(t, "which")
			f(underWay[i])
			underWay = slices.Delete(underWay, i, i+1)
		}
		next := func() bool {
			u, _, ok := q.Next(epoch)
			if ok {
				if slices.Contains(underWay, u) {
					t.Fatalf("%s is read twice at once", u)
				}
				underWay = append(underWay, u)
				delete(asked, u)
			}
			return ok
		}
		t.Repeat(map[string]func(*rapid.T){
			"ask":     func(t *rapid.T) { u := uid.Draw(t, "pod"); q.Ask(u); asked[u] = true },
			"next":    func(*rapid.T) { next() },
			"done":    func(t *rapid.T) { end(t, q.Done) },
			"busy":    func(t *rapid.T) { end(t, func(u string) { q.Busy(u); asked[u] = true }) },
			"failed":  func(t *rapid.T) { end(t, func(u string) { q.Failed(u); asked[u] = true }) },
			"settled": func(t *rapid.T) { q.Settled(uid.Draw(t, "pod")) },
			"rested":  func(t *rapid.T) { q.Rested(uid.Draw(t, "pod")) },
			"hold":    func(t *rapid.T) { q.Hold(uid.Draw(t, "pod")) },
			"release": func(t *rapid.T) { q.Release(uid.Draw(t, "pod")) },
			"open":    func(t *rapid.T) { q.Open = rapid.Bool().Draw(t, "open") },
			"": func(t *rapid.T) {
				if q.running != len(underWay) || q.running > limit {
					t.Fatalf("%d slots for %v", q.running, underWay)
				}
				for u := range asked {
					if !q.Pending(u) {
						t.Fatalf("the request for %s was lost", u)
					}
				}
			},
		})
		q.Open = true
		for _, u := range []string{"a", "b", "c", "d"} {
			q.Release(u)
			q.Settled(u)
			q.Rested(u)
		}
		for range 20 {
			for next() {
				continue
			}
			for _, u := range underWay {
				q.Done(u)
			}
			underWay = nil
		}
		if len(asked) != 0 || len(q.pods) != 0 || len(q.waiting) != 0 {
			t.Fatalf("not read: %v; %s", asked, fmt.Sprint(q.pods))
		}
	})
}
