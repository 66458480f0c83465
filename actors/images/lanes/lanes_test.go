package lanes

import (
	"slices"
	"testing"
	"time"
)

var epoch = time.Unix(1000, 0)

// turns are the registries that pulls begin of while all of them have some waiting.
func turns(l *Lanes, waiting ...string) (out []string) {
	for _, registry := range waiting {
		l.Need(epoch, registry)
	}
	for registry := l.Next(epoch, waiting); registry != ""; registry = l.Next(epoch, waiting) {
		out = append(out, registry)
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
	l.End("b")
	if l.May("a") || !l.May("b") {
		t.Error("the last slot is the slow registry's")
	}
	for range 2 {
		l.End("a")
	}
	l.Prune(epoch.Add(Kept + 1))
	if all, of := l.Running(); all != 0 || len(of) != 0 {
		t.Errorf("after an hour: %d, %v", all, of)
	}
}

func TestATokenIsWaitedFor(t *testing.T) {
	l := New(10, 2, 3)
	if got := turns(l, "a"); len(got) != 3 || !l.TokenAt().Equal(epoch.Add(time.Second/2)) {
		t.Errorf("%q, the next at %s", got, l.TokenAt())
	}
	if got := l.Next(l.TokenAt(), []string{"a"}); got != "a" || !l.TokenAt().IsZero() {
		t.Errorf("%q, the next at %s", got, l.TokenAt())
	}
}
