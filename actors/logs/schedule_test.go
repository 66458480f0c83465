package logs

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func big(id string) sight {
	return sight{container: container{id: id, uid: "u" + id, running: true}, size: 100}
}

func TestWhatIsTended(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*sight)
		maxSize int64
		want    bool
	}{
		{"too big", func(*sight) {}, 100, true},
		{"not big enough", func(s *sight) { s.size = 99 }, 100, false},
		{"rotation is off", func(*sight) {}, -1, false},
		{"missing", func(s *sight) { s.size = -1 }, 100, true},
		{"missing, and rotation is off", func(s *sight) { s.size = -1 }, -1, false},
		{"ended", func(s *sight) { s.running = false }, 100, false},
		{"ended, with leftovers", func(s *sight) { s.running, s.left = false, true }, 100, true},
		{"cannot be seen", func(s *sight) { s.problem = errors.New("x") }, 100, false},
	} {
		b := newSchedule(c.maxSize, 1, time.Second)
		s := big("a")
		c.change(&s)
		b.changed(s.uid, []container{s.container})
		if b.looked([]sight{s}); b.active["a"] != c.want {
			t.Errorf("%s: tended %v", c.name, b.active)
		}
	}
}

func TestAProblemIsToldOnce(t *testing.T) {
	b := newSchedule(100, 1, time.Second)
	a := big("a").container
	b.changed(a.uid, []container{a})
	warned := 0
	for _, text := range []string{"full", "full", "", "full", "other"} {
		for _, e := range b.looked([]sight{big("a")}) {
			if _, ok := e.(warn); ok {
				warned++
			}
		}
		var err error
		if text != "" {
			err = errors.New(text)
		}
		for _, e := range b.tended(a, err) {
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

// What changes while nobody looks is looked at soon, however often it is said; what changes while somebody looks, after
// that.
func TestChangesAreGathered(t *testing.T) {
	b := newSchedule(100, 1, time.Hour)
	a, other := big("a").container, big("b").container
	b.begin()
	if got := b.changed(a.uid, []container{a}); got != nil {
		t.Errorf("while looking: %v", got)
	}
	if got := b.begin(); got != nil {
		t.Errorf("a second look beside it: %v", got)
	}
	if got, want := b.looked(nil), []effect{lookAfter{soon}}; !reflect.DeepEqual(got, want) {
		t.Errorf("after looking: %v, want %v", got, want)
	}
	if got := b.changed(other.uid, []container{other}); got != nil {
		t.Errorf("a second time: %v", got)
	}
	want := []effect{look{containers: []container{a, other}, fresh: map[string]bool{"a": true, "b": true}}}
	if got := b.begin(); !reflect.DeepEqual(got, want) {
		t.Errorf("due: %v", got)
	}
	if got := b.looked(nil); !reflect.DeepEqual(got, []effect{lookAfter{time.Hour}}) {
		t.Errorf("when nothing changed: %v", got)
	}
	if got := b.changed(a.uid, []container{a}); got != nil {
		t.Errorf("told the same: %v", got)
	}
	if got := b.changed(a.uid, nil); !reflect.DeepEqual(got, []effect{lookAfter{soon}}) {
		t.Errorf("at rest: %v", got)
	}
}

// Whatever comes in whatever order: no log is worked on twice at once, no more of them than there are workers. There is
// always a look or a timer that leads to one, and it comes soon after each change.
func TestTheScheduleHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newSchedule(100, rapid.IntRange(1, 3).Draw(t, "workers"), time.Minute)
		active, timer := map[string]container{}, time.Duration(0)
		var under look
		take := func(effects []effect) {
			for _, e := range effects {
				switch e := e.(type) {
				case tend:
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
			if b.phase == resting && (timer == 0 || b.changes && timer > soon) {
				t.Fatalf("nobody will look again: %v, changes %v", timer, b.changes)
			}
		}
		take(b.begin())
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
					timer = 0
					take(b.begin())
				}
			case 2:
				if b.phase != looking {
					continue
				}
				var found []sight
				for _, c := range under.containers {
					found = append(found, sight{container: c, size: 100})
				}
				take(b.looked(found))
			case 3:
				for id, c := range active {
					delete(active, id)
					take(b.tended(c, nil))
					break
				}
			}
		}
	})
}
