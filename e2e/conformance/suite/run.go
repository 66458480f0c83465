// Package suite runs a suite of Kubernetes' tests, makes their images of programs that were built, and reports.
package suite

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Mirrored is the registry of the suites' images.
const Mirrored = "registry.k8s.io"

// Options are the flags of the commands that run a suite.
type Options struct {
	Focus, Skip string
	Procs       int
	Kubelet     bool
	Timeout     time.Duration
	Out         string
}

// Flags registers the flags, with these defaults; Out is named after the suite, below the folder for temporary files.
func Flags(focus string, procs int, timeout time.Duration, name string) *Options {
	o := &Options{}
	flag.StringVar(&o.Focus, "focus", focus, "the tests that run, by their names")
	flag.StringVar(&o.Skip, "skip", "", "further tests that do not run")
	flag.IntVar(&o.Procs, "procs", procs, "the number of tests that run at once; those that must run alone do")
	flag.BoolVar(&o.Kubelet, "kubelet", false, "run the kubelet in the agent's place")
	flag.DurationVar(&o.Timeout, "timeout", timeout, "the time after which no further test begins and those in progress end")
	flag.StringVar(&o.Out, "out", filepath.Join(os.TempDir(), name), "the folder of logs and reports; emptied before")
	return o
}

// Exclusion are tests that do not run, and the reason.
type Exclusion = struct{ Tests, Why string }

// Suite is a test binary, in the folder that it runs in, and Ginkgo, which runs it.
type Suite struct {
	Ginkgo, Tests, Dir string
	// Args are the binary's own; Env is its environment beside this process's.
	Args, Env []string
	Known     []Exclusion
	// Log is the name of the log in the folder of reports, where the suite writes junit_01.xml.
	Log string
}

// Clear empties the folder of reports, and makes its path absolute.
func (o *Options) Clear() (err error) {
	if o.Out, err = filepath.Abs(o.Out); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(o.Out), os.MkdirAll(o.Out, 0o755))
}

// Run runs the suite's tests and returns the results. A failed test is no error.
func (o *Options) Run(ctx context.Context, s Suite) (r Results, err error) {
	log, err := os.Create(filepath.Join(o.Out, s.Log))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	skipped := []string{"nothing is named so"}
	for _, k := range s.Known {
		skipped = append(skipped, k.Tests)
	}
	if o.Skip != "" {
		skipped = append(skipped, o.Skip)
	}
	progress := &counter{log: log, said: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Ginkgo, append([]string{"--procs=" + fmt.Sprint(o.Procs), "--no-color", "--timeout=24h",
		"--silence-skips", "--focus=" + o.Focus, "--skip=" + strings.Join(skipped, "|"), s.Tests, "--"}, s.Args...)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.Dir, append(os.Environ(), s.Env...), progress, progress
	// An interrupt of all processes of the suite has them write their report.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 5 * time.Minute
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && ctx.Err() == nil {
		return r, err
	}
	if r, err = Read(filepath.Join(o.Out, "junit_01.xml")); err != nil {
		err = fmt.Errorf("the suite did not run (%w): see %s", err, log.Name())
	}
	return r, err
}

// List returns the names of the suite's tests that contain a text.
func (s Suite) List(ctx context.Context, text string) (names []string, err error) {
	out, err := exec.CommandContext(ctx, s.Tests, "--list-tests").Output()
	for line := range strings.Lines(string(out)) {
		if _, name, found := strings.Cut(line, ".go:"); found && strings.Contains(name, text) {
			_, name, _ = strings.Cut(name, ": ")
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names, err
}

// counter writes the suite's output to a log, and prints now and then how many tests are over: each is a bullet there.
type counter struct {
	log  *os.File
	over int
	said time.Time
}

func (c *counter) Write(p []byte) (int, error) {
	c.over += strings.Count(string(p), "•")
	if time.Since(c.said) > 30*time.Second {
		fmt.Printf("%d tests are over\n", c.over)
		c.said = time.Now()
	}
	return c.log.Write(p)
}

// Spec is a test and the reason that it failed or skipped itself.
type Spec struct{ Name, Why string }

// Results are the tests that passed, failed, skipped themselves, and were not asked for.
type Results struct{ Passed, Failed, Skipped, Others []Spec }

// Read returns the results of a report in JUnit's form.
func Read(report string) (r Results, err error) {
	data, err := os.ReadFile(report)
	if err != nil {
		return r, err
	}
	var all struct {
		Cases []struct {
			Name    string `xml:"name,attr"`
			Status  string `xml:"status,attr"`
			Skipped struct {
				Message string `xml:"message,attr"`
			} `xml:"skipped"`
			Failure struct {
				Message string `xml:"message,attr"`
				Text    string `xml:",chardata"`
			} `xml:"failure"`
		} `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal(data, &all); err != nil {
		return r, err
	}
	for _, c := range all.Cases {
		name, test := strings.CutPrefix(c.Name, "[It] ") // and not the steps before and after all of them
		switch {
		case c.Status == "passed" && test:
			r.Passed = append(r.Passed, Spec{Name: name})
		case c.Status == "passed":
		case c.Status == "interrupted":
			r.Others = append(r.Others, Spec{Name: name})
		case c.Status != "skipped":
			r.Failed = append(r.Failed, Spec{name, firstLine(cmp.Or(c.Failure.Message, c.Failure.Text))})
		case c.Skipped.Message != "skipped":
			r.Skipped = append(r.Skipped, Spec{name, firstLine(c.Skipped.Message)})
		case test:
			r.Others = append(r.Others, Spec{Name: name})
		}
	}
	for _, list := range [][]Spec{r.Passed, r.Failed, r.Skipped, r.Others} {
		slices.SortFunc(list, func(a, b Spec) int { return strings.Compare(a.Name, b.Name) })
	}
	return r, nil
}

// Print prints the results, and the tests that do not run.
func (r Results) Print(known []Exclusion, out string) {
	for _, s := range r.Failed {
		fmt.Printf("FAILED   %s: %s\n", s.Name, s.Why)
	}
	for _, s := range r.Skipped {
		fmt.Printf("skipped  %s: %s\n", s.Name, s.Why)
	}
	for _, k := range known {
		fmt.Printf("skipped  %s: %s\n", k.Tests, k.Why)
	}
	fmt.Printf("%d passed, %d failed; logs and reports are in %s\n", len(r.Passed), len(r.Failed), out)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
