// Package pods lists and describes pods: their state, their events, and the reasons for their state.
package pods

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/base"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
	"github.com/playlet-dev/playlet/cmd/playlet/client/summary"
)

const podsLong = `List the pods of this node, with READY, STATUS and RESTARTS computed as kubectl does.

Problems that do not fit into the table are printed to stderr: the reason why a pod waits, manifests with problems, pods in
quarantine, a runtime that cannot be reached. With -o wide, the last column shows the reason why a pod waits.

A pod can be named in any form that is printed: web-node1, pod/web-node1, default/web-node1; a static pod also by the name in
its manifest: web. With -o yaml, json and jsonpath, a single named pod is printed as one object, everything else as a List.

With -w, rows are printed as they change, until Ctrl-C or across restarts of the agent. The progress of an image pull, or its
time in the queue, is printed every ten seconds.`

const podsExample = `  # All pods of this node
  playlet pods

  # One namespace, with node, source and what each pod waits for
  playlet pods -n kube-system -o wide

  # One pod as an API object, with its status
  playlet pods web-node1 -n default -o yaml

  # A static pod by the name in its manifest
  playlet pods web

  # Two pods; pods with a label; one field of a pod
  playlet pods web default/db
  playlet pods -l app=web --no-headers
  playlet pods web -o jsonpath='{.status.podIP}'
  playlet pods --field-selector=status.phase=Running --sort-by=.status.startTime -L app
  playlet pods -o custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[*].image

  # Watch changes
  playlet pods -w`

// Commands are "playlet describe", "events", "explain" and "pods".
func Commands() []*cobra.Command {
	return []*cobra.Command{newDescribeCommand(), newEventsCommand(), newExplainCommand(), newPodsCommand()}
}

// podsCommand is one run of "playlet pods".
type podsCommand struct {
	base.Command
	set   names.Set
	print cli.ObjectPrinter // nil: as a table
	bare  bool              // no headings
	// sortBy is the path of a field; columns are the labels with a column of their own; labels is a column of all.
	sortBy  string
	columns []string
	labels  bool
	ticks   <-chan time.Time // of a watch: the times of periodic progress; nil for a clock's
}

func newPodsCommand() *cobra.Command {
	c := &podsCommand{}
	var watch bool
	cmd := &cobra.Command{
		Use: "pods [NAME...]", Aliases: []string{"pod"}, Short: "List the pods of this node", Long: podsLong,
		Example: podsExample, Args: c.set.Settle,
	}
	c.set.AddFlags(cmd, &c.Socket)
	c.set.AddFields(cmd)
	cmd.Flags().StringVar(&c.sortBy, "sort-by", "", "Sort by this `field`, such as .metadata.name or .status.startTime")
	cmd.Flags().BoolVar(&c.labels, "show-labels", false, "Add a column with all labels")
	cmd.Flags().StringSliceVarP(&c.columns, "label-columns", "L", nil, "Add a column for each of these `labels`")
	cmd.Flags().BoolVar(&c.bare, "no-headers", false, "Print the table without headings")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "Keep running, and print changes until Ctrl-C")
	cli.OutputFlag(cmd, &c.Output, "table", append([]string{"table", "wide"}, cli.ObjectOutputs...)...)
	return c.Runs(cmd, func(ctx context.Context, _ []string) (err error) {
		if c.print, err = cli.PrinterOf(c.Output, c.bare); err != nil {
			return err
		}
		switch {
		case watch && c.sortBy != "":
			return errors.New("--watch prints changes as they come, and does not sort them; leave out --sort-by")
		case watch:
			return c.watch(ctx)
		}
		return c.list(ctx)
	})
}

func (c *podsCommand) wide() bool { return c.Output == "wide" }

func (c *podsCommand) list(ctx context.Context) error {
	pods, err := c.Client.Pods(ctx, c.set.Filter())
	if err != nil {
		return err
	}
	found, missing := c.set.Choose(pods.Pods)
	if err := cli.SortBy(found, c.sortBy, func(p *api.Pod) any { return p.Pod }); err != nil {
		return err
	}
	var notes []string
	switch {
	case c.print == nil:
		err = c.printTable(found)
	case len(found) > 0 || len(c.set.Names) == 0:
		if len(c.set.Names) > 0 {
			found, notes = names.Meant(found)
		}
		err = c.printObjects(found)
	}
	if c.Output == "table" {
		notes = summary.Notes(found, c.Now())
	}
	c.Note(append(notes, summary.NodeNotes(&pods.Node, c.mayMean(pods.Pods), c.Now())...)...)
	return errors.Join(err, missing)
}

// mayMean returns a function that reports whether a problem with a manifest concerns one of the chosen pods.
func (c *podsCommand) mayMean(pods []api.Pod) func(namespace, name string) bool {
	node := ""
	if len(pods) > 0 {
		node = pods[0].Pod.Spec.NodeName
	}
	return func(namespace, name string) bool { return c.set.MayMean(namespace, name, node) }
}

func (c *podsCommand) newTable() *cli.Table {
	heading := summary.Heading
	if c.wide() {
		heading = summary.WideHeading
	}
	heading = slices.Clone(heading)
	for _, label := range c.columns { // as in kubectl, the last part of the label's name
		heading = append(heading, strings.ToUpper(label[strings.LastIndexByte(label, '/')+1:]))
	}
	if c.labels {
		heading = append(heading, "LABELS")
	}
	return &cli.Table{Out: c.Out, Heading: heading, Begun: c.bare}
}

// row is one line of the table.
func (c *podsCommand) row(p *api.Pod, now time.Time) []string {
	return append(summary.Row(p, now, c.wide()), c.labelCells(p)...)
}

func (c *podsCommand) labelCells(p *api.Pod) (out []string) {
	for _, label := range c.columns {
		out = append(out, cli.OrNone(p.Pod.Labels[label]))
	}
	if c.labels {
		out = append(out, cli.OrNone(labels.FormatLabels(p.Pod.Labels)))
	}
	return out
}

func (c *podsCommand) printTable(pods []api.Pod) error {
	if len(pods) == 0 {
		if len(c.set.Names) == 0 {
			c.Note("no pods")
		}
		return nil
	}
	rows := make([][]string, 0, len(pods))
	for i := range pods {
		rows = append(rows, c.row(&pods[i], c.Now()))
	}
	return c.newTable().Print(rows)
}

// printObjects prints the one pod that was named, or a list.
func (c *podsCommand) printObjects(pods []api.Pod) error {
	if len(c.set.Names) == 1 && len(pods) == 1 {
		return c.print(c.Out, pods[0].Pod)
	}
	list := &v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []v1.Pod{}}
	for i := range pods {
		list.Items = append(list.Items, *pods[i].Pod)
	}
	return c.print(c.Out, list)
}
