package runtime

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Unix(100, 0)

func TestReadQueue(t *testing.T) {
	q := newReadQueue(2)
	q.ask("a")
	if _, _, ok := q.next(epoch); ok {
		t.Fatal("read while closed")
	}
	q.open = true
	for _, uid := range []string{"b", "c", "a"} {
		q.ask(uid)
	}
	begin := func(want string) {
		t.Helper()
		got, _, ok := q.next(epoch)
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
	q.ask("a")
	q.ask("a")
	q.done("a")
	begin("c")
	q.done("b")
	begin("a") // once more, and once only
	q.done("a")
	q.done("c")
	begin("")
	if len(q.pods) != 0 || q.running != 0 {
		t.Errorf("left behind: %+v", q)
	}
}

func TestReadQueueListings(t *testing.T) {
	old, same, other := &listed{sig: 1}, &listed{sig: 1}, &listed{sig: 2}
	later := &listed{sig: 1, readAt: epoch.Add(1)}
	tests := map[string]struct {
		asks  []*listed // before its turn
		while []*listed // while it is read
		from  *listed
		again bool
	}{
		"from an audit":                              {asks: []*listed{old}, from: old},
		"the newer audit's":                          {asks: []*listed{old, other}, from: other},
		"somebody asks for newer":                    {asks: []*listed{old, nil}},
		"an audit is not newer than what is to come": {asks: []*listed{nil, old}},
		"the same difference again":                  {asks: []*listed{old}, while: []*listed{same}, from: old},
		"another difference":                         {asks: []*listed{old}, while: []*listed{other}, from: old, again: true},
		"asked while it is read":                     {asks: []*listed{old}, while: []*listed{nil}, from: old, again: true},
		"a difference while it is read":              {asks: []*listed{nil}, while: []*listed{later}, again: true},
		"a difference from before it was read":       {asks: []*listed{nil}, while: []*listed{old}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			q := newReadQueue(1)
			q.open = true
			for _, l := range tc.asks {
				q.want("a", l)
			}
			if _, from, ok := q.next(epoch); !ok || from != tc.from {
				t.Errorf("read from %v, %t", from, ok)
			}
			for _, l := range tc.while {
				q.want("a", l)
			}
			q.done("a")
			if _, from, ok := q.next(epoch); ok != tc.again || from != nil {
				t.Errorf("again: %v, %t", from, ok)
			}
		})
	}
}

func TestReadQueueWaits(t *testing.T) {
	q := newReadQueue(1)
	q.open = true
	q.ask("a")
	q.next(epoch)
	q.busy("a")
	q.ask("a")
	q.rested("a") // not what it waits for
	if _, _, ok := q.next(epoch); ok || q.running != 0 {
		t.Fatal("read before its own operations are over, or a slot is held meanwhile")
	}
	q.settled("a")
	q.settled("a")
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		if _, _, ok := q.next(epoch); !ok {
			t.Fatalf("not read the %d. time", i)
		}
		if got := q.failed("a"); got != want*time.Second {
			t.Errorf("rest %s after %d failures", got, i+1)
		}
		q.rested("a")
	}
	q.next(epoch)
	q.failed("a")
	q.rouse()
	if _, _, ok := q.next(epoch); !ok {
		t.Error("not roused")
	}
	q.done("a")
	q.rested("a")
	q.hold("b")
	q.ask("b")
	q.ask("c")
	if uid, _, _ := q.next(epoch); uid != "c" {
		t.Errorf("read %q while b is held", uid)
	}
	q.done("c")
	q.release("b")
	if uid, _, _ := q.next(epoch); uid != "b" {
		t.Errorf("%q after b was released", uid)
	}
}

// What is asked is read, by one reading at a time, with no slot lost, whatever the order of things.
func TestReadQueueKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 3).Draw(t, "limit")
		q := newReadQueue(limit)
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
			u, _, ok := q.next(epoch)
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
			"ask":     func(t *rapid.T) { u := uid.Draw(t, "pod"); q.ask(u); asked[u] = true },
			"next":    func(*rapid.T) { next() },
			"done":    func(t *rapid.T) { end(t, q.done) },
			"busy":    func(t *rapid.T) { end(t, func(u string) { q.busy(u); asked[u] = true }) },
			"failed":  func(t *rapid.T) { end(t, func(u string) { q.failed(u); asked[u] = true }) },
			"settled": func(t *rapid.T) { q.settled(uid.Draw(t, "pod")) },
			"rested":  func(t *rapid.T) { q.rested(uid.Draw(t, "pod")) },
			"hold":    func(t *rapid.T) { q.hold(uid.Draw(t, "pod")) },
			"release": func(t *rapid.T) { q.release(uid.Draw(t, "pod")) },
			"open":    func(t *rapid.T) { q.open = rapid.Bool().Draw(t, "open") },
			"": func(t *rapid.T) {
				if q.running != len(underWay) || q.running > limit {
					t.Fatalf("%d slots for %v", q.running, underWay)
				}
				for u := range asked {
					if !q.pending(u) {
						t.Fatalf("the request for %s was lost", u)
					}
				}
			},
		})
		q.open = true
		for _, u := range []string{"a", "b", "c", "d"} {
			q.release(u)
			q.settled(u)
			q.rested(u)
		}
		for range 20 {
			for next() {
				continue
			}
			for _, u := range underWay {
				q.done(u)
			}
			underWay = nil
		}
		if len(asked) != 0 || len(q.pods) != 0 || len(q.line) != 0 {
			t.Fatalf("not read: %v; %s", asked, fmt.Sprint(q.pods))
		}
	})
}
