package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/sources/submit"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
)

const podsLong = `List the pods of this node as its agent knows them, with READY, STATUS and RESTARTS as kubectl computes them.

What the table cannot show goes to stderr: what a pod waits for, manifests with problems, pods in quarantine, a runtime
that cannot be reached. With -o wide, what a pod waits for is the last column.

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

  # Changes as they happen
  playlet pods -w`

// podsCommand is one run of "playlet pods".
type podsCommand struct {
	client   *api.Client
	filter   api.Filter
	output   string // table, wide, yaml, json
	out, err io.Writer
	now      func() time.Time
	ticks    <-chan time.Time // of a watch: when what goes on is said again; nil for a clock's
}

func newPodsCommand() *cobra.Command {
	c := &podsCommand{now: time.Now}
	var watch bool
	cmd := &cobra.Command{
		Use: "pods [NAME]", Aliases: []string{"pod"}, Short: "List the pods of this node", Long: podsLong, Example: podsExample,
		Args: cobra.MaximumNArgs(1), SilenceUsage: true,
	}
	socket := cli.SocketFlag(cmd)
	cmd.Flags().StringVarP(&c.filter.Namespace, "namespace", "n", "", "Only the pods of this `namespace`; all when empty")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "Go on, and print what changes, until Ctrl-C")
	cli.OutputFlag(cmd, &c.output, "table", "table", "wide", "yaml", "json")
	cmd.ValidArgsFunction = completePods(socket, &c.filter.Namespace)
	if err := cmd.RegisterFlagCompletionFunc("namespace", completeNamespaces(socket)); err != nil {
		panic(err) // the flag was added a moment ago
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cli.OneOf("output", c.output, "table", "wide", "yaml", "json"); err != nil {
			return err
		}
		if len(args) == 1 {
			c.filter.Name = args[0]
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
	c.resolve(ctx)
	pods, err := c.client.Pods(ctx, c.filter)
	if err != nil {
		return err
	}
	if c.isTable() {
		err = c.printTable(pods)
	} else if len(pods.Pods) > 0 || c.filter.Name == "" {
		err = c.printObjects(pods)
	}
	notes := NodeNotes(&pods.Node, c.filter, c.now())
	if c.output == "table" {
		notes = append(podNotes(pods.Pods, c.now()), notes...)
	}
	err = errors.Join(err, c.note(notes))
	if err == nil && c.filter.Name != "" && len(pods.Pods) == 0 {
		err = fmt.Errorf("there is no pod %s", c.wanted())
	}
	return err
}

// resolve lets a static pod be asked for by the name in its manifest, to which the node's name was appended, where no pod is
// called that. An agent that cannot be asked is met by the question that follows.
func (c *podsCommand) resolve(ctx context.Context) {
	if c.filter.Name == "" {
		return
	}
	all, err := c.client.Pods(ctx, api.Filter{Namespace: c.filter.Namespace})
	if err != nil || slices.ContainsFunc(all.Pods, func(p api.Pod) bool { return p.Pod.Name == c.filter.Name }) {
		return
	}
	for i := range all.Pods {
		if p := all.Pods[i].Pod; inManifest(c.filter.Name, p) {
			c.filter.Name = p.Name
			return
		}
	}
}

// inManifest says whether a static pod's name in its manifest is this: the node's name was appended to it.
func inManifest(name string, p *v1.Pod) bool {
	return p.Name == submit.StaticName(name, p.Spec.NodeName)
}

// wanted names the pod that was asked for.
func (c *podsCommand) wanted() string {
	if c.filter.Namespace == "" {
		return fmt.Sprintf("%q in any namespace", c.filter.Name)
	}
	return fmt.Sprintf("%q in namespace %q", c.filter.Name, c.filter.Namespace)
}

func (c *podsCommand) newTable() *table {
	t := &table{out: c.out, heading: podHeading}
	if c.output == "wide" {
		t.heading = wideHeading
	}
	return t
}

func (c *podsCommand) printTable(pods *api.Pods) error {
	if len(pods.Pods) == 0 {
		if c.filter.Name != "" {
			return nil
		}
		return c.note([]string{"no pods"})
	}
	rows := make([][]string, 0, len(pods.Pods))
	for i := range pods.Pods {
		rows = append(rows, podRow(&pods.Pods[i], c.now(), c.output == "wide"))
	}
	return c.newTable().print(rows)
}

// podList is the list as kubectl prints it.
type podList struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ListMeta `json:"metadata"`
	Items           []*v1.Pod       `json:"items"`
}

// printObjects prints the one pod that was named, or a list.
func (c *podsCommand) printObjects(pods *api.Pods) error {
	if c.filter.Name != "" && len(pods.Pods) == 1 {
		return cli.PrintObject(c.out, pods.Pods[0].Pod, c.output)
	}
	list := podList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []*v1.Pod{}}
	for i := range pods.Pods {
		list.Items = append(list.Items, pods.Pods[i].Pod)
	}
	return cli.PrintObject(c.out, list, c.output)
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
