package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
	"github.com/playlet-dev/playlet/supervisors/trace"
)

const explainLong = `Explain in plain words why a pod is in its state: first the cause, then the condition it waits for, since
when, the number of failures, the time of the next retry, and the fix. "explain node" does the same for the node.

The state is the STATUS that "playlet pods" prints. If the reason used in Events is different, it is printed too.

With -v, the evidence follows: the pod's status and its last messages. The fields of -o json are stable.`

const explainExample = `  playlet explain pod/web
  playlet explain shop/web -v
  playlet explain web db
  playlet explain -l app=web
  playlet explain node -o json`

func newExplainCommand() *cobra.Command {
	c := &podsCommand{}
	var verbose bool
	cmd := &cobra.Command{
		Use: "explain {NAME... | node}", Short: "Explain why a pod, or the node, is in its state", Long: explainLong,
		Example: explainExample,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && c.set.Selector == "" {
				return fmt.Errorf("explain what? name a pod, or node (%s --help shows examples)", cmd.CommandPath())
			}
			return c.set.Settle(cmd, args)
		},
	}
	c.set.AddFlags(cmd, &c.Socket)
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "Add the evidence")
	cli.OutputFlag(cmd, &c.Output, "text", "text", "json")
	return c.Runs(cmd, func(ctx context.Context, args []string) error { return c.explain(ctx, args, verbose) })
}

// explanations requests the explanations of the named pods, or of the node.
func (c *podsCommand) explanations(ctx context.Context, args []string) (*api.Explanations, error) {
	if len(args) == 1 && args[0] == "node" {
		return c.Client.Explain(ctx, api.Filter{})
	}
	all, err := c.Client.Pods(ctx, c.set.Filter())
	if err != nil {
		return nil, err
	}
	found, missing := c.set.Choose(all.Pods)
	found, notes := names.Meant(found)
	out := &api.Explanations{At: all.At, Items: []api.Explanation{}}
	ask := func(f api.Filter, uid string) error {
		got, err := c.Client.Explain(ctx, f)
		if err == nil {
			got.Items = slices.DeleteFunc(got.Items, func(e api.Explanation) bool { return uid != "" && e.UID != uid })
			out.Items = append(out.Items, got.Items...)
		}
		return err
	}
	for i := range found {
		p := found[i].Pod
		if err := ask(api.Filter{Namespace: p.Namespace, Name: p.Name}, string(p.UID)); err != nil {
			return nil, err
		}
	}
	for _, n := range c.set.Names { // the agent may know why one is not there
		if missing != nil && len(n.Choose(all.Pods)) == 0 {
			err := ask(api.Filter{Namespace: n.Namespace, Name: n.Name}, "")
			if refused, known := errors.AsType[*api.Error](err); known && refused.Status == http.StatusNotFound {
				err = names.Absent(all.Pods, n)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if len(args) == 0 && len(found) == 0 {
		notes = append(notes, "no pods")
	}
	c.Note(notes...)
	return out, nil
}

func (c *podsCommand) explain(ctx context.Context, args []string, verbose bool) error {
	got, err := c.explanations(ctx, args)
	if err != nil {
		return err
	}
	if !verbose {
		for i := range got.Items {
			got.Items[i].Evidence, got.Items[i].Messages = nil, nil
		}
	}
	if c.Output == "json" {
		return c.Print(got)
	}
	for i := range got.Items {
		if i > 0 {
			fmt.Fprintln(c.Out)
		}
		e := &got.Items[i]
		if several := len(got.Items) > 1; several && e.Name != "" {
			prefixCauses(e, e.Namespace+"/"+e.Name+": ")
		}
		if err := PrintExplanation(c.Out, e, c.Now()); err != nil {
			return err
		}
	}
	return nil
}

// prefixCauses begins each sentence of an explanation with the name of its pod.
func prefixCauses(e *api.Explanation, name string) {
	e.Cause = name + e.Cause
	for i := range e.Others {
		e.Others[i].Cause = name + e.Others[i].Cause
	}
}

// PrintExplanation prints one explanation, the cause first.
func PrintExplanation(out io.Writer, of *api.Explanation, now time.Time) error {
	e := *of
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, cli.Plain(e.Cause))
	word := "reason"
	if e.Kind == "Node" {
		word = "check"
	}
	if state := cmp.Or(e.State, e.Code); e.Code != "" && e.Kind != "Node" {
		fmt.Fprintf(w, "  state:\t%s\n", cli.Plain(state))
		if state == e.Code { // one word for one thing
			e.Code = ""
		}
	}
	printFinding(w, word, e.Finding, now)
	for _, f := range e.Others {
		fmt.Fprintf(w, "\n%s\n", cli.Plain(f.Cause))
		printFinding(w, word, f, now)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(e.Evidence)+len(e.Messages) > 0 {
		fmt.Fprintln(out, "\nEvidence:")
		if e.UID != "" {
			fmt.Fprintf(out, "  pod %s/%s, UID %s, of %s, phase %s, its actor is %s\n", e.Namespace, e.Name, e.UID,
				cli.OrNone(string(e.Source)), cli.OrNone(e.Phase), cli.OrNone(e.Actor))
		}
	}
	for _, line := range e.Evidence {
		fmt.Fprintln(out, "  "+cli.Plain(line))
	}
	if len(e.Messages) > 0 {
		names := trace.Names{Pod: e.UID, Pods: map[string]string{e.UID: e.Namespace + "/" + e.Name}}
		fmt.Fprintln(out, "  "+trace.Heading)
		for _, line := range trace.Transcript(e.Messages, trace.Start(e.Messages), names) {
			fmt.Fprintln(out, "  "+cli.Plain(line))
		}
	}
	return nil
}

func printFinding(w io.Writer, word string, f api.Finding, now time.Time) {
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
	line(word, f.Code)
	line("waits for", f.WaitsFor)
	when("since", f.Since)
	switch {
	case f.Tries == 1:
		line("failed", "once")
	case f.Tries > 1:
		line("failed", fmt.Sprintf("%d times", f.Tries))
	}
	line("last error", f.LastError)
	when("retry", f.NextTry)
	when("ended at", f.Until)
	line("to fix it", f.Remedy)
}
