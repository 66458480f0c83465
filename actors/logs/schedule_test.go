package logs

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func big(id string) logState {
	return logState{container: container{id: id, uid: "u" + id, running: true, link: "pod-" + id + "_ns_app-" + id + ".log"}, size: 100}
}

func TestWhatIsTended(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*logState)
		maxSize int64
		want    bool
	}{
		{"too big", func(*logState) {}, 100, true},
		{"not big enough", func(s *logState) { s.size = 99 }, 100, false},
		{"rotation is off", func(*logState) {}, -1, false},
		{"missing", func(s *logState) { s.size = -1 }, 100, true},
		{"missing, and rotation is off", func(s *logState) { s.size = -1 }, -1, false},
		{"ended", func(s *logState) { s.running = false }, 100, false},
		{"ended, with leftovers", func(s *logState) { s.running, s.left = false, true }, 100, true},
		{"cannot be seen", func(s *logState) { s.problem = errors.New("x") }, 100, false},
	} {
		b := newSchedule(c.maxSize, 1, time.Second)
		s := big("a")
		c.change(&s)
		b.changed(s.uid, []container{s.container})
		if b.handleLook([]logState{s}, time.Time{}); b.active["a"] != c.want {
			t.Errorf("%s: tended %v", c.name, b.active)
		}
	}
}

func TestAProblemIsReportedOnce(t *testing.T) {
	b := newSchedule(100, 1, time.Second)
	a := big("a").container
	b.changed(a.uid, []container{a})
	warned := 0
	for _, text := range []string{"full", "full", "", "full", "other"} {
		for _, e := range b.handleLook([]logState{big("a")}, time.Time{}) {
			if _, ok := e.(warn); ok {
				warned++
			}
		}
		var err error
		if text != "" {
			err = errors.New(text)
		}
		for _, e := range b.handleMaintenance(a, err) {
			if _, ok := e.(warn); ok {
				warned++
			}
		}
	}
	if warned != 3 {
		t.Errorf("warned %d times", warned)
	}
	if b.changed(a.uid, nil); len(b.problems) != 0 {
		t.Errorf("of a container that is gone there is %v", b.problems)
	}
}

// Changes lead to one look soon after the first of them. Changes during a look lead to another look after it. Only the logs of
// changed pods are checked until the next complete look.
func TestChangesAreGathered(t *testing.T) {
	b, now := newSchedule(100, 1, time.Hour), time.Unix(1_000_000, 0)
	a, other := big("a").container, big("b").container
	is := func(what string, got []effect, want ...effect) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	none := map[string]bool{}
	is("at first", b.begin(now), look{complete: true, firstLook: none})
	is("while looking", b.changed(a.uid, []container{a}))
	is("a second look beside it", b.begin(now))
	is("after looking", b.handleLook(nil, now), lookAfter{soon})
	is("a second time", b.changed(other.uid, []container{other}))
	now = now.Add(time.Minute)
	is("due", b.begin(now), look{containers: []container{a, other}, links: []string{"pod-a_ns_", "pod-b_ns_"},
		firstLook: map[string]bool{"a": true, "b": true}})
	is("when nothing changed", b.handleLook([]logState{{container: a}, {container: other}}, now), lookAfter{59 * time.Minute})
	is("told the same", b.changed(a.uid, []container{a}))
	is("at rest", b.changed(a.uid, nil), lookAfter{soon})
	is("one pod's", b.begin(now), look{links: []string{"pod-a_ns_"}, firstLook: none})
	is("soon all", b.handleLook(nil, now.Add(time.Hour-soon/2)), lookAfter{soon})
	is("before all are looked at", b.changed(a.uid, []container{a}), lookAfter{soon})
	is("what is new", b.begin(now),
		look{containers: []container{a}, links: []string{"pod-a_ns_"}, firstLook: map[string]bool{"a": true}})
	now = now.Add(time.Hour)
	b.handleLook(nil, now)
	is("all", b.begin(now), look{containers: []container{a, other}, complete: true, firstLook: map[string]bool{"a": true}})
	is("after all", b.handleLook(nil, now), lookAfter{time.Hour})
}

// For any order of inputs, no log is in work twice at once, and the number of workers is never exceeded. A look or a timer for
// one is always pending, and it comes soon after each change.
func TestTheScheduleHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newSchedule(100, rapid.IntRange(1, 3).Draw(t, "workers"), time.Minute)
		active, timer, now := map[string]container{}, time.Duration(0), time.Unix(1_000_000, 0)
		var under look
		take := func(effects []effect) {
			for _, e := range effects {
				switch e := e.(type) {
				case maintenance:
					if _, twice := active[e.id]; twice {
						t.Fatalf("%s is worked on twice", e.id)
					}
					active[e.id] = e.container
				case lookAfter:
					timer = e.after
				case look:
					under = e
				}
			}
			if len(active) > b.workers {
				t.Fatalf("%d are worked on by %d", len(active), b.workers)
			}
			if b.phase == resting && (timer == 0 || len(b.changes) > 0 && timer > soon || now.Add(timer).After(b.lastComplete.Add(time.Minute))) {
				t.Fatalf("nobody will look again: %v, changes %v", timer, b.changes)
			}
		}
		take(b.begin(now))
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				c := big(fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "container"))).container
				c.running = rapid.Bool().Draw(t, "running")
				now := []container{c}
				if rapid.Bool().Draw(t, "gone") {
					now = nil
				}
				take(b.changed(c.uid, now))
			case 1:
				if timer > 0 {
					now, timer = now.Add(timer), 0
					take(b.begin(now))
				}
			case 2:
				if b.phase != looking {
					continue
				}
				var found []logState
				for _, c := range under.containers {
					found = append(found, logState{container: c, size: 100})
				}
				take(b.handleLook(found, now))
			case 3:
				for id, c := range active {
					delete(active, id)
					take(b.handleMaintenance(c, nil))
					break
				}
			}
		}
	})
}
