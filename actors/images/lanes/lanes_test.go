package lanes

import (
	"slices"
	"testing"
	"time"
)

var epoch = time.Unix(1000, 0)

// turns returns the registries of the pulls that begin, while each registry has pulls waiting.
func turns(l *Lanes, waiting ...string) (out []string) {
	var lines []Line
	for _, registry := range waiting {
		lines = append(lines, Line{Registry: registry})
	}
	for _, line := range lines {
		l.Need(epoch, line)
	}
	for line, more := l.Next(epoch, lines); more; line, more = l.Next(epoch, lines) {
		out = append(out, line.Registry)
	}
	return out
}

func TestRegistriesTakeTurnsAndShare(t *testing.T) {
	if got := turns(New(3, 0, 0), "a"); !slices.Equal(got, []string{"a", "a", "a"}) {
		t.Errorf("one alone: %q", got)
	}
	l := New(3, 0, 0)
	if got := turns(l, "a", "b"); !slices.Equal(got, []string{"a", "b", "a"}) {
		t.Errorf("two: %q", got)
	}
	l.End(Line{Registry: "b"})
	if l.May(Line{Registry: "a"}) || !l.May(Line{Registry: "b"}) {
		t.Error("the last slot is the slow registry's")
	}
	for range 2 {
		l.End(Line{Registry: "a"})
	}
	l.Prune(epoch.Add(Kept + 1))
	if all, of := l.Running(); all != 0 || len(of) != 0 || len(l.tenants) != 0 {
		t.Errorf("after an hour: %d, %v", all, of)
	}
}

func TestATokenIsWaitedFor(t *testing.T) {
	l := New(10, 2, 3)
	if got := turns(l, "a"); len(got) != 3 || !l.TokenAt().Equal(epoch.Add(time.Second/2)) {
		t.Errorf("%q, the next at %s", got, l.TokenAt())
	}
	if got, _ := l.Next(l.TokenAt(), []Line{{Registry: "a"}}); got.Registry != "a" || !l.TokenAt().IsZero() {
		t.Errorf("%q, the next at %s", got, l.TokenAt())
	}
}

// A tenant gets half of the slots that other tenants leave, regardless of the number of its registries. A pull that gave its
// slot away still counts for its own tenant, and for no other.
func TestLanes_TenantsShare(t *testing.T) {
	l := New(4, 0, 0)
	other := Line{"other", "s"}
	l.Need(epoch, other)
	fill := func(line Line) (n int) {
		for l.Need(epoch, line); ; n++ {
			if _, more := l.Next(epoch, []Line{line}); !more {
				return n
			}
		}
	}
	if n := fill(Line{"greedy", "r"}) + fill(Line{"greedy", "s"}); n != 2 {
		t.Errorf("the greedy tenant has %d of 4 slots, want 2", n)
	}
	if n := fill(other); n != 1 {
		t.Errorf("the other tenant has %d slots, want 1", n)
	}
	l.Lend(Line{"greedy", "r"})
	if n := fill(Line{"greedy", "r"}); n != 0 {
		t.Errorf("the greedy tenant has %d slots for the one that it gave away", n)
	}
	if n := fill(Line{"third", "s"}); n != 1 {
		t.Errorf("a third tenant has %d slots, want 1", n)
	}
	l.EndLent(Line{"greedy", "r"})
	if l.Idle("greedy") || !l.Idle("new") || l.tenants["greedy"].lent != 0 {
		t.Errorf("the greedy tenant has %+v", l.tenants["greedy"])
	}
}

// The tenant with the fewest pulls goes first, even if its registry has more. Equal tenants take turns, regardless of registry.
func TestLanes_TenantsTakeTurns(t *testing.T) {
	l := New(4, 0, 0)
	lines := []Line{{"greedy", "r"}, {"other", "s"}}
	for _, line := range append(lines, Line{"greedy", "s"}) {
		l.Need(epoch, line)
	}
	l.Begin(epoch, Line{"greedy", "s"})
	if got, _ := l.Next(epoch, lines); got != lines[1] {
		t.Errorf("next is %v, want %v, which has no pull", got, lines[1])
	}
	l = New(1, 0, 0)
	lines = []Line{{"greedy", "a"}, {"greedy", "b"}, {"greedy", "c"}, {"other", "z"}}
	for _, line := range lines {
		l.Need(epoch, line)
	}
	var got []string
	for range 4 {
		line, _ := l.Next(epoch, lines)
		l.End(line)
		got = append(got, line.Tenant+" "+line.Registry)
	}
	if want := []string{"greedy a", "other z", "greedy b", "other z"}; !slices.Equal(got, want) {
		t.Errorf("turns %v, want %v", got, want)
	}
}
