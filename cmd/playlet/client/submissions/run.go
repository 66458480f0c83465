// Package submissions brings pods in and takes them out: what "playlet run" submits, "playlet rm" takes back. It restarts
// containers, too, and waits as the other two do.
package submissions

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/sources/submit"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/base"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
	"github.com/playlet-dev/playlet/cmd/playlet/client/summary"
	"github.com/playlet-dev/playlet/messages"
)

const runLong = `Submit the pods of manifests to the agent of this node, which runs them from now on: until "playlet rm", across
restarts of the agent and reboots of the machine.

A manifest is YAML or JSON, in one or several documents: Pods, ConfigMaps and Secrets (kept in the agent's --object-dir), and
Deployments, DaemonSets, StatefulSets, ReplicaSets and Jobs, each of which runs one pod of its template; a line names the fields
without effect. --skip-unsupported leaves out other kinds. -f names a file, a folder, a URL, or - for standard input.

Each pod is known by its namespace and the name in its manifest; running the same again changes nothing, and another version
takes the place of the one before. All of a manifest is accepted or, when anything is wrong, nothing; each problem is named with
file, line and field. The node's name is appended to a pod's name, as to every static pod's.

With --wait the command ends with 0 once all pods are ready (or have succeeded), those without a readiness probe for two
seconds, or with --for=completed once all have succeeded. It ends with 1 as soon as that is not to be expected: a pod has failed,
will not run, or a container of it has ended a second time and is restarted again and again.

A long manifest is checked whole, and then submitted in parts; progress goes to stderr. If no answer comes, the agent may still
apply what it has received; running the same again settles it.`

const runExample = `  # Run the pods of a manifest
  playlet run -f web.yaml

  # Of several, and of a folder, and wait until all are ready
  playlet run -f web.yaml -f manifests/ --wait

  # From standard input, to its end
  cat job.yaml | playlet run -f - --wait --for=completed

  # What would be changed
  playlet run -f web.yaml --diff`

// Commands are "playlet objects", "restart", "rm" and "run".
func Commands() []*cobra.Command {
	return []*cobra.Command{newObjectsCommand(), newRestartCommand(), newRmCommand(), newRunCommand()}
}

// submitCommand is one run of "playlet run" or "playlet rm".
type submitCommand struct {
	base.Command
	files  []string
	wait   bool
	until  string // what --wait waits for: ready or completed
	dryRun string // none or server
	diff   bool
	// restarting says that ends of containers are what the user asked for.
	restarting bool
	skip       bool // documents of kinds that a node does not run are left out
	timeout    time.Duration
	ticks      <-chan time.Time // of progress; nil: the clock's
	readyFor   time.Duration    // how long a pod without readiness probes has to be ready

	done    []messages.SubmittedPod // what has been said of pods so far
	differs bool                    // --diff has found a difference
}

func newRunCommand() *cobra.Command {
	c := &submitCommand{readyFor: 2 * time.Second}
	cmd := &cobra.Command{
		Use: "run -f FILE|- [...]", Short: "Submit pods to this node's agent", Long: runLong, Example: runExample,
		Args: c.filesOnly,
	}
	c.addFlags(cmd, "Wait until the pods are ready, or have succeeded; their progress goes to stderr")
	cmd.Flags().StringP("namespace", "n", "", "")
	if err := cmd.Flags().MarkHidden("namespace"); err != nil {
		panic(err) // the flag was added a moment ago
	}
	cli.ChoiceFlag(cmd, &c.until, "for", "", untilReady, "What --wait waits for: ready or completed", untilReady, untilCompleted)
	cli.ChoiceFlag(cmd, &c.dryRun, "dry-run", "", "none", "server: have the agent check all and change nothing; or none", "none",
		"server")
	cmd.Flags().BoolVar(&c.diff, "diff", false,
		"Show in what the pods differ from those that were submitted before, and change nothing; exit code 1 where they do")
	cmd.Flags().BoolVar(&c.skip, "skip-unsupported", false,
		"Leave out objects that a node does not run (Service, Ingress and so on), with a line for each")
	return c.Runs(cmd, func(ctx context.Context, _ []string) error {
		switch {
		case len(c.files) == 0:
			return errors.New("which manifest? name its file with -f, or - for standard input (playlet run --help shows " +
				"examples)")
		case cmd.Flags().Changed("namespace"): // as kubectl has it
			return errors.New("the namespace of a pod is written in its manifest: metadata.namespace")
		case cmd.Flags().Changed("for") && !c.wait:
			return errors.New("--for says what --wait waits for; give --wait, too")
		case c.diff && c.Output != "":
			return errors.New("--diff and --output do not go together")
		}
		if c.diff || c.dryRun != "none" {
			c.wait = false
		}
		return c.perform(ctx, c.submitAll(ctx), c.awaitEnd)
	})
}

