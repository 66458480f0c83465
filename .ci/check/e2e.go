package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// lanes is the number of processes that share a package's end-to-end tests. Each has a node of its own, many an API server. With
// five lanes on two cores of a slow host the load reached 60, and requests with a timeout of a second failed; with three, which
// mostly wait, the tests took twice as long.
const lanes = 4

// e2e runs the packages that have tests with the build tag e2e, one after another. $PLAYLET_BINARY names the tested agent;
// without it the tests build one.
func e2e(ctx context.Context, out io.Writer) (tally, error) {
	const ignored = `{{$p := .ImportPath}}{{range .IgnoredGoFiles}}{{$p}} {{.}}{{"\n"}}{{end}}`
	list, err := output(ctx, plain, "go", "list", "-f", ignored, "./e2e/...")
	if err != nil {
		return tally{}, err
	}
	var packages []string
	for line := range strings.Lines(list) {
		pkg, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasSuffix(file, "_test.go") && !slices.Contains(packages, pkg) {
			packages = append(packages, pkg)
		}
	}
	if len(packages) == 0 {
		return tally{}, errors.New("no package below e2e has tests with the build tag e2e")
	}
	kept, err := artifacts()
	if err != nil {
		return tally{}, err
	}
	defer fmt.Fprintln(out, "screenshots and the like of these tests are kept in", kept)
	seconds := filepath.Join(filepath.Dir(kept), "e2e-seconds.json")
	took := tookLast(seconds)
	// Virtual machines are first, and alone: beside other tests, an emulated processor is so slow that its pods time out.
	emulated := func(pkg string) bool { return strings.Contains(pkg, "/e2e/machine") }
	oneByOne := func(lanes int, packages ...string) func(context.Context, io.Writer) (tally, error) {
		return func(ctx context.Context, out io.Writer) (tally, error) {
			var all tally
			var errs []error
			for _, pkg := range packages {
				t, err := e2ePackage(ctx, out, pkg, lanes, took, kept)
				all.add(t)
				errs = append(errs, err)
			}
			return all, errors.Join(errs...)
		}
	}
	var machines, others []string
	for _, pkg := range packages {
		if emulated(pkg) {
			machines = append(machines, pkg)
		} else {
			others = append(others, pkg)
		}
	}
	all, errs := oneByOne(1, machines...)(ctx, out)
	t, err := oneByOne(lanes, others...)(ctx, out)
	all.add(t)
	errs = errors.Join(errs, err)
	maps.Copy(took, all.took)
	text, err := json.Marshal(took)
	if err := errors.Join(err, os.WriteFile(seconds, text, 0o600)); err != nil {
		fmt.Fprintln(out, "the next run does not know what each test took:", err)
	}
	return all, errs
}

// e2ePackage runs a package's tests in lanes.
func e2ePackage(ctx context.Context, out io.Writer, pkg string, lanes int, took map[string]float64, kept string) (tally, error) {
	tests, err := output(ctx, plain, "go", "test", "-tags=e2e", "-vet=off", "-list=^Test", pkg)
	patterns := deal(tests, lanes, took)
	if err == nil && len(patterns) == 0 {
		err = errors.New("its tests are not listed")
	}
	if err != nil {
		return tally{}, fmt.Errorf("%s: %w", pkg, err)
	}
	// -count=1, since Go's test cache ignores the tested agent, which is built separately.
	run := func(which string) func(context.Context, io.Writer) (tally, error) {
		return goTest(plain, true, "-tags=e2e", "-vet=off", "-count=1", "-timeout=1h", "-artifacts", "-outputdir="+kept,
			"-run="+which, pkg)
	}
	var sides []func(context.Context, io.Writer) (tally, error)
	for _, p := range patterns {
		sides = append(sides, run(p))
	}
	t, err := sideBySide(ctx, out, sides...)
	if err != nil {
		return t, err
	}
	return again(ctx, out, t, pkg, run)
}

