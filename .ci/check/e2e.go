package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// lanes is how many processes share a package's end-to-end tests: most of a test is waiting, and each has a node of its own.
const lanes = 2

// e2e runs the packages that have tests with the build tag e2e, one package after another. $PLAYLET_BINARY names the agent that
// they test; without it they build one.
func e2e(ctx context.Context, out io.Writer) (tally, error) {
	list, err := output(ctx, plain, "go", "list", "-f", `{{$p := .ImportPath}}{{range .IgnoredGoFiles}}{{$p}} {{.}}{{"\n"}}{{end}}`, "./e2e/...")
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
	var all tally
	var errs []error
	for _, pkg := range packages {
		tests, err := output(ctx, plain, "go", "test", "-tags=e2e", "-vet=off", "-list=^Test", pkg)
		patterns := deal(tests, lanes)
		if err == nil && len(patterns) == 0 {
			err = errors.New("its tests are not listed")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", pkg, err))
			continue
		}
		// -count=1, as Go's cache of results does not see what they are about: the agent, which is built apart from the tests.
		t, err := sideBySide(ctx, out, patterns, func(which string) func(context.Context, io.Writer) (tally, error) {
			return goTest(plain, true, "-tags=e2e", "-vet=off", "-count=1", "-timeout=40m", "-run="+which, pkg)
		})
		all.add(t)
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// deal makes of what `go test -list` prints at most n patterns for -run, each test in exactly one. Neighbours, which are of one
// file and much alike, go to different ones.
func deal(list string, n int) []string {
	hands := make([][]string, n)
	i := 0
	for line := range strings.Lines(list) {
		if name := strings.TrimSpace(line); strings.HasPrefix(name, "Test") {
			hands[i%n] = append(hands[i%n], name)
			i++
		}
	}
	var out []string
	for _, names := range hands {
		if len(names) > 0 {
			out = append(out, "^("+strings.Join(names, "|")+")$")
		}
	}
	return out
}

// sideBySide runs a step for each pattern at once, and gives what they found together.
func sideBySide(ctx context.Context, out io.Writer, patterns []string, step func(string) func(context.Context, io.Writer) (tally, error)) (tally, error) {
	var all tally
	var errs []error
	var mu sync.Mutex
	var running sync.WaitGroup
	shared := &sharedWriter{to: out}
	for _, p := range patterns {
		running.Go(func() {
			t, err := step(p)(ctx, shared)
			mu.Lock()
			defer mu.Unlock()
			all.add(t)
			errs = append(errs, err)
		})
	}
	running.Wait()
	return all, errors.Join(errs...)
}

// sharedWriter lets several write, a call at a time.
type sharedWriter struct {
	mu sync.Mutex
	to io.Writer
}

// Write implements io.Writer.
func (w *sharedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}
