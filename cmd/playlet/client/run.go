package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/sources/submit"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/messages"
)

const runLong = `Submit the pods of manifests to the agent of this node, which runs them from now on: until "playlet rm", across
restarts of the agent and reboots of the machine.

A manifest is YAML or JSON: a v1 Pod, a list of Pods, or several documents. Each pod is known by its namespace and the
name in its manifest; running the same again changes nothing, and another version takes the place of the one before.
All pods of a manifest are accepted or, when anything is wrong with one, none; each problem is named with file, line and
field. The node's name is appended to a pod's name, as to every static pod's.

When no answer comes, whether the pods were accepted is not known; running the same again settles it.`

const runExample = `  # Run the pods of a manifest
  playlet run -f web.yaml

  # Of several, and wait until all are ready
  playlet run -f web.yaml -f db.yaml --wait

  # From standard input
  cat web.yaml | playlet run -f -`

// submitCommand is one run of "playlet run" or "playlet rm".
type submitCommand struct {
	client   *api.Client
	files    []string
	output   string // "" or json
	wait     bool
	timeout  time.Duration
	in       io.Reader
	out, err io.Writer
	now      func() time.Time

	done []messages.SubmittedPod // what has been said of pods so far
}

func newRunCommand() *cobra.Command {
	c := &submitCommand{now: time.Now}
	cmd := &cobra.Command{
		Use: "run -f FILE|- [...]", Short: "Submit pods to this node's agent", Long: runLong, Example: runExample,
		Args: c.filesOnly, SilenceUsage: true,
	}
	socket := cli.SocketFlag(cmd)
	c.addFlags(cmd, "Wait until the pods are ready, or have succeeded; their progress goes to stderr")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(c.files) == 0 {
			return errors.New("which manifest? name its file with -f, or - for standard input (playlet run --help shows " +
				"examples)")
		}
		return c.perform(cmd, *socket, c.submitAll, c.awaitReady)
	}
	return cmd
}

func (c *submitCommand) addFlags(cmd *cobra.Command, wait string) {
	cmd.Flags().StringArrayVarP(&c.files, "filename", "f", nil, "Manifest `file`, or - for standard input; repeatable")
	cmd.Flags().BoolVar(&c.wait, "wait", false, wait)
	cmd.Flags().DurationVar(&c.timeout, "timeout", 5*time.Minute, "How long --wait waits at most; 0 is without end")
	cli.OutputFlag(cmd, &c.output, "", "json")
}

// filesOnly refuses arguments: a file is named with -f.
func (c *submitCommand) filesOnly(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument %q; a manifest is named with -f %s", cmd.CommandPath(), args[0], args[0])
	}
	return nil
}

// perform does the command: change changes something of each pod and says so, and await waits for what comes of it.
func (c *submitCommand) perform(cmd *cobra.Command, socket string, change, await func(context.Context) error) error {
	if err := cli.OneOf("output", c.output, "", "json"); err != nil {
		return err
	}
	c.client, c.in, c.out, c.err = api.NewClient(socket), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	err := change(cmd.Context())
	if c.output == "json" {
		out := api.Submitted{Pods: c.done}
		if out.Pods == nil {
			out.Pods = []messages.SubmittedPod{}
		}
		err = errors.Join(err, cli.PrintObject(c.out, out, c.output))
	}
	if err != nil || !c.wait {
		return err
	}
	ctx := cmd.Context()
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
	if c.output != "" {
		return
	}
	for _, p := range pods {
		name := p.PodName
		if p.Namespace != "default" {
			name += " (namespace " + p.Namespace + ")"
		}
		fmt.Fprintf(c.out, "pod/%s %s\n", name, p.Change)
	}
}

func (c *submitCommand) submitAll(ctx context.Context) error {
	failed := 0
	for _, file := range c.files {
		if err := c.submit(ctx, file); err != nil {
			if len(c.files) == 1 || errors.Is(err, api.ErrNotRunning) {
				return err
			}
			fmt.Fprintln(c.err, cli.OneLine(err))
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d manifests were not accepted", failed, len(c.files))
	}
	return nil
}

func (c *submitCommand) submit(ctx context.Context, file string) error {
	data, err := c.read(file)
	if err != nil {
		return err
	}
	submitted, err := retry(ctx, func() (*api.Submitted, error) { return c.client.Submit(ctx, data, true) })
	var refused *api.Error
	switch {
	case err == nil:
		c.say(submitted.Pods)
		return nil
	case errors.As(err, &refused):
		c.say(refused.Accepted)
		return c.refusal(file, refused)
	case errors.Is(err, api.ErrNotRunning):
		return err
	default:
		return fmt.Errorf("%s: %w; whether it was accepted is not known: run the same again", shownName(file), err)
	}
}

// refusal names file, line and field of each problem.
func (c *submitCommand) refusal(file string, refused *api.Error) error {
	if len(refused.Problems) == 0 {
		return fmt.Errorf("%s: %w", shownName(file), refused)
	}
	for _, p := range refused.Problems {
		p.Path = shownName(file)
		fmt.Fprintln(c.err, cli.Plain(api.ProblemText(p)))
	}
	return fmt.Errorf("%s was refused, and none of it is run", shownName(file))
}

// read reads one manifest, no more of it than the agent would take.
func (c *submitCommand) read(file string) ([]byte, error) {
	from := c.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // only read from
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, submit.MaxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", shownName(file), err)
	}
	if len(data) > submit.MaxManifest {
		return nil, fmt.Errorf("%s is larger than the %d MiB that a manifest may have", shownName(file), submit.MaxManifest>>20)
	}
	return data, nil
}

func shownName(file string) string {
	if file == "-" {
		return "standard input"
	}
	return file
}

// uids are those of the pods that were spoken of, each once.
func (c *submitCommand) uids() map[string]messages.SubmittedPod {
	out := map[string]messages.SubmittedPod{}
	for _, p := range c.done {
		out[p.UID] = p
	}
	return out
}

// awaitReady waits until every pod is ready or has succeeded.
func (c *submitCommand) awaitReady(ctx context.Context) error {
	return c.await(ctx, "ready", func(p *api.Pod) (bool, error) {
		switch s := p.Pod.Status; {
		case slices.ContainsFunc(s.Conditions, isReady), s.Phase == "Succeeded":
			return true, nil
		case s.Phase == "Failed":
			return false, fmt.Errorf("pod %s/%s has failed: %s", p.Pod.Namespace, p.Pod.Name, summarize(p).status)
		case p.Waiting != nil && p.Waiting.Permanent:
			return false, fmt.Errorf("pod %s/%s will not run: %s", p.Pod.Namespace, p.Pod.Name, waitingFor(p, c.now()))
		}
		return false, nil
	})
}