// tookLast returns the duration of each test's last success on this machine, in seconds.
func tookLast(file string) map[string]float64 {
	took := map[string]float64{}
	if text, err := os.ReadFile(file); err != nil || json.Unmarshal(text, &took) != nil || took == nil {
		return map[string]float64{}
	}
	return took
}

// artifacts returns an empty folder for the files that tests keep.
func artifacts() (string, error) {
	cache := os.Getenv("PLAYLET_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(user, "playlet")
	}
	dir := filepath.Join(cache, "artifacts")
	return dir, errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755))
}

// deal distributes the tests listed by `go test -list` to at most n patterns for -run, each test in exactly one. The longest test
// by its last duration is dealt first, and each to the pattern with the least work. A test without a time is dealt last, and
// counts as ten seconds.
func deal(list string, n int, took map[string]float64) []string {
	var tests []string
	for line := range strings.Lines(list) {
		if name := strings.TrimSpace(line); strings.HasPrefix(name, "Test") {
			tests = append(tests, name)
		}
	}
	slices.SortStableFunc(tests, func(x, y string) int { return cmp.Compare(took[y], took[x]) })
	hands, sums := make([][]string, n), make([]float64, n)
	for _, name := range tests {
		least := slices.Index(sums, slices.Min(sums))
		hands[least] = append(hands[least], name)
		sums[least] += cmp.Or(took[name], 10)
	}
	var out []string
	for _, names := range hands {
		if len(names) > 0 {
			out = append(out, "^("+strings.Join(names, "|")+")$")
		}
	}
	return out
}

// mostAgain limits the failed tests of a package that are run once more. If more of them fail, the fault is not a rare one.
const mostAgain = 8

// again runs each failed test of a package once more, alone after all the others. A test that passes then counts as passed, and
// as flaky. Only end-to-end tests are repeated, since sharing the machine may make them fail.
func again(ctx context.Context, out io.Writer, t tally, pkg string,
	run func(string) func(context.Context, io.Writer) (tally, error)) (tally, error) {
	failed := map[string][]string{} // failures counted so far, by top-level test
	for _, f := range t.failures {
		key, _, _ := strings.Cut(f, "\n")
		test, isTest := strings.CutPrefix(key, pkg+" ")
		if !isTest {
			return t, nil // the package itself failed
		}
		top, _, _ := strings.Cut(test, "/")
		failed[top] = append(failed[top], f)
	}
	if len(failed) > mostAgain {
		return t, nil
	}
	var errs []error
	for _, test := range slices.Sorted(maps.Keys(failed)) {
		if ctx.Err() != nil {
			break
		}
		fmt.Fprintf(out, "=== %s failed; it runs once more alone\n", test)
		second, err := run("^"+test+"$")(ctx, out)
		errs = append(errs, err)
		if err != nil || second.failed > 0 || second.passed == 0 {
			continue
		}
		first := failed[test]
		t.failures = slices.DeleteFunc(t.failures, func(f string) bool { return slices.Contains(first, f) })
		t.failed -= len(first)
		t.passed += len(first)
		t.flaky = append(t.flaky, first...)
	}
	return t, errors.Join(errs...)
}

// sideBySide runs steps concurrently, and returns their joint result.
func sideBySide(ctx context.Context, out io.Writer, steps ...func(context.Context, io.Writer) (tally, error)) (tally, error) {
	var all tally
	var errs []error
	var mu sync.Mutex
	var running sync.WaitGroup
	shared := &sharedWriter{to: out}
	for _, step := range steps {
		running.Go(func() {
			t, err := step(ctx, shared)
			mu.Lock()
			defer mu.Unlock()
			all.add(t)
			errs = append(errs, err)
		})
	}
	running.Wait()
	return all, errors.Join(errs...)
}

// sharedWriter serializes concurrent writes.
type sharedWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *sharedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}
