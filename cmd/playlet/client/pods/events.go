package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
)

const eventsLong = `List recent events of this node, including those of removed pods. The agent keeps the last 500 on disk, also
on a node without an API server. Repeated events are counted.

With -w, events are printed as they are recorded, until Ctrl-C and across restarts of the agent.`

const eventsExample = `  # Events of this node, the newest last
  playlet events

  # Events of a pod, and new ones as they are recorded
  playlet events -w web

  # Warnings of a pod, with kubectl's flags
  playlet events --for pod/web --types=Warning`

// eventsCommand is one run of "playlet events".
type eventsCommand struct {
	podsCommand
	table    *cli.Table
	seen     map[string]int32
	about    string // the object of --for
	node     bool   // --for names a node: only events of nodes, of nodeName where it is not empty
	nodeName string
	types    []string // lower-case; all when empty
}

func newEventsCommand() *cobra.Command {
	c := &eventsCommand{seen: map[string]int32{}}
	var watch bool
	cmd := &cobra.Command{
		Use: "events [POD...]", Aliases: []string{"event", "ev"}, Short: "List recent events of this node or of pods",
		Long: eventsLong, Example: eventsExample,
		Args: func(cmd *cobra.Command, args []string) error {
			about, err := c.object()
			if err != nil {
				return err
			}
			for i, t := range c.types {
				if c.types[i] = strings.ToLower(t); c.types[i] != "normal" && c.types[i] != "warning" {
					return fmt.Errorf("--types=%s: it may be Normal, Warning, or both", t)
				}
			}
			return c.set.Settle(cmd, append(args, about...))
		},
	}
	c.set.AddNames(cmd, &c.Socket)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "Follow new events until Ctrl-C")
	cmd.Flags().StringVar(&c.about, "for", "", "Print only the events of this `object`, such as pod/web or node/NAME")
	cmd.Flags().StringSliceVar(&c.types, "types", nil, "Print only events of these `types`: Normal, Warning")
	cmd.Flags().StringVar(&c.sortBy, "sort-by", "", "Sort by this `field`, such as .lastTimestamp or .count")
	cmd.Flags().BoolVar(&c.bare, "no-headers", false, "Print the table without headings")
	cli.OutputFlag(cmd, &c.Output, "table", append([]string{"table"}, cli.ObjectOutputs...)...)
	return c.Runs(cmd, func(ctx context.Context, _ []string) (err error) {
		if c.print, err = cli.PrinterOf(c.Output, c.bare); err != nil {
			return err
		}
		c.table = &cli.Table{
			Out: c.Out, Heading: []string{"NAMESPACE", "LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"}, Begun: c.bare,
		}
		switch {
		case watch && c.sortBy != "":
			return errors.New("--watch prints events as they come, and does not sort them; leave out --sort-by")
		case watch:
			return c.watch(ctx)
		}
		got, err := c.Client.Events(ctx, api.Filter{})
		if err == nil {
			err = cli.SortBy(got.Items, c.sortBy, func(e *v1.Event) any { return e })
		}
		if err != nil {
			return err
		}
		if found := c.chosen(got.Items); len(found) > 0 || c.print != nil {
			return c.show(found, false)
		}
		if err := c.unknown(ctx); err != nil {
			return err
		}
		c.Note("no events")
		return nil
	})
}

// unknown returns an error if the command names a pod that does not exist.
func (c *eventsCommand) unknown(ctx context.Context) error {
	all, err := c.Client.Pods(ctx, api.Filter{})
	if err != nil {
		return err
	}
	if _, err = c.set.Choose(all.Pods); err != nil {
		return fmt.Errorf("%w; no event of it is recorded either", err)
	}
	return nil
}

