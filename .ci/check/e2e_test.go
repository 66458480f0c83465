package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestEachTestIsDealtOnce(t *testing.T) {
	list := "TestA\nTestAB\nTestB\nok  \tp\t0.1s\n"
	for n, want := range map[int]int{1: 1, 2: 2, 5: 3} {
		patterns := deal(list, n, nil)
		if len(patterns) != want {
			t.Errorf("%d lanes: %q", n, patterns)
		}
		for _, name := range []string{"TestA", "TestAB", "TestB"} {
			times := 0
			for _, p := range patterns {
				if regexp.MustCompile(p).MatchString(name) {
					times++
				}
			}
			if times != 1 {
				t.Errorf("%d lanes run %s %d times", n, name, times)
			}
		}
	}
	if got := deal("ok  \tp\t0.1s\n", 2, nil); len(got) != 0 {
		t.Errorf("%q of a package without tests", got)
	}
}

func TestTestsAreDealtByWhatTheyTook(t *testing.T) {
	took := map[string]float64{"TestA": 1, "TestB": 2, "TestC": 60, "TestD": 3}
	got := deal("TestA\nTestB\nTestC\nTestD\nTestNew\n", 2, took)
	if want := []string{"^(TestC)$", "^(TestD|TestB|TestA|TestNew)$"}; !slices.Equal(got, want) {
		t.Errorf("dealt were %q, want %q", got, want)
	}
}

func TestLanesAreCountedTogether(t *testing.T) {
	both := make(chan struct{})
	var out strings.Builder
	side := func(t tally, err error) func(context.Context, io.Writer) (tally, error) {
		return func(_ context.Context, out io.Writer) (tally, error) {
			select { // they only end if they run concurrently
			case both <- struct{}{}:
			case <-both:
			}
			fmt.Fprintln(out, "a")
			return t, err
		}
	}
	got, err := sideBySide(t.Context(), &out, side(tally{passed: 2}, nil),
		side(tally{passed: 1, failed: 1, failures: []string{"b"}}, errors.New("no")))
	if got.passed != 3 || got.failed != 1 || len(got.failures) != 1 || err == nil || len(out.String()) != 4 {
		t.Errorf("%+v, %v, %q", got, err, out.String())
	}
}

func TestAFailedTestRunsOnceMoreAlone(t *testing.T) {
	first := tally{
		passed: 5, failed: 3, failures: []string{"p TestOnce", "p TestOnce/part\n    x_test.go:1: first words", "p TestAlways"},
	}
	var ran []string
	want := slices.Clone(first.failures[:2])
	got, err := again(t.Context(), io.Discard, first, "p", func(which string) func(context.Context, io.Writer) (tally, error) {
		return func(context.Context, io.Writer) (tally, error) {
			ran = append(ran, which)
			if which == "^TestAlways$" {
				return tally{failed: 1, failures: []string{"p TestAlways"}}, nil
			}
			return tally{passed: 2}, nil
		}
	})
	if err != nil || strings.Join(ran, " ") != "^TestAlways$ ^TestOnce$" {
		t.Fatalf("%v; run once more: %v", err, ran)
	}
	if got.String() != "7 passed, 1 failed" || strings.Join(got.failures, ",") != "p TestAlways" {
		t.Errorf("%s: %q", got, got.failures)
	}
	if strings.Join(got.flaky, ",") != strings.Join(want, ",") {
		t.Errorf("flaky: %q, want %q", got.flaky, want)
	}
	var out strings.Builder
	if !run(t.Context(), &out, []step{{"a", "e2e", func(context.Context, io.Writer) (tally, error) {
		return tally{passed: 1, flaky: []string{"p TestOnce\n    first words"}}, nil
	}}}) || !strings.Contains(out.String(), "FLAKY p TestOnce\n    first words") {
		t.Errorf("a run with a flaky test that passed then says\n%s", out.String())
	}
}

func TestWhatIsNotFlaky(t *testing.T) {
	many := tally{failed: mostAgain + 1}
	for i := range mostAgain + 1 {
		many.failures = append(many.failures, fmt.Sprint("p TestNo", i))
	}
	for name, first := range map[string]tally{
		"the package failed": {failed: 2, failures: []string{"p TestA", "p"}},
		"too many failed":    many,
		"none failed":        {passed: 3},
	} {
		got, err := again(t.Context(), io.Discard, first, "p", func(string) func(context.Context, io.Writer) (tally, error) {
			t.Errorf("%s: a test runs once more", name)
			return func(context.Context, io.Writer) (tally, error) { return tally{passed: 1}, nil }
		})
		if err != nil || got.String() != first.String() || len(got.flaky) > 0 {
			t.Errorf("%s: %s, %v, flaky %q", name, got, err, got.flaky)
		}
	}
	// A test that vanished, so that no test ran, has not passed.
	got, _ := again(t.Context(), io.Discard, tally{failed: 1, failures: []string{"p TestA"}}, "p",
		func(string) func(context.Context, io.Writer) (tally, error) {
			return func(context.Context, io.Writer) (tally, error) { return tally{}, nil }
		})
	if got.failed != 1 || len(got.flaky) > 0 {
		t.Errorf("of nothing that ran: %s", got)
	}
}
