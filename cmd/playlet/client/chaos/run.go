package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/messages"
)

const chaosRunLong = `Run an experiment: check that the node is steady, carry out the steps one after another while checking, and wait until the node
is steady again. Throughout, every pod that was ready must stay ready, none of its containers may restart, the container runtime
and its network must stay ready, ending pods must end, and in a cluster the node's lease must be renewed and the Node stay Ready.
At the end every actor must run, the agent may not have many more goroutines than before, no container may run twice, and no
sandbox, container or folder of a removed pod may be left.

FILE is a YAML file, or one that comes with Playlet: builtin:kills, builtin:messages, builtin:staging (playlet chaos show prints
them). The exit code is 0 if all checks passed, and 1 if one failed or the experiment could not start. Ctrl-C ends all rules.`

const (
	lookEvery      = 250 * time.Millisecond
	commandTimeout = time.Minute
	endsWithin     = time.Minute // beyond its grace period
	maxViolations  = 100         // reported; those that follow are counted
	goroutineNoise = 50          // requests and connections that come and go
)

// experimentReport is the output of -o json.
type experimentReport struct {
	Name       string          `json:"name,omitempty"`
	Seed       uint64          `json:"seed"`
	Began      time.Time       `json:"began"`
	Seconds    float64         `json:"seconds"`
	Pods       int             `json:"pods"`       // that were ready, and are looked at
	Containers int             `json:"containers"` // of these
	Steps      []api.ChaosRule `json:"steps"`
	Looks      int             `json:"looks"`
	Violations []violation     `json:"violations"`
	Settled    float64         `json:"settledSeconds"` // from the last step until the node was steady
	Passed     bool            `json:"passed"`
}

type violation struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// chaosRun is one run of "playlet chaos run".
type chaosRun struct {
	chaosCommand
	experiment *experiment

	mu     sync.Mutex
	report experimentReport
	seen   map[string]bool // violations that are reported already
	before map[string]map[string]string
	ending map[string]time.Time // since when pods have been seen to end, by UID
	leaks  leaks
	// goroutines is the agent's number before the experiment. The limit at the end is never below it.
	goroutines int
	abort      context.CancelCauseFunc
}

func newRun() *chaosRun {
	return &chaosRun{seen: map[string]bool{}, before: map[string]map[string]string{}, ending: map[string]time.Time{},
		abort: func(error) {}}
}

func newChaosRun() *cobra.Command {
	c := newRun()
	var reportFile string
	cmd := &cobra.Command{
		Use: "run FILE", Short: "Run an experiment with checks", Long: chaosRunLong, Args: cli.One("experiment", "builtin:kills"),
		Example: chaosRunExample, ValidArgsFunction: completeExperiments,
	}
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "Only check the file and the node, and list the actors that each step "+
		"matches")
	cmd.Flags().StringVar(&reportFile, "report", "", "Also write the report, as JSON, to this `file`")
	cli.OutputFlag(cmd, &c.Output, "text", "text", "json")
	return c.Runs(cmd, func(ctx context.Context, args []string) error {
		data, err := readFile(args[0])
		if err != nil {
			return err
		}
		if c.experiment, err = readExperiment(args[0], data); err != nil {
			return err
		}
		text := c.Out
		if c.Out = (&oneAtATime{w: text}); c.Output == "json" {
			c.Out = io.Discard
		}
		began, err := c.runAll(ctx)
		err = errors.Join(err, c.leaks.end())
		if !began {
			return err
		}
		if reportFile != "" {
			body, badReport := json.MarshalIndent(c.report, "", "    ")
			err = errors.Join(err, badReport, os.WriteFile(reportFile, append(body, '\n'), 0o600))
		}
		if c.Output == "json" {
			err = errors.Join(err, cli.PrintObject(text, c.report, c.Output))
		}
		return err
	})
}

// oneAtATime serializes the output of the steps and of the concurrent checks.
type oneAtATime struct {
	mu sync.Mutex
	w  io.Writer
}

func (o *oneAtATime) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(p)
}