// What --wait waits for.
const (
	untilReady     = "ready"
	untilCompleted = "completed"
)

func (c *submitCommand) addFlags(cmd *cobra.Command, wait string) {
	cmd.Flags().StringArrayVarP(&c.files, "filename", "f", nil, "Manifest `file`, folder, URL, or - for standard input; repeatable")
	c.addWaitFlags(cmd, wait)
	cli.OutputFlag(cmd, &c.Output, "", "json")
}

func (c *submitCommand) addWaitFlags(cmd *cobra.Command, wait string) {
	cmd.Flags().BoolVar(&c.wait, "wait", false, wait)
	cmd.Flags().DurationVar(&c.timeout, "timeout", 5*time.Minute, "How long --wait waits at most; 0 is without end")
}

// filesOnly refuses arguments: a file is named with -f.
func (c *submitCommand) filesOnly(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument %q; a manifest is named with -f %s", cmd.CommandPath(), args[0], args[0])
	}
	return nil
}

// perform ends a command that has changed something of each pod, with this error: await waits for what comes of it.
func (c *submitCommand) perform(ctx context.Context, err error, await func(context.Context) error) error {
	if c.Output == "json" {
		out := api.Submitted{Pods: c.done}
		if out.Pods == nil {
			out.Pods = []messages.SubmittedPod{}
		}
		err = errors.Join(err, c.Print(out))
	}
	if err != nil || !c.wait {
		return err
	}
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("not within %s", c.timeout))
		defer cancel()
	}
	return await(ctx)
}

// say prints what became of pods.
func (c *submitCommand) say(pods []messages.SubmittedPod) {
	c.done = append(c.done, pods...)
	if c.Output != "" {
		return
	}
	for _, p := range pods {
		name := p.PodName
		if p.Namespace != "default" {
			name += " (namespace " + p.Namespace + ")"
		}
		dry := ""
		if c.dryRun != "none" && c.dryRun != "" {
			dry = " (" + c.dryRun + " dry run)"
		}
		fmt.Fprintf(c.Out, "%s/%s %s%s\n", cmp.Or(strings.ToLower(p.Kind), "pod"), name, p.Change, dry)
		if p.Note != "" {
			c.Note(p.Name + ": " + p.Note)
		}
	}
}

// sayDiff prints what would be changed.
func (c *submitCommand) sayDiff(pods []messages.SubmittedPod) error {
	for _, p := range pods {
		if p.Kind != "" { // what it holds may be a secret
			if p.Change != messages.PodUnchanged {
				c.differs = true
				fmt.Fprintf(c.Out, "%s %s/%s would be %s\n", p.Kind, p.Namespace, p.Name, p.Change)
			}
			continue
		}
		text, err := podDiff(p)
		if err != nil {
			return err
		}
		c.differs = c.differs || text != ""
		fmt.Fprint(c.Out, text)
	}
	return nil
}

