// Package submissions has the commands that submit and remove pods: "playlet run" and "playlet rm". It also restarts containers,
// with the same wait.
package submissions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/base"
	"github.com/playlet-dev/playlet/messages"
)

const runLong = `Submit the pods of manifests to this node's agent. It runs them until "playlet rm", across restarts of the
agent and reboots of the machine.

A manifest is YAML or JSON with one or more documents: Pods, ConfigMaps and Secrets (kept in the agent's --object-dir), and
Deployments, DaemonSets, StatefulSets, ReplicaSets and Jobs. Each of the latter runs one pod of its template; fields without
effect are listed. --skip-unsupported skips other kinds. -f names a file, a folder, a URL, or - for standard input.

A pod is identified by its namespace and the name in its manifest. Submitting the same manifest again changes nothing; a new
version replaces the previous one. A manifest is accepted as a whole or rejected as a whole; each problem is reported with
file, line and field. The node's name is appended to a pod's name, as with every static pod.

With --wait, the command exits with 0 once all pods are ready or have succeeded (pods without a readiness probe must have run
for two seconds), or with --for=completed once all have succeeded. It exits with 1 as soon as this can no longer be expected: a
pod has failed or cannot run, or one of its containers keeps crashing.

A long manifest is first checked as a whole and then submitted in parts; progress is printed to stderr. If the agent does not
answer, it may still apply the parts that it received; run the same command again to be sure.`

const runExample = `  # Run the pods of a manifest
  playlet run -f web.yaml

  # Run those of a file and of a folder, and wait until all are ready
  playlet run -f web.yaml -f manifests/ --wait

  # Run a manifest from standard input, and wait until it has completed
  cat job.yaml | playlet run -f - --wait --for=completed

  # Show the changes without applying them
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
	until  string // the condition of --wait: ready or completed
	dryRun string // none, server or client; the agent is asked for both of the latter
	diff   bool
	// restarting means that containers end at the user's request.
	restarting bool
	skip       bool // documents of kinds that a node does not run are left out
	timeout    time.Duration
	ticks      <-chan time.Time // of progress; nil: the clock's
	readyFor   time.Duration    // how long a pod without readiness probes has to be ready

	done    []messages.SubmittedPod // the results for pods so far
	differs bool                    // --diff has found a difference
}

func newRunCommand() *cobra.Command {
	c := &submitCommand{readyFor: 2 * time.Second}
	cmd := &cobra.Command{
		Use: "run -f FILE|- [...]", Short: "Submit pods to this node's agent", Long: runLong, Example: runExample,
		Args: c.filesOnly,
	}
	c.addFlags(cmd, "Wait until the pods are ready or have succeeded; progress is printed to stderr")
	cmd.Flags().StringP("namespace", "n", "", "")
	if err := cmd.Flags().MarkHidden("namespace"); err != nil {
		panic(err) // the flag was added a moment ago
	}
	cli.ChoiceFlag(cmd, &c.until, "for", "", untilReady, "Condition that --wait waits for: ready or completed", untilReady,
		untilCompleted)
	c.addDryRun(cmd, "The agent checks everything, and changes nothing")
	cmd.Flags().BoolVar(&c.diff, "diff", false,
		"Show the differences from the submitted pods, and change nothing; the exit code is 1 if there are any")
	cmd.Flags().BoolVar(&c.skip, "skip-unsupported", false,
		"Skip objects that a node does not run (Service, Ingress and so on), and print a line for each")
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

// The conditions of --wait.
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
	cmd.Flags().DurationVar(&c.timeout, "timeout", 5*time.Minute, "Maximum time that --wait waits; 0 means no limit")
}

// filesOnly refuses arguments: a file is named with -f.
func (c *submitCommand) filesOnly(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument %q; a manifest is named with -f %s", cmd.CommandPath(), args[0], args[0])
	}
	return nil
}

// perform completes a command that has changed each pod, with this error. await waits for the result of the changes.
func (c *submitCommand) perform(ctx context.Context, err error, await func(context.Context) error) error {
	if c.Output == "json" {
		out := api.SubmitReply{Pods: c.done}
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

// say prints the results for pods.
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

// sayDiff prints the pending changes.
func (c *submitCommand) sayDiff(pods []messages.SubmittedPod) error {
	for _, p := range pods {
		if p.Kind != "" { // its contents may be secret
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
