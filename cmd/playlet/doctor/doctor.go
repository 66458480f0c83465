// Package doctor checks that a machine meets the agent's needs. Each check is one function, in the file of its subject, and one
// line in the list of checks.go. A finding includes its remedy. Checks leave no change behind, except a setting that network
// plugins turn on for a pod and leave on (net.ipv4.ip_forward), which is reported.
package doctor

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/playlet-dev/playlet/cmd/playlet/cli"
)

// Result is how a check came out.
type Result string

// The results, the worst last.
const (
	// OK means that there is nothing to do.
	OK Result = "ok"
	// Skip means that the check could not run; Seen has the reason. Another finding usually has the remedy.
	Skip Result = "skip"
	// Warn means that the agent runs, with a risk or a missing feature.
	Warn Result = "warn"
	// Fail means that the agent, or its pods, cannot run.
	Fail Result = "fail"
)

// Finding is one result of a check.
type Finding struct {
	Check  string `json:"check"`
	Result Result `json:"result"`
	// Seen is the observation, for people.
	Seen string `json:"seen"`
	// Do is the remedy; empty for none.
	Do string `json:"do,omitempty"`
}

// Check is one thing that is looked at. Checks run side by side.
type Check struct {
	Name string
	// About is a short description of the subject.
	About string
	// Limit is the maximum duration; a longer check is a finding. Undo is the additional time to revert its changes.
	Limit, Undo time.Duration
	// Run looks. Findings without a result are good ones. It obeys ctx, and may be left behind when it does not.
	Run func(ctx context.Context, m *Machine) []Finding
}

const (
	usualLimit = 20 * time.Second
	// late is how much longer than its limit a check is waited for that obeys its context.
	late = 2 * time.Second
)

// Run runs the checks concurrently. progress, unless nil, receives the names of the pending ones whenever one is done. The
// findings are in the order of the checks. When ctx ends, checks are cancelled, and their changes are reverted before Run
// returns.
func Run(ctx context.Context, m *Machine, checks []Check, progress func(left []string)) []Finding {
	results := make([][]Finding, len(checks))
	var mu sync.Mutex
	open := map[int]bool{}
	for i := range checks {
		open[i] = true
	}
	tell := func() {
		var left []string
		for i, c := range checks {
			if open[i] {
				left = append(left, c.Name)
			}
		}
		if progress != nil {
			progress(left)
		}
	}
	mu.Lock()
	tell()
	mu.Unlock()
	var all sync.WaitGroup
	for i, c := range checks {
		all.Go(func() {
			results[i] = runOne(ctx, m, c)
			mu.Lock()
			defer mu.Unlock()
			delete(open, i)
			tell()
		})
	}
	all.Wait()
	var out []Finding
	for _, r := range results {
		out = append(out, r...)
	}
	return out
}

// runOne carries out a check, and gives up on one that hangs.
func runOne(ctx context.Context, m *Machine, c Check) []Finding {
	limit := c.Limit
	if limit == 0 {
		limit = usualLimit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %s", limit))
	defer cancel()
	done := make(chan []Finding, 1)
	go func() { done <- c.Run(ctx, m) }()
	var found []Finding
	select {
	case found = <-done:
	case <-ctx.Done():
		select {
		case found = <-done:
		case <-time.After(c.Undo + late):
			found = []Finding{{Result: Fail, Seen: fmt.Sprintf("no answer: %v", context.Cause(ctx)),
				Do: "something hangs (a disk, a network file system, the kernel): dmesg may show more"}}
		}
	}
	for i := range found {
		found[i].Check = c.Name
		if found[i].Result == "" {
			found[i].Result = OK
		}
	}
	return found
}

// ok, warn, fail and skip make the finding of a check that has one.
func ok(format string, args ...any) []Finding {
	return []Finding{{Result: OK, Seen: fmt.Sprintf(format, args...)}}
}

func warn(do, format string, args ...any) []Finding {
	return []Finding{{Result: Warn, Seen: fmt.Sprintf(format, args...), Do: do}}
}

func fail(do, format string, args ...any) []Finding {
	return []Finding{{Result: Fail, Seen: fmt.Sprintf(format, args...), Do: do}}
}

func skip(format string, args ...any) []Finding {
	return []Finding{{Result: Skip, Seen: fmt.Sprintf(format, args...)}}
}

// or returns found or, if that is empty, otherwise.
func or(found, otherwise []Finding) []Finding {
	if len(found) > 0 {
		return found
	}
	return otherwise
}

// Count counts findings by result.
func Count(findings []Finding) map[Result]int {
	n := map[Result]int{}
	for _, f := range findings {
		n[f.Result]++
	}
	return n
}

// report is the output of the command for programs.
type report struct {
	// Fit means that no check fails.
	Fit      bool      `json:"fit"`
	Findings []Finding `json:"findings"`
	// The number of findings by result.
	OK   int `json:"ok"`
	Warn int `json:"warn"`
	Fail int `json:"fail"`
	Skip int `json:"skip"`
}

func newReport(findings []Finding) report {
	n := Count(findings)
	if findings == nil {
		findings = []Finding{}
	}
	return report{n[Fail] == 0, findings, n[OK], n[Warn], n[Fail], n[Skip]}
}

// colours of results, by their codes of ECMA-48.
var colours = map[Result]string{OK: "32", Warn: "33", Fail: "31", Skip: "90"}

// printFindings prints a line for each finding, and its remedy below.
func printFindings(w io.Writer, findings []Finding) error {
	colour := cli.WantsColour(w)
	width := 0
	for _, f := range findings {
		width = max(width, len(f.Check))
	}
	var text strings.Builder
	for _, f := range findings {
		result := fmt.Sprintf("%-4s", f.Result)
		if colour {
			result = "\x1b[" + colours[f.Result] + "m" + result + "\x1b[0m"
		}
		fmt.Fprintf(&text, "%s  %-*s  %s\n", result, width, f.Check, cli.Plain(f.Seen))
		if f.Do != "" {
			fmt.Fprintf(&text, "%*s→ %s\n", len("fail")+2+width+2, "", cli.Plain(f.Do))
		}
	}
	n := Count(findings)
	warnings := "warnings"
	if n[Warn] == 1 {
		warnings = "warning"
	}
	fmt.Fprintf(&text, "\n%d passed, %d %s, %d failed, %d skipped\n", n[OK], n[Warn], warnings, n[Fail], n[Skip])
	_, err := io.WriteString(w, text.String())
	return err
}

// showProgress shows the pending checks on a terminal, in one line that done erases.
func showProgress(w io.Writer, all int) (show func(left []string), done func()) {
	if !cli.IsTerminal(w) {
		return nil, func() {}
	}
	const wipe = "\r\x1b[K"
	var mu sync.Mutex
	show = func(left []string) {
		mu.Lock()
		defer mu.Unlock()
		const most = 4
		names := strings.Join(left[:min(most, len(left))], ", ")
		if len(left) > most {
			names += " …"
		}
		fmt.Fprintf(w, "%s%d of %d done; waiting for %s", wipe, all-len(left), all, names)
	}
	return show, func() { fmt.Fprint(w, wipe) }
}
