package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// target is one fuzz test.
type target struct{ pkg, name string }

var (
	fuzzFunc     = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(\w+ \*testing\.F\)`)
	fuzzProgress = regexp.MustCompile(`(?m)^fuzz: elapsed: .*$`)
)

// fuzz runs every fuzz target by a go command of its own, two at a time, as linking keeps one core busy alone. The number of
// inputs, unlike a duration, is the same on every machine.
func fuzz(fuzztime string) func(context.Context, io.Writer) (tally, error) {
	return func(ctx context.Context, out io.Writer) (tally, error) {
		targets, err := fuzzTargets(ctx)
		if err != nil {
			return tally{}, err
		}
		queue := make(chan target, len(targets))
		for _, target := range targets {
			queue <- target
		}
		close(queue)
		all := func(ctx context.Context, out io.Writer) (t tally, err error) {
			for target := range queue {
				if ctx.Err() != nil {
					break
				}
				t.add(fuzzOne(ctx, out, target, fuzztime))
			}
			return t, nil
		}
		return sideBySide(ctx, out, all, all)
	}
}

// fuzzOne runs one target.
func fuzzOne(ctx context.Context, out io.Writer, target target, fuzztime string) tally {
	said := &strings.Builder{}
	args := []string{"go", "test", "-vet=off", "-run=^$", "-fuzz=^" + target.name + "$", "-fuzztime=" + fuzztime, target.pkg}
	if err := started(ctx, plain, said, args...).Run(); err != nil {
		fmt.Fprintf(out, "%s\n%s %s: %v\n", said, target.pkg, target.name, err)
		return tally{failed: 1, failures: []string{target.pkg + " " + target.name}}
	}
	last := fuzzProgress.FindAllString(said.String(), -1)
	fmt.Fprintf(out, "%s %s: %s\n", target.pkg, target.name, strings.TrimPrefix(last[max(0, len(last)-1)], "fuzz: "))
	return tally{passed: 1}
}

// fuzzTargets finds the fuzz tests in the tree's test files.
func fuzzTargets(ctx context.Context) ([]target, error) {
	const each = `{{$p := .}}{{range .TestGoFiles}}{{$p.ImportPath}} {{$p.Dir}}/{{.}}{{"\n"}}{{end}}` +
		`{{range .XTestGoFiles}}{{$p.ImportPath}} {{$p.Dir}}/{{.}}{{"\n"}}{{end}}`
	list, err := output(ctx, plain, "go", "list", "-f", each, "./...", "./.ci/check")
	if err != nil {
		return nil, err
	}
	var out []target
	for line := range strings.Lines(list) {
		pkg, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		text, err := os.ReadFile(filepath.Clean(file))
		if err != nil {
			return nil, err
		}
		for _, m := range fuzzFunc.FindAllSubmatch(text, -1) {
			out = append(out, target{pkg, string(m[1])})
		}
	}
	return out, nil
}