// chosen are the events of the pods that are meant.
func (c *eventsCommand) chosen(all []v1.Event) []v1.Event {
	return slices.DeleteFunc(all, func(e v1.Event) bool {
		o := &e.InvolvedObject
		if c.node {
			return o.Kind != "Node" || c.nodeName != "" && o.Name != c.nodeName ||
				len(c.types) > 0 && !slices.Contains(c.types, strings.ToLower(e.Type))
		}
		return !c.set.MayMean(e.Namespace, o.Name, e.Source.Host) || len(c.set.Names) > 0 && o.Kind != "Pod" ||
			len(c.types) > 0 && !slices.Contains(c.types, strings.ToLower(e.Type))
	})
}

// object returns the argument that --for stands for; a node is none, and is recorded.
func (c *eventsCommand) object() ([]string, error) {
	kind, name, named := strings.Cut(c.about, "/")
	switch kind = strings.ToLower(kind); {
	case c.about == "":
		return nil, nil
	case slices.Contains([]string{"node", "nodes", "no"}, kind):
		c.node, c.nodeName = true, name
		return nil, nil
	case !named || !slices.Contains([]string{"pod", "pods", "po"}, kind):
		return nil, fmt.Errorf("--for=%s: write it as pod/NAME or node/NAME; a node runs pods", c.about)
	}
	return []string{kind + "/" + name}, nil
}

// show prints events; one by one where they are no list.
func (c *eventsCommand) show(found []v1.Event, single bool) error {
	list := &v1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []v1.Event{}}
	var rows [][]string
	for _, e := range found {
		rows = append(rows, append([]string{e.Namespace}, eventRow(&e, c.Now())...))
		e.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}
		list.Items = append(list.Items, e)
	}
	switch {
	case c.print == nil && len(rows) > 0:
		return c.table.Print(rows)
	case c.print == nil:
		return nil
	case !single:
		return c.print(c.Out, list)
	}
	for i := range list.Items {
		if err := c.printOne(&list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// eventRow is an event: when, type, reason, object and message.
func eventRow(e *v1.Event, now time.Time) []string {
	seen := duration.HumanDuration(max(now.Sub(e.LastTimestamp.Time), 0))
	if e.Count > 1 {
		seen += fmt.Sprintf(" (x%d over %s)", e.Count, duration.HumanDuration(max(now.Sub(e.FirstTimestamp.Time), 0)))
	}
	object := strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name
	if _, container, of := strings.Cut(strings.TrimSuffix(e.InvolvedObject.FieldPath, "}"), "{"); of {
		object += " (" + container + ")"
	}
	return []string{seen, e.Type, e.Reason, object, cli.Plain(e.Message)}
}

// watch prints events as they come, until ctx ends.
func (c *eventsCommand) watch(ctx context.Context) error {
	reached := false
	for {
		var failed error
		err := c.Client.WatchEvents(ctx, api.Filter{}, func(line *v1.EventList) error {
			fresh := slices.DeleteFunc(c.chosen(line.Items), func(e v1.Event) bool { return c.seen[e.Name] == e.Count })
			for _, e := range fresh {
				c.seen[e.Name] = e.Count
			}
			reached, failed = true, c.show(fresh, true)
			return failed
		})
		if failed != nil || ctx.Err() != nil {
			return failed
		}
		if !reached || !errors.Is(err, api.ErrStreamEnded) && !errors.Is(err, api.ErrNotRunning) {
			return err
		}
		if !cli.Pause(ctx, cli.ReconnectEvery) { // the agent is being restarted
			return nil
		}
	}
}

// printEvents prints the events of one pod below its description.
func printEvents(out io.Writer, found []v1.Event, now time.Time) error {
	if len(found) == 0 {
		fmt.Fprintln(out, "Events:  none is kept")
		return nil
	}
	fmt.Fprintln(out, "Events:")
	t := &cli.Table{Out: out, Heading: []string{"  LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"}}
	var rows [][]string
	for _, e := range found {
		row := eventRow(&e, now)
		row[0] = "  " + row[0]
		rows = append(rows, row)
	}
	return t.Print(rows)
}
