package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
)

func TestEachTestIsDealtOnce(t *testing.T) {
	list := "TestA\nTestAB\nTestB\nok  \tp\t0.1s\n"
	for n, want := range map[int]int{1: 1, 2: 2, 5: 3} {
		patterns := deal(list, n)
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
	if got := deal("ok  \tp\t0.1s\n", 2); len(got) != 0 {
		t.Errorf("%q of a package without tests", got)
	}
}

func TestLanesAreCountedTogether(t *testing.T) {
	both := make(chan struct{})
	var out strings.Builder
	got, err := sideBySide(t.Context(), &out, []string{"a", "b"}, func(which string) func(context.Context, io.Writer) (tally, error) {
		return func(_ context.Context, out io.Writer) (tally, error) {
			select { // only side by side do they end
			case both <- struct{}{}:
			case <-both:
			}
			fmt.Fprintln(out, which)
			if which == "b" {
				return tally{passed: 1, failed: 1, failures: []string{"b"}}, errors.New("no")
			}
			return tally{passed: 2}, nil
		}
	})
	if got.passed != 3 || got.failed != 1 || len(got.failures) != 1 || err == nil || len(out.String()) != 4 {
		t.Errorf("%+v, %v, %q", got, err, out.String())
	}
}
