package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestRun_ContinuesAfterAFailureAndReportsIt(t *testing.T) {
	fixed := func(t tally, err error) func(context.Context, io.Writer) (tally, error) {
		return func(context.Context, io.Writer) (tally, error) { return t, err }
	}
	var out strings.Builder
	ok := run(t.Context(), &out, []step{
		{"a", "tests", fixed(tally{passed: 3, failed: 1, failures: []string{"p TestX"}}, nil)},
		{"a", "tool", fixed(tally{}, errors.New("exit status 1"))},
		{"b", "more", fixed(tally{passed: 1, skipped: 2}, nil)},
	})
	if ok {
		t.Error("it says that all is well")
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if got, want := lines[len(lines)-1], "4 passed, 2 failed, 2 skipped in "; !strings.HasPrefix(got, want) {
		t.Errorf("it ends with %q, want %q", got, want)
	}
	for _, want := range []string{"FAIL p TestX", "FAIL tool: exit status 1"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no line %q in\n%s", want, out.String())
		}
	}
	if !run(t.Context(), io.Discard, []step{{"a", "tests", fixed(tally{passed: 1}, nil)}}) {
		t.Error("nothing failed, and it says that something did")
	}
}

func TestAnInterruptIsNoSuccess(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	second := false
	ok := run(ctx, io.Discard, []step{
		{"a", "one", func(context.Context, io.Writer) (tally, error) { cancel(); return tally{passed: 1}, nil }},
		{"a", "two", func(context.Context, io.Writer) (tally, error) { second = true; return tally{passed: 1}, nil }},
	})
	if ok || second {
		t.Errorf("success %v; the next step was run %v", ok, second)
	}
}

func TestChoose(t *testing.T) {
	all := steps("1x")
	got, err := choose(all, []string{"unit", "lint"})
	if err != nil || got[0].name != "gofmt" || got[len(got)-1].group != "unit" {
		t.Errorf("%v, %v: steps run in the order of the table", got, err)
	}
	if _, err := choose(all, []string{"lint", "nonsense"}); err == nil {
		t.Error("a group that is not there is taken")
	}
	got, err = choose(all, nil)
	if err != nil || got[0].group != "build" || got[len(got)-1].group != "e2e" {
		t.Errorf("%v, %v: without names it builds first, and ends with e2e", got, err)
	}
}