// runAll runs the experiment. began reports whether there is a report.
func (c *chaosRun) runAll(ctx context.Context) (began bool, err error) {
	e := c.experiment
	c.report = experimentReport{Name: e.Metadata.Name, Seed: e.Spec.Seed, Began: time.Now(), Steps: []api.ChaosRule{},
		Violations: []violation{}}
	atRisk := map[string]bool{}
	for i := range e.Spec.Steps { // the preview uses the present state, which an earlier step may change
		step, err := c.Client.AddChaos(ctx, e.Spec.Steps[i].rule(e.Spec.Seed), true)
		if err != nil {
			return false, err
		}
		for j := range step.Targets {
			atRisk[string(step.Targets[j].Path)] = true
		}
		if c.dryRun {
			c.printTargets(step)
			c.report.Steps = append(c.report.Steps, *step)
		}
	}
	fmt.Fprintf(c.Out, "%s can be affected\n", cli.Count(len(atRisk), "actor"))
	if limit := e.Spec.MaxTargets; limit > 0 && len(atRisk) > limit {
		return false, fmt.Errorf("%d actors can be affected, more than maxTargets (%d): nothing was done", len(atRisk), limit)
	}
	if err := c.baseline(ctx); err != nil || c.dryRun {
		c.report.Passed = err == nil
		return c.dryRun, err
	}
	fmt.Fprintf(c.Out, "the node is steady, with %s in %s\n", cli.Count(c.report.Containers, "ready container"),
		cli.Count(c.report.Pods, "pod"))
	err = c.steps(ctx)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	_, stopErr := c.Client.StopChaos(ending, 0)
	c.background(ending)
	cancel()
	if err = errors.Join(err, stopErr); err == nil {
		err = c.settle(ctx)
	}
	c.report.Seconds = time.Since(c.report.Began).Seconds()
	switch n := len(c.report.Violations); {
	case ctx.Err() != nil:
		err = errors.New("interrupted; all rules are ended")
	case n > 0:
		err = errors.Join(fmt.Errorf("%s failed", checks(n)), err)
	}
	c.report.Passed = err == nil
	if err == nil {
		fmt.Fprintf(c.Out, "passed: the node was steady again after %.1fs; checked %d times, seed %d\n", c.report.Settled,
			c.report.Looks, c.report.Seed)
	}
	return true, err
}

// steps carries the steps out, and looks beside them, until the last is over or too much is violated.
func (c *chaosRun) steps(ctx context.Context) error {
	ctx, c.abort = context.WithCancelCause(ctx)
	defer c.abort(nil)
	looking, stopLooking := context.WithCancel(ctx)
	var looks sync.WaitGroup
	looks.Go(func() {
		for cli.Pause(looking, lookEvery) {
			if err := c.look(looking, false); err != nil && looking.Err() == nil {
				c.violated("the agent does not answer: " + messages.OneLine(err))
			}
		}
	})
	defer looks.Wait()
	defer stopLooking()
	for i := range c.experiment.Spec.Steps {
		s := &c.experiment.Spec.Steps[i]
		step, err := c.Client.AddChaos(ctx, s.rule(c.experiment.Spec.Seed), false)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.Out, "step %d %s: %s\n", i+1, s.Name, cli.Plain(step.Rule.String()))
		if !s.Background {
			err = c.await(ctx, step)
			printDone(c.Out, &step.Status, step.Targets)
		}
		if c.report.Steps = append(c.report.Steps, *step); err != nil {
			return err
		}
		if !cli.Pause(ctx, s.Then.Duration) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// background adds the results of the background steps, which have ended now.
func (c *chaosRun) background(ctx context.Context) {
	all, err := c.Client.Chaos(ctx)
	if err != nil {
		return // the check for the steady state reports it
	}
	for i := range c.report.Steps {
		step := &c.report.Steps[i]
		for _, s := range all.Rules {
			if s.ID == step.ID && !step.Over {
				step.Status = s
				fmt.Fprintf(c.Out, "step %d, in the background, ", i+1)
				printDone(c.Out, &step.Status, step.Targets)
			}
		}
	}
}

// settle waits until the node is steady.
func (c *chaosRun) settle(ctx context.Context) error {
	began := time.Now()
	for {
		err := c.look(ctx, true)
		if err == nil {
			err = c.command(ctx)
		}
		if c.report.Settled = time.Since(began).Seconds(); err == nil {
			return nil
		}
		if time.Since(began) > c.experiment.Spec.Steady.Settle.Duration {
			return fmt.Errorf("the node is not steady after %s: %w", c.experiment.Spec.Steady.Settle.Duration, err)
		}
		if !cli.Pause(ctx, lookEvery) {
			return ctx.Err()
		}
	}
}

func (c *chaosRun) command(ctx context.Context) error {
	argv := c.experiment.Spec.Steady.Command
	if len(argv) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("the command %s: %w: %s", strings.Join(argv, " "), err, cli.Plain(string(out)))
	}
	return nil
}

// violated records a violation, once.
func (c *chaosRun) violated(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[text] || len(c.report.Violations) == maxViolations {
		return
	}
	c.seen[text] = true
	c.report.Violations = append(c.report.Violations, violation{time.Now(), text})
	fmt.Fprintln(c.Out, "check failed:", cli.Plain(text))
	if len(c.report.Violations) >= c.experiment.Spec.Abort {
		c.abort(errors.New("aborted after the failed checks that spec.abortAfter permits"))
	}
}

func checks(n int) string {
	if n == 1 {
		return "1 check"
	}
	return fmt.Sprintf("%d checks", n)
}
