// Command check runs the checks for a change, step by step, and ends with the number of checks that passed and failed: every test
// counts as one, subtests too, and so does every other step. All steps run, whatever the result of earlier ones. Without
// arguments it runs everything that CI runs, including the build; steps.go lists the steps.
//
//	go run ./.ci/check
//	go run ./.ci/check lint unit
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	fuzztime := flag.String("fuzztime", "2000x", "how long each fuzz target runs: a duration, or a number of inputs as in 2000x")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "check [flags] %s\n", strings.Join(groups(), "|"))
		flag.PrintDefaults()
	}
	flag.Parse()
	chosen, err := choose(steps(*fuzztime), flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if !run(ctx, os.Stdout, chosen) {
		os.Exit(1)
	}
}

// step is one part of the checks. It prints output for people and returns its count; an error is a failure beyond the counted
// ones.
type step struct {
	group, name string
	run         func(ctx context.Context, out io.Writer) (tally, error)
}

// tally counts checks.
type tally struct {
	passed, failed, skipped int
	failures                []string           // name of each failed check, and its messages on further lines
	flaky                   []string           // tests that failed first, and passed when they ran again alone
	took                    map[string]float64 // seconds of passed top-level tests; may be nil
}

func (t *tally) add(o tally) {
	t.passed += o.passed
	t.failed += o.failed
	t.skipped += o.skipped
	t.failures = append(t.failures, o.failures...)
	t.flaky = append(t.flaky, o.flaky...)
	if t.took == nil {
		t.took = map[string]float64{}
	}
	maps.Copy(t.took, o.took)
}

func (t tally) String() string {
	s := fmt.Sprintf("%d passed, %d failed", t.passed, t.failed)
	if t.skipped > 0 {
		s += fmt.Sprintf(", %d skipped", t.skipped)
	}
	return s
}

// usual are the groups that run by default.
var usual = []string{"build", "parts", "lint", "unit", "fuzz", "e2e"}

// choose returns the steps of the named groups, in the order of the table.
func choose(all []step, names []string) ([]step, error) {
	if len(names) == 0 {
		names = usual
	}
	for _, n := range names {
		if !slices.Contains(groups(), n) {
			return nil, fmt.Errorf("no group %q: there are %s", n, strings.Join(groups(), ", "))
		}
	}
	var out []step
	for _, s := range all {
		if slices.Contains(names, s.group) {
			out = append(out, s)
		}
	}
	return out, nil
}

func groups() []string {
	var out []string
	for _, s := range steps("") {
		if !slices.Contains(out, s.group) {
			out = append(out, s.group)
		}
	}
	return out
}

// run runs the steps and reports success.
func run(ctx context.Context, out io.Writer, chosen []step) bool {
	begun := time.Now()
	var total tally
	var table []string
	for i, s := range chosen {
		fmt.Fprintf(out, "\n=== %d/%d %s (at %s)\n", i+1, len(chosen), s.name, elapsed(begun))
		stepBegun := time.Now()
		progress := watchProgress(out, s.name, silence)
		t, err := s.run(ctx, progress)
		progress.stop()
		if err != nil {
			t.failed++
			t.failures = append(t.failures, s.name+": "+err.Error())
		}
		line := fmt.Sprintf("%-34s %8s  %s", s.name, elapsed(stepBegun), t)
		fmt.Fprintln(out, "===", line)
		table = append(table, line)
		total.add(t)
		if ctx.Err() != nil {
			fmt.Fprintln(out, "=== interrupted; the steps after this one were not run")
			total.failed++
			break
		}
	}
	fmt.Fprintf(out, "\n%s\n", strings.Join(table, "\n"))
	for _, f := range total.flaky {
		fmt.Fprintln(out, "FLAKY", f)
	}
	for _, f := range total.failures {
		fmt.Fprintln(out, "FAIL", f)
	}
	fmt.Fprintf(out, "%s in %s\n", total, elapsed(begun))
	return total.failed == 0
}

func elapsed(since time.Time) string { return time.Since(since).Round(time.Second).String() }
