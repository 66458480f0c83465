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
		b := newBook(c.maxSize, 1, time.Second)
		b.begin()
		s := big("a")
		c.change(&s)
		if b.looked([]sight{s}, true); b.active["a"] != c.want {
			t.Errorf("%s: tended %v", c.name, b.active)
		}
	}
}

func TestAProblemIsToldOnce(t *testing.T) {
	b := newBook(100, 1, time.Second)
	b.begin()
	a := big("a").container
	warned := 0
	for _, text := range []string{"full", "full", "", "full", "other"} {
		for _, e := range b.looked([]sight{big("a")}, true) {
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
	if b.looked(nil, true); len(b.told) != 0 {
		t.Errorf("of a container that is gone there is %v", b.told)
	}
}

// What changes while nobody looks is looked at soon, however often it is said; what changes while somebody looks, after
// that.
func TestChangesAreGathered(t *testing.T) {
	b := newBook(100, 1, time.Hour)
	b.begin()
	if got := b.changed(); got != nil {
		t.Errorf("while looking: %v", got)
	}
	got := b.looked(nil, true)
	if want := []effect{lookAfter{soon, b.turn}}; !reflect.DeepEqual(got, want) {
		t.Errorf("after looking: %v, want %v", got, want)
	}
	if got := b.changed(); got != nil {
		t.Errorf("a second time: %v", got)
	}
	if got := b.due(b.turn); len(got) != 1 {
		t.Errorf("due: %v", got)
	}
	if got := b.looked(nil, true); !reflect.DeepEqual(got, []effect{lookAfter{time.Hour, b.turn}}) {
		t.Errorf("when nothing changed: %v", got)
	}
	regular := b.turn
	if got := b.changed(); !reflect.DeepEqual(got, []effect{lookAfter{soon, b.turn}}) || b.turn == regular {
		t.Errorf("at rest: %v", got)
	}
	if got := b.due(regular); got != nil {
		t.Errorf("the timer before: %v", got)
	}
}

// Whatever comes in whatever order: no log is worked on twice at once, no more of them than there are workers, and there
// is always either a look or a timer that counts.
func TestTheBookHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBook(100, rapid.IntRange(1, 3).Draw(t, "workers"), time.Second)
		active, timer := map[string]container{}, uint64(0)
		take := func(effects []effect) {
			for _, e := range effects {
				switch e := e.(type) {
				case tend:
					if _, twice := active[e.id]; twice {
						t.Fatalf("%s is worked on twice", e.id)
					}
					active[e.id] = e.container
				case lookAfter:
					timer = e.turn
				}
			}
			if len(active) > b.workers {
				t.Fatalf("%d are worked on by %d", len(active), b.workers)
			}
			if b.phase == resting && timer != b.turn {
				t.Fatal("nobody will look again")
			}
		}
		take(b.begin())
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				take(b.changed())
			case 1:
				take(b.due(timer))
			case 2:
				if b.phase != looking {
					continue
				}
				var found []sight
				for i := range rapid.IntRange(0, 5).Draw(t, "found") {
					found = append(found, big(fmt.Sprint(i)))
				}
				take(b.looked(found, rapid.Bool().Draw(t, "whole")))
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