func (c *submitCommand) submitAll(ctx context.Context) error {
	failed := 0
	files, err := manifestFiles(c.files)
	if err != nil {
		return err
	}
	c.files = files
	for _, file := range c.files {
		if err := c.submit(ctx, file); err != nil {
			if len(c.files) == 1 || errors.Is(err, api.ErrNotRunning) {
				return err
			}
			c.Note(messages.OneLine(err))
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d manifests were not accepted", failed, len(c.files))
	}
	if c.differs {
		return &cli.ExitError{Code: 1}
	}
	return nil
}

func (c *submitCommand) submit(ctx context.Context, file string) error {
	data, err := c.read(ctx, file)
	if err != nil {
		return err
	}
	if c.skip {
		var skipped []submit.Skipped
		data, skipped = submit.WithoutUnsupported(data)
		for _, s := range skipped {
			c.Note(fmt.Sprintf("%s %s skipped: it is not something a node runs", s.Kind, cmp.Or(s.Name, "without a name")))
		}
		if len(bytes.TrimSpace(data)) == 0 {
			return nil
		}
	}
	parts := submit.Batches(data, maxDocuments)
	check := c.diff || c.dryRun == "server"
	if len(parts) > 1 && !check { // all of a manifest is accepted, or nothing
		if err := c.checkParts(ctx, file, parts); err != nil {
			return err
		}
	}
	for i, part := range parts {
		if err := c.submitPart(ctx, file, part, check); err != nil {
			return err
		}
		c.progressOf(file, "submitted", i, len(parts))
	}
	return nil
}

// maxDocuments is how many documents are submitted at a time. Other commands have their turn in between.
const maxDocuments = 100

// progressOf tells how much of a long manifest is done.
func (c *submitCommand) progressOf(file, done string, i, parts int) {
	if parts > 1 {
		c.Note(fmt.Sprintf("%s: %s %d%%", shownName(file), done, (i+1)*100/parts))
	}
}

// checkParts has the agent check all parts before one of them is submitted.
func (c *submitCommand) checkParts(ctx context.Context, file string, parts [][]byte) error {
	pods := map[string]bool{}
	for i, part := range parts {
		found, err := base.Retry(ctx, startTimeout, func() (*api.Submitted, error) { return c.Client.DryRun(ctx, part) })
		if refused, ok := errors.AsType[*api.Error](err); ok {
			return c.refusal(file, refused)
		} else if err != nil {
			return fmt.Errorf("%s: %w; nothing of it was submitted", shownName(file), err)
		}
		for _, p := range found.Pods {
			if name := p.Namespace + "/" + p.Name; p.Kind == "" && pods[name] {
				return fmt.Errorf("%s has two pods %s; nothing of it was submitted", shownName(file), name)
			} else if p.Kind == "" {
				pods[name] = true
			}
		}
		c.progressOf(file, "checked", i, len(parts))
	}
	return nil
}

func (c *submitCommand) submitPart(ctx context.Context, file string, data []byte, check bool) error {
	submitted, err := base.Retry(ctx, startTimeout, func() (*api.Submitted, error) {
		if check {
			return c.Client.DryRun(ctx, data)
		}
		return c.Client.Submit(ctx, data, true)
	})
	var refused *api.Error
	switch {
	case err == nil && c.diff:
		return c.sayDiff(submitted.Pods)
	case err == nil:
		c.say(submitted.Pods)
		return nil
	case errors.As(err, &refused):
		c.say(refused.Accepted)
		return c.refusal(file, refused)
	case errors.Is(err, api.ErrNotRunning):
		return err
	default:
		return fmt.Errorf("%s: %w; the agent may still apply what it has received: running the same again settles it",
			shownName(file), err)
	}
}

// refusal names file, line and field of each problem.
func (c *submitCommand) refusal(file string, refused *api.Error) error {
	if len(refused.Problems) == 0 {
		return fmt.Errorf("%s: %w", shownName(file), refused)
	}
	for _, p := range refused.Problems {
		p.Path = shownName(file)
		c.Note(api.ProblemText(p))
	}
	if slices.ContainsFunc(refused.Problems, func(p messages.ManifestProblem) bool { return p.Field == "kind" }) {
		return fmt.Errorf("%s was refused, and none of it is run (--skip-unsupported leaves out what a node does not run)",
			shownName(file))
	}
	return fmt.Errorf("%s was refused, and none of it is run", shownName(file))
}

// uids are those of the pods that were spoken of, each once.
func (c *submitCommand) uids() map[string]messages.SubmittedPod {
	out := map[string]messages.SubmittedPod{}
	for _, p := range c.done {
		if p.Kind == "" {
			out[p.UID] = p
		}
	}
	return out
}

// awaitEnd waits until every pod is what --for says.
func (c *submitCommand) awaitEnd(ctx context.Context) error {
	done := func(p *api.Pod) (bool, error) { return settled(p, c.until, c.Now()) }
	for {
		if err := c.await(ctx, c.until, done); err != nil || c.until != untilReady {
			return err
		}
		if lasts, err := c.lasts(ctx, done); lasts || err != nil {
			return err
		}
	}
}

// lasts looks again a moment later at pods without readiness probes: those are ready for a moment before their containers fail.
func (c *submitCommand) lasts(ctx context.Context, done func(*api.Pod) (bool, error)) (bool, error) {
	uids := c.uids()
	momentary := func(all *api.Pods) (out []*api.Pod) {
		for i := range all.Pods {
			p := &all.Pods[i]
			_, ours := uids[string(p.Pod.UID)]
			if ours && p.Pod.Status.Phase != v1.PodSucceeded && slices.ContainsFunc(p.Pod.Spec.Containers,
				func(c v1.Container) bool { return c.ReadinessProbe == nil }) {
				out = append(out, p)
			}
		}
		return out
	}
	all, err := c.Client.Pods(ctx, api.Filter{})
	if err == nil && len(momentary(all)) == 0 || !cli.Pause(ctx, c.readyFor) {
		return true, nil // what was awaited was so
	}
	if all, err = c.Client.Pods(ctx, api.Filter{}); err != nil {
		return false, nil //nolint:nilerr // it is awaited again, which says what is the matter
	}
	for _, p := range momentary(all) {
		if is, err := done(p); !is || err != nil {
			return false, err
		}
	}
	return true, nil
}

// settled says whether a pod is as it is waited for, and the error why that is not to be expected.
func settled(p *api.Pod, until string, now time.Time) (bool, error) {
	name := names.Full(p)
	why := func(text string) string { return cli.Plain(cmp.Or(p.Cause, text)) }
	switch s := p.Pod.Status; {
	case s.Phase == v1.PodSucceeded:
		return true, nil
	case s.Phase == v1.PodFailed:
		return false, fmt.Errorf("pod %s has failed: %s", name, why(failureOf(p)))
	case p.Ending != "":
		return false, fmt.Errorf("pod %s is going: %s", name, why(p.Ending))
	case until == untilReady && summary.Condition(p.Pod, v1.PodReady):
		return true, nil
	case p.Waiting != nil && p.Waiting.Permanent:
		return false, fmt.Errorf("pod %s will not run: %s", name, summary.WaitingFor(p, now))
	case until == untilCompleted && p.Pod.Spec.RestartPolicy == v1.RestartPolicyAlways:
		return false, fmt.Errorf("pod %s does not complete: its restartPolicy is Always", name)
	}
	for _, c := range slices.Concat(p.Pod.Status.InitContainerStatuses, p.Pod.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Reason == messages.ReasonCrashLoopBackOff && c.RestartCount > 0 {
			return false, fmt.Errorf("pod %s does not become %s: %s", name, until,
				why(fmt.Sprintf("container %s keeps exiting", c.Name)))
		}
	}
	return false, nil
}

// failureOf names the container that has failed, and how it ended.
func failureOf(p *api.Pod) string {
	for _, c := range slices.Concat(p.Pod.Status.InitContainerStatuses, p.Pod.Status.ContainerStatuses) {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			return fmt.Sprintf("container %s exited with code %d (%s)", c.Name, t.ExitCode, t.Reason)
		}
	}
	return cmp.Or(p.Pod.Status.Message, summary.Of(p).Status)
}
