package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
)

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds
}

// goTest returns a step that runs `go test -json` with the arguments. each prints every top-level test as it ends, for packages
// that take minutes.
func goTest(env []string, each bool, args ...string) func(context.Context, io.Writer) (tally, error) {
	return func(ctx context.Context, out io.Writer) (tally, error) {
		lines, w := io.Pipe()
		cmd := started(ctx, env, w, append([]string{"go", "test", "-json"}, args...)...)
		cmd.Stderr = os.Stderr
		read := make(chan reader)
		go func() {
			r := reader{out: out, each: each, outputs: map[string][]string{}}
			r.all(lines)
			read <- r
		}()
		err := cmd.Run()
		_ = w.Close() // cannot fail for a pipe
		r := <-read
		if err != nil && r.failed == 0 {
			return r.tally, fmt.Errorf("go test: %w", err)
		}
		return r.tally, nil
	}
}

// reader counts tests and prints a line per package, and all output of failures.
type reader struct {
	tally
	out     io.Writer
	each    bool
	outputs map[string][]string // by package and test, until it ends
}

func (r *reader) all(lines io.Reader) {
	in := bufio.NewReader(lines)
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			r.line(line)
		}
		if err != nil {
			return
		}
	}
}

func (r *reader) line(line string) {
	var e event
	if json.Unmarshal([]byte(line), &e) != nil {
		fmt.Fprint(r.out, line) // from the go command itself
		return
	}
	key := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		if e.Test != "" {
			r.outputs[key] = append(r.outputs[key], e.Output)
		} else if !noise(e.Output) {
			fmt.Fprint(r.out, e.Output)
		}
	case "pass", "skip", "fail":
		r.ended(e, key)
	}
}

// noise reports whether a line repeats the outcome of a package, which has a line of its own.
func noise(s string) bool {
	return s == "PASS\n" || s == "FAIL\n" || strings.HasSuffix(s, "[no test files]\n")
}

func (r *reader) ended(e event, key string) {
	kept := r.outputs[key]
	delete(r.outputs, key)
	top := e.Test != "" && !strings.Contains(e.Test, "/")
	switch {
	case e.Action == "fail":
		for _, s := range kept {
			fmt.Fprint(r.out, s)
		}
		if e.Test == "" {
			r.packageFailed(e)
			return
		}
		r.failed++
		r.failures = append(r.failures, key+said(kept))
	case e.Test == "":
		return
	case e.Action == "pass":
		r.passed++
		if top {
			r.add(tally{took: map[string]float64{e.Test: e.Elapsed}})
		}
	case e.Action == "skip":
		r.skipped++
		for _, s := range kept {
			if strings.Contains(s, ".go:") {
				fmt.Fprintf(r.out, "skipped %s: %s\n", e.Test, strings.TrimSpace(s))
			}
		}
	}
	if r.each && top {
		fmt.Fprintf(r.out, "%-4s %s (%s)\n", e.Action, e.Test,
			time.Duration(e.Elapsed*float64(time.Second)).Round(10*time.Millisecond))
	}
}

// saidLines limits the lines of a failed test's messages that the summary repeats. It repeats the last ones, because a test ends
// with its failure.
const (
	saidLines = 6
	saidBytes = 500 // of a line
)

// said returns the test's own messages, each on a line that begins with a newline, for a summary when the output is long or
// truncated.
func said(output []string) string {
	var lines []string
	for _, s := range output {
		if own.MatchString(s) {
			lines = append(lines, "\n    "+strings.TrimSpace(s[:min(len(s), saidBytes)]))
		}
	}
	return strings.Join(lines[max(0, len(lines)-saidLines):], "")
}

// own matches a message of a test with its position, as opposed to other output.
var own = regexp.MustCompile(`^\s+\w+_test\.go:\d+: `)

// packageFailed prints the output of unfinished tests of a package, and counts the package if none of its tests failed: it does
// not build, or its TestMain failed, or it crashed.
func (r *reader) packageFailed(e event) {
	for key, kept := range r.outputs {
		if strings.HasPrefix(key, e.Package+" ") {
			fmt.Fprint(r.out, strings.Join(kept, ""))
			delete(r.outputs, key)
		}
	}
	for _, f := range r.failures {
		if strings.HasPrefix(f, e.Package+" ") {
			return
		}
	}
	r.failed++
	r.failures = append(r.failures, e.Package)
}
