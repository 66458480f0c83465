// Package pods lists and describes pods: what they are, what happened to them, and why they are as they are.
package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
	"github.com/playlet-dev/playlet/cmd/playlet/client/summary"
)

const podsLong = `List the pods of this node as its agent knows them, with READY, STATUS and RESTARTS as kubectl computes them.

What the table cannot show goes to stderr: what a pod waits for, manifests with problems, pods in quarantine, a runtime
that cannot be reached. With -o wide, what a pod waits for is the last column.

A pod is named as it is printed anywhere: web-node1, pod/web-node1, default/web-node1; a static pod also as in its manifest:
web. A single pod that is named is printed as one object by -o yaml, json and jsonpath, all else as a List.

With -w, rows are printed as they change until Ctrl-C; when the agent is restarted meanwhile, its return is waited for. How
long an image has been pulled, or is queued, is said every ten seconds.`

const podsExample = `  # All pods of this node
  playlet pods

  # One namespace, with node, source and what each pod waits for
  playlet pods -n kube-system -o wide

  # One pod as an API object, with its status
  playlet pods web-node1 -n default -o yaml

  # A static pod by the name in its manifest
  playlet pods web

  # Two of them; those with a label; a part of one
  playlet pods web default/db
  playlet pods -l app=web --no-headers
  playlet pods web -o jsonpath='{.status.podIP}'
  playlet pods -o custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[*].image

  # Changes as they happen
  playlet pods -w`

// Commands are "playlet describe", "events", "explain" and "pods".
func Commands() []*cobra.Command {
	return []*cobra.Command{newDescribeCommand(), newEventsCommand(), newExplainCommand(), newPodsCommand()}
}

// podsCommand is one run of "playlet pods".
type podsCommand struct {
	client   *api.Client
	set      names.Set
	output   string // table, wide, or what print takes
	print    cli.ObjectPrinter
	bare     bool // no headings
	out, err io.Writer
	now      func() time.Time
	ticks    <-chan time.Time // of a watch: when what goes on is said again; nil for a clock's
}

func newPodsCommand() *cobra.Command {
	c := &podsCommand{now: time.Now}
	var watch bool
	cmd := &cobra.Command{
		Use: "pods [NAME...]", Aliases: []string{"pod"}, Short: "List the pods of this node", Long: podsLong,
		Example: podsExample, SilenceUsage: true,
	}
	socket := cli.SocketFlag(cmd)
	c.set.AddFlags(cmd, socket)
	cmd.Flags().BoolVar(&c.bare, "no-headers", false, "Leave the headings of the table out")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "Go on, and print what changes, until Ctrl-C")
	cli.OutputFlag(cmd, &c.output, "table", cli.ObjectOutputs...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := c.set.Settle(args)
		if err == nil && !c.isTable() {
			c.print, err = cli.PrinterOf(c.output, c.bare)
		}
		if err != nil {
			return err
		}
		c.client, c.out, c.err = api.NewClient(*socket), cmd.OutOrStdout(), cmd.ErrOrStderr()
		if watch {
			return c.watch(cmd.Context())
		}
		return c.list(cmd.Context())
	}
	return cmd
}

func (c *podsCommand) isTable() bool { return c.output == "table" || c.output == "wide" }

func (c *podsCommand) list(ctx context.Context) error {
	pods, err := c.client.Pods(ctx, c.set.Filter())
	if err != nil {
		return err
	}
	found, missing := c.set.Choose(pods.Pods)
	var notes []string
	switch {
	case c.isTable():
		err = c.printTable(found)
	case len(found) > 0 || len(c.set.Names) == 0:
		if len(c.set.Names) > 0 {
			found, notes = names.Meant(found)
		}
		err = c.printObjects(found)
	}
	if c.output == "table" {
		notes = summary.Notes(found, c.now())
	}
	notes = append(notes, summary.NodeNotes(&pods.Node, c.mayMean(pods.Pods), c.now())...)
	return errors.Join(err, c.note(notes), missing)
}

// mayMean says whether a problem with a manifest is one of the pods that are meant.
func (c *podsCommand) mayMean(pods []api.Pod) func(namespace, name string) bool {
	node := ""
	if len(pods) > 0 {
		node = pods[0].Pod.Spec.NodeName
	}
	return func(namespace, name string) bool { return c.set.MayMean(namespace, name, node) }
}

func (c *podsCommand) newTable() *cli.Table {
	t := &cli.Table{Out: c.out, Heading: summary.Heading, Begun: c.bare}
	if c.output == "wide" {
		t.Heading = summary.WideHeading
	}
	return t
}

func (c *podsCommand) printTable(pods []api.Pod) error {
	if len(pods) == 0 {
		if len(c.set.Names) > 0 {
			return nil
		}
		return c.note([]string{"no pods"})
	}
	rows := make([][]string, 0, len(pods))
	for i := range pods {
		rows = append(rows, summary.Row(&pods[i], c.now(), c.output == "wide"))
	}
	return c.newTable().Print(rows)
}

// printObjects prints the one pod that was named, or a list.
func (c *podsCommand) printObjects(pods []api.Pod) error {
	if len(c.set.Names) == 1 && len(pods) == 1 {
		return c.print(c.out, pods[0].Pod)
	}
	list := &v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []v1.Pod{}}
	for i := range pods {
		list.Items = append(list.Items, *pods[i].Pod)
	}
	return c.print(c.out, list)
}

// note prints lines beside the output.
func (c *podsCommand) note(lines []string) error {
	for _, l := range lines {
		if _, err := fmt.Fprintln(c.err, l); err != nil {
			return err
		}
	}
	return nil
}
