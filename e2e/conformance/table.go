package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/e2e/conformance/suite"
)

// result is the end of a spec: passed, failed, or skipped by itself.
type result struct{ status, message string }

// readReport reads the results of the suite by spec. Specs that were not selected are not in them.
func readReport(report string) (map[string]result, error) {
	r, err := suite.Read(report)
	if err != nil {
		return nil, err
	}
	results := map[string]result{}
	for status, specs := range map[string][]suite.Spec{"passed": r.Passed, "failed": r.Failed, "skipped": r.Skipped} {
		for _, s := range specs {
			results[s.Name] = result{status, oneLine(strings.TrimPrefix(s.Why, "skipped - "))}
		}
	}
	return results, nil
}

// oneLine shortens a message to fit a table.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + " ..."
	}
	return s
}

// row is the line of a spec in a table. Cells of specs that did not run are empty.
type row struct{ name, agent, kubelet, run, why string }

// writeTable runs the selected specs of a part with the agent, the failed ones with the kubelet, and writes the part's table.
func writeTable(ctx context.Context, all []spec) error {
	p, err := findPart(*of)
	if err != nil {
		return err
	}
	path := filepath.Join(*table, p.name+".md")
	rows, err := readTable(path)
	if err != nil {
		return err
	}
	focused, err := regexp.Compile(options.Focus)
	if err != nil {
		return err
	}
	names := specsOf(p.name, all)
	agent := map[string]result{}
	now := time.Now().UTC().Format(time.DateOnly) + " " + commit(ctx)
	switch {
	case *from != "":
		report := filepath.Join(*from, "junit_01.xml")
		info, err := os.Stat(report)
		if err != nil {
			return err
		}
		if agent, err = readReport(report); err != nil {
			return err
		}
		now = info.ModTime().UTC().Format(time.DateOnly) // of another commit, perhaps
	case slices.ContainsFunc(names, focused.MatchString): // else only the causes are written
		agent, err = runAgain(ctx, filepath.Join(options.Out, "agent"), "-focus="+options.Focus, "-skip="+options.Skip)
		if err != nil {
			return err
		}
	}
	var failed []string
	for name, r := range agent {
		if r.status == "failed" {
			failed = append(failed, name)
		}
	}
	kubelet := map[string]result{}
	if len(failed) > 0 && *compare {
		if kubelet, err = runAgain(ctx, filepath.Join(options.Out, "kubelet"), "-kubelet", "-focus="+alternatives(failed)); err != nil {
			return err
		}
	}
	for name, r := range agent {
		rows[name] = row{name, r.status, kubelet[name].status, now, cause(name, r, kubelet[name])}
	}
	return os.WriteFile(path, []byte(markdown(p, names, rows)), 0o644)
}

// runAgain runs this program for a part of the suite, and returns the results.
func runAgain(ctx context.Context, dir string, args ...string) (map[string]result, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args = append([]string{"-part=" + *of, fmt.Sprint("-procs=", options.Procs), "-out=" + dir}, args...)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	return readReport(filepath.Join(dir, "junit_01.xml"))
}

func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "-c", "safe.directory=*", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return string(bytes.TrimSpace(out))
}

// cause returns the reason that is known for the failure of a spec, or else the spec's own message.
func cause(name string, agent, kubelet result) string {
	switch agent.status {
	case "passed":
		return ""
	case "skipped":
		return agent.message
	}
	if why := knownCause(name, agent.message); why != "" {
		return why
	}
	if kubelet.message != "" && kubelet.message != agent.message {
		return agent.message + "; the kubelet: " + kubelet.message
	}
	return agent.message
}

// knownCause returns the reason why a spec fails, or is not run.
func knownCause(name, message string) string {
	for _, c := range causes {
		if regexp.MustCompile(c.specs).MatchString(name) && regexp.MustCompile(c.message).MatchString(message) {
			return c.why
		}
	}
	return ""
}

// markdown returns the table of a part. Each spec of the part has a row.
func markdown(p part, names []string, rows map[string]row) string {
	var b strings.Builder
	counts := map[string]int{}
	for _, name := range names {
		counts[rows[name].agent]++
	}
	counts["other"] = len(names) - counts["passed"] - counts["skipped"] - counts[""]
	fmt.Fprintf(&b, "# Node suite: %s\n\n", p.about)
	fmt.Fprintf(&b, "Written by `go run ./e2e/conformance -part %s -table %s`. ", p.name, *table)
	fmt.Fprintf(&b, "Of %d specs %d passed, %d failed, %d skipped themselves, %d did not run.\n", len(names), counts["passed"],
		counts["other"], counts["skipped"], counts[""])
	fmt.Fprintf(&b, "The kubelet ran only the specs that failed. A row has the date and the commit of its run.\n\n")
	fmt.Fprintf(&b, "| spec | Playlet | kubelet | run | cause |\n| --- | --- | --- | --- | --- |\n")
	for _, name := range names {
		r := rows[name]
		if r.agent == "" {
			r.agent, r.why = "not run", knownCause(name, "")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", cell(name), r.agent, r.kubelet, r.run, cell(r.why))
	}
	return b.String()
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// readTable reads the rows of a table that markdown wrote. A table that does not exist has none.
func readTable(path string) (map[string]row, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	rows := map[string]row{}
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "| "), " |"), " | ")
		if len(cells) != 5 || cells[0] == "spec" || cells[0] == "---" || cells[1] == "not run" {
			continue
		}
		name := strings.ReplaceAll(cells[0], `\|`, "|")
		rows[name] = row{name, cells[1], cells[2], cells[3], strings.ReplaceAll(cells[4], `\|`, "|")}
	}
	return rows, nil
}

// alternatives returns a regular expression that matches the names.
func alternatives(names []string) string {
	slices.Sort(names)
	return strings.TrimPrefix(exactly(names), " ")
}
