package client

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/messages"
)

const explainLong = `Say in plain words why a pod is in the state that it is in: the cause first, then what it waits for, since when, what was
tried, when the next try is and what would unblock it. "explain node" says the same of the node.

With -v, what that was made from follows: the pod's status and its last messages. The fields of -o json are stable.`

const explainExample = `  playlet explain pod/web
  playlet explain pod/web -n shop -v
  playlet explain node -o json`

func newExplainCommand() *cobra.Command {
	c := &podsCommand{now: time.Now}
	var verbose bool
	cmd := &cobra.Command{
		Use: "explain {pod/NAME | node}", Short: "Say why a pod, or the node, is in its state", Long: explainLong,
		Example: explainExample, Args: cobra.ExactArgs(1), SilenceUsage: true,
	}
	socket := cli.SocketFlag(cmd)
	cmd.Flags().StringVarP(&c.filter.Namespace, "namespace", "n", "", "The pod's `namespace`; any when empty")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "Add what the explanation was made from")
	cli.OutputFlag(cmd, &c.output, "text", "text", "json")
	cmd.ValidArgsFunction = completePods(socket, &c.filter.Namespace)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cli.OneOf("output", c.output, "text", "json"); err != nil {
			return err
		}
		kind, name, named := strings.Cut(args[0], "/")
		switch {
		case args[0] == "node":
		case named && (kind == "pod" || kind == "pods") && name != "":
			c.filter.Name = name
		case !named:
			c.filter.Name = args[0]
		default:
			return fmt.Errorf("%q cannot be explained; name pod/NAME or node", args[0])
		}
		c.client, c.out = api.NewClient(*socket), cmd.OutOrStdout()
		return c.explain(cmd.Context(), verbose)
	}
	return cmd
}

func (c *podsCommand) explain(ctx context.Context, verbose bool) error {
	c.resolve(ctx)
	got, err := c.client.Explain(ctx, c.filter)
	if err != nil {
		return err
	}
	if !verbose {
		for i := range got.Items {
			got.Items[i].Evidence, got.Items[i].Messages = nil, nil
		}
	}
	if c.output == "json" {
		return cli.PrintObject(c.out, got, c.output)
	}
	for i := range got.Items {
		if i > 0 {
			fmt.Fprintln(c.out)
		}
		if err := printExplanation(c.out, &got.Items[i], c.now()); err != nil {
			return err
		}
	}
	return nil
}

// printExplanation prints one explanation, the cause first.
func printExplanation(out io.Writer, e *api.Explanation, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, cli.Plain(e.Cause))
	printFinding(w, e.Finding, now)
	for _, f := range e.Others {
		fmt.Fprintf(w, "\n%s\n", cli.Plain(f.Cause))
		printFinding(w, f, now)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(e.Evidence)+len(e.Messages) > 0 {
		fmt.Fprintln(out, "\nEvidence:")
		if e.UID != "" {
			fmt.Fprintf(out, "  pod %s/%s, UID %s, of %s, phase %s, its actor is %s\n", e.Namespace, e.Name, e.UID,
				orNone(string(e.Source)), orNone(e.Phase), orNone(e.Actor))
		}
	}
	for _, line := range e.Evidence {
		fmt.Fprintln(out, "  "+cli.Plain(line))
	}
	for _, m := range e.Messages {
		fmt.Fprintln(out, "  "+cli.Plain(strings.ReplaceAll(m.String(), string(messages.PodAddress(e.UID)), "pod")))
	}
	return nil
}

func printFinding(w io.Writer, f api.Finding, now time.Time) {
	line := func(what, text string) {
		if text = cli.Plain(text); text != "" {
			fmt.Fprintf(w, "  %s:\t%s\n", what, text)
		}
	}
	when := func(what string, at time.Time) {
		switch ago := now.Sub(at); {
		case at.IsZero():
		case ago >= 0:
			line(what, fmt.Sprintf("%s (%s ago)", at.Local().Format(time.DateTime), duration.HumanDuration(ago)))
		default:
			line(what, fmt.Sprintf("%s (in %s)", at.Local().Format(time.DateTime), duration.HumanDuration(-ago)))
		}
	}
	line("state", f.Code)
	line("waits for", f.WaitsFor)
	when("since", f.Since)
	switch {
	case f.Tries == 1:
		line("tried", "once in vain")
	case f.Tries > 1:
		line("tried", fmt.Sprintf("%d times in vain", f.Tries))
	}
	line("last said", f.LastError)
	when("next try", f.NextTry)
	when("ended at", f.Until)
	line("to unblock it", f.Remedy)
}
