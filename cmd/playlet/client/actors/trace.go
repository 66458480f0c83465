package actors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/base"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/trace"
)

const traceLong = `Print the flight recorder's messages of a pod, of an actor, or of all: each message with its sender and
receiver, its time in the queue and in handling, and below it the work that it caused, including calls to the container runtime
(CRI) and the API server. For a pod, the messages that led to it come first.

A pod is given as NAME, pod/NAME, NAMESPACE/NAME, or UID, which also finds a removed pod; an actor as actor/PATH, with the
path that "playlet actors" prints.

-o mermaid prints a sequence diagram for Markdown or mermaid.live; -o perfetto prints a file for ui.perfetto.dev, with one
track per actor; -o json prints one entry per line, with stable fields.

With --critical-path, the time of a pod's start is broken down, by following the causes back from the moment it became ready.
For a pod that was already running when the agent started, it shows the adoption instead.`

const traceExample = `  # All messages of a pod, from its manifest on
  playlet trace web

  # Why did its start take so long?
  playlet trace web --critical-path

  # Follow the actor that pulls images
  playlet trace actor/images -f

  # A sequence diagram, and a file for ui.perfetto.dev
  playlet trace pod/web -n shop -o mermaid > web.mmd
  playlet trace pod/web -n shop -o perfetto > web.json`

// traceCommand is one run of "playlet trace".
type traceCommand struct {
	base.Command
	options  api.TraceOptions
	since    time.Duration
	critical bool
	names    trace.Names
	start    time.Time // of the first line
	absent   error     // the named pod is not there
}

func newTraceCommand() *cobra.Command {
	c := &traceCommand{}
	cmd := &cobra.Command{
		Use: "trace [POD | actor/PATH]", Short: "Print the messages of a pod or an actor", Long: traceLong, Example: traceExample,
		Args: cli.AtMostOne("pod or actor"),
	}
	flags := cmd.Flags()
	names.AddNamespaceFlag(cmd, &c.options.Namespace, &c.Socket, names.OfOnePod)
	flags.BoolVarP(&c.options.Follow, "follow", "f", false, "Keep running, and print new messages until Ctrl-C")
	flags.DurationVar(&c.since, "since", 0, "Only messages that ended within this `duration`, such as 5s, 2m or 3h")
	flags.BoolVar(&c.critical, "critical-path", false, "Break down the time of the pod's start (-o text, json)")
	cli.OutputFlag(cmd, &c.Output, "text", "text", "json", "mermaid", "perfetto")
	pods, actors := names.CompletePods(&c.Socket, &c.options.Namespace, false), names.Completion(&c.Socket, Paths)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if !strings.HasPrefix(typed, actorPrefix) {
			return pods(cmd, args, typed)
		}
		out, directive := actors(cmd, args, typed)
		for i := range out {
			out[i] = actorPrefix + out[i]
		}
		return out, directive
	}
	return c.Runs(cmd, func(ctx context.Context, args []string) error {
		arg := strings.Join(args, "")
		if err := c.check(arg); err != nil {
			return err
		}
		return c.run(ctx, arg)
	})
}

const actorPrefix = "actor/"

func (c *traceCommand) check(arg string) error {
	drawn := c.Output == "mermaid" || c.Output == "perfetto"
	switch {
	case c.since < 0:
		return fmt.Errorf("--since=%s: it must be more than 0", c.since)
	case c.since > 0:
		c.options.Since = c.Now().Add(-c.since)
	}
	switch {
	case drawn && c.options.Follow:
		return fmt.Errorf("--follow prints text or json; -o %s draws what is there now", c.Output)
	case !c.critical:
		return nil
	case drawn:
		return fmt.Errorf("--critical-path is printed as text or json; leave out -o %s", c.Output)
	case c.options.Follow || c.since > 0:
		return errors.New("--critical-path looks at a whole start; leave out --follow and --since")
	case arg == "" || strings.HasPrefix(arg, actorPrefix):
		return errors.New("--critical-path is that of a pod's start; name the pod (playlet pods lists them)")
	}
	return nil
}

func (c *traceCommand) run(ctx context.Context, arg string) error {
	if err := c.choose(ctx, arg); err != nil {
		return err
	}
	err := c.Client.Trace(ctx, c.options, func(t *api.Trace) error {
		if t.Pod != nil {
			c.names.Pod, c.names.Pods[t.Pod.UID] = t.Pod.UID, t.Pod.Namespace+"/"+t.Pod.Name
		} else if c.options.Pod != "" {
			c.names.Pod = c.options.Pod
		}
		if c.critical {
			return c.printPath(t.Entries)
		}
		return c.print(t.Entries)
	})
	if refused, ok := errors.AsType[*api.Error](err); ok && refused.Status == 404 {
		if c.absent != nil {
			return fmt.Errorf("%w; no message of it is recorded either (a pod that is gone is found by its UID)", c.absent)
		}
		return fmt.Errorf("%s (playlet actors lists them)", refused.Text)
	}
	return err
}

// PrintTrace prints the recorded trace of the pod or the actor that the options name, as text.
func PrintTrace(ctx context.Context, client *api.Client, o api.TraceOptions, out io.Writer) error {
	c := &traceCommand{Command: base.Command{Client: client, Out: out, Err: out, Output: "text"}, options: o}
	return c.run(ctx, "")
}

// choose finds the pod or the actor that is meant, and learns the names of pods.
func (c *traceCommand) choose(ctx context.Context, arg string) error {
	all, err := c.Client.Actors(ctx)
	if err != nil {
		return err
	}
	c.names.Pods = PodNames(all.Actors)
	if path, ok := strings.CutPrefix(arg, actorPrefix); ok {
		if path = strings.Trim(path, "/"); path == "" {
			return errors.New("which actor? (playlet actors lists them)")
		}
		c.options.Actor = path // one that is gone may still be recorded
		if found, err := below(all.Actors, path); err == nil {
			c.options.Actor = found[0].Path.String()
		}
		return nil
	}
	if arg == "" {
		return nil
	}
	name, err := names.Parse(c.options.Namespace, arg)
	if err != nil {
		return err
	}
	pods, err := c.Client.Pods(ctx, api.Filter{Namespace: name.Namespace})
	if err != nil {
		return err
	}
	if len(name.Choose(pods.Pods)) == 0 { // it may be the UID of one that is gone
		c.absent = names.Absent(pods.Pods, name)
		c.options.Pod, c.options.Namespace = name.Name, name.Namespace
		return nil
	}
	pod, notes, err := name.One(pods.Pods)
	if err != nil {
		return err
	}
	c.Note(notes...)
	c.options.Pod, c.options.Namespace = string(pod.Pod.UID), ""
	return nil
}

func (c *traceCommand) print(entries []supervisors.Entry) error {
	switch c.Output {
	case "json":
		lines := json.NewEncoder(c.Out)
		for i := range entries {
			if err := lines.Encode(&entries[i]); err != nil {
				return err
			}
		}
		return nil
	case "mermaid":
		_, err := io.WriteString(c.Out, trace.Mermaid(entries, c.names))
		return err
	case "perfetto":
		return trace.Perfetto(c.Out, entries, c.names)
	}
	if c.start.IsZero() {
		c.start = trace.Start(entries)
		if len(entries) == 0 && !c.options.Follow {
			c.Note("no message is recorded")
			return nil
		}
		if len(entries) > 0 {
			if uid := c.names.Pod; uid != "" {
				fmt.Fprintf(c.Out, "pod is %s, UID %s; ", cli.OrNone(c.names.Pods[uid]), uid)
			}
			began := c.start.Local().Format("2006-01-02 15:04:05.000")
			fmt.Fprintf(c.Out, "times are counted from %s\n%s\n", began, trace.Heading)
		}
	}
	for _, line := range trace.Transcript(entries, c.start, c.names) {
		if _, err := fmt.Fprintln(c.Out, cli.Plain(line)); err != nil {
			return err
		}
	}
	return nil
}

// leastShare is the least percentage of a segment that is printed.
const leastShare = 0.1

func (c *traceCommand) printPath(entries []supervisors.Entry) error {
	pod := c.names.Pod
	if name := c.names.Pods[pod]; name != "" {
		pod = name
	}
	path, err := trace.CriticalPath(entries, c.names)
	if err != nil {
		return fmt.Errorf("pod %s has no critical path: %w (playlet explain pod/%s says how it is)", pod, err,
			messages.Address(pod).Name())
	}
	if c.Output == "json" {
		return c.Print(path)
	}
	w := tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "AT\tTOOK\tSHARE\tKIND\tACTOR\tWHAT")
	sums := map[trace.SegmentKind]time.Duration{}
	share := func(d time.Duration) float64 { return 100 * float64(d) / float64(max(path.Took, 1)) }
	short, shorter := 0, time.Duration(0)
	for _, s := range path.Segments {
		if sums[s.Kind] += s.Took; share(s.Took) < leastShare {
			short++
			shorter += s.Took
			continue
		}
		fmt.Fprintf(w, "+%.3fs\t%s\t%.1f%%\t%s\t%s\t%s\n", s.Began.Sub(path.Began).Seconds(), s.Took.Round(time.Microsecond),
			share(s.Took), s.Kind, s.Actor, cli.Plain(s.Name))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if short > 0 {
		fmt.Fprintf(c.Out, "%d more take %s together, each less than %.1f%% (-o json has them)\n", short,
			shorter.Round(time.Microsecond), leastShare)
	}
	from := "From start to ready"
	if path.Adopted {
		from = "Not the pod's start: the agent found it running and adopted it. From the agent's first message to ready"
	}
	fmt.Fprintf(c.Out, "\n%s: %s\n", from, path.Took.Round(time.Microsecond))
	for _, kind := range trace.Kinds {
		if sums[kind] > 0 {
			fmt.Fprintf(w, "  %s\t%s\t%.1f%%\n", kind, sums[kind].Round(time.Microsecond), share(sums[kind]))
		}
	}
	return w.Flush()
}
