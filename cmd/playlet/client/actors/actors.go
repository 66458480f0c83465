// Package actors shows the agent's actors, and the messages that they send.
package actors

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/base"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

const actorsLong = `Draw the tree of the agent's actors: for each its state, the messages in its mailbox, the age of the oldest
unfinished message, its restarts, its age, and its last failure.

PATH selects an actor and those below it. A pod in PATH can be given by UID or by name: pods/web, pods/default/web/c.
The data does not come from the actors themselves, so that actors that hang are shown too.

With -o wide, DESIRED is the state in the record of the actor's supervisor, with which the actor would be restarted.

With -w, changes are printed with the actor's path, until Ctrl-C.`

const actorsExample = `  # All of them
  playlet actors

  # One pod and its containers, with the work in progress
  playlet actors pods/web -o wide

  # The state of the pod's actor
  playlet actors inspect pods/web`

// watchActorsEvery is how often a watch looks.
const watchActorsEvery = time.Second

var (
	// Heading is the heading of the rows.
	Heading     = []string{"ACTOR", "STATE", "WAITING", "OLDEST", "RESTARTS", "UPTIME", "LAST FAILURE"}
	wideHeading = append(slices.Clone(Heading[:6]), "KIND", "PATH", "BUSY WITH", "DESIRED", "LAST FAILURE")
)

// Commands are "playlet actors" and "playlet trace".
func Commands() []*cobra.Command {
	return []*cobra.Command{newActorsCommand(), newTraceCommand()}
}

// actorsCommand is one run of "playlet actors".
type actorsCommand struct {
	base.Command
	every time.Duration
}

func newActorsCommand() *cobra.Command {
	c := &actorsCommand{every: watchActorsEvery}
	var watch bool
	cmd := &cobra.Command{
		Use: "actors [PATH]", Aliases: []string{"actor"}, Short: "Draw the tree of actors", Long: actorsLong,
		Example: actorsExample, Args: cli.AtMostOne("path"), ValidArgsFunction: names.Completion(&c.Socket, Paths),
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "Keep running, and print changes until Ctrl-C")
	cli.OutputFlag(cmd, &c.Output, "table", "table", "wide", "yaml", "json")
	cmd.AddCommand(newInspectCommand())
	return c.Runs(cmd, func(ctx context.Context, args []string) error {
		path := strings.Join(args, "")
		switch {
		case watch && c.forPrograms():
			return fmt.Errorf("--watch prints a table; -o %s cannot be watched", c.Output)
		case watch:
			return c.watch(ctx, path)
		}
		return c.list(ctx, path)
	})
}

func newInspectCommand() *cobra.Command {
	c := &actorsCommand{}
	cmd := &cobra.Command{
		Use: "inspect PATH", Short: "Print an actor's own report of its state", Args: cli.One("actor", "pods/web"),
		ValidArgsFunction: names.Completion(&c.Socket, Paths),
		Long: "Print an actor's own report of its state. " +
			"If it does not answer within two seconds, print the work that it is busy with.",
	}
	cli.OutputFlag(cmd, &c.Output, "yaml", "yaml", "json")
	return c.Runs(cmd, func(ctx context.Context, args []string) error {
		chosen, err := c.get(ctx, args[0])
		if err != nil {
			return err
		}
		in, err := c.Client.Inspect(ctx, chosen.Actors[0].Path)
		if err != nil {
			return err
		}
		return c.Print(in)
	})
}

// ShownPath is the path of an actor with the name of its pod in place of the UID.
func ShownPath(a *api.Actor) string {
	before, uid := messages.Pods.String()+"/", a.Path.PodUID()
	if a.Pod == "" || uid == "" {
		return a.Path.String()
	}
	return before + a.Pod + strings.TrimPrefix(a.Path.String(), before+uid)
}

// named reports whether the path may name the actor.
func named(a *api.Actor, path string) bool {
	_, pod, _ := strings.Cut(a.Pod, "/")
	return a.Path.String() == path || ShownPath(a) == path || a.Pod != "" && path == withPod(a, pod)
}

// inManifest reports whether a path with the pod's name in its manifest may name the actor.
func inManifest(a *api.Actor, path string) bool {
	namespace, _, _ := strings.Cut(a.Pod, "/")
	return a.Manifest != "" && (path == withPod(a, a.Manifest) || path == withPod(a, namespace+"/"+a.Manifest))
}

func withPod(a *api.Actor, name string) string { return strings.Replace(ShownPath(a), a.Pod, name, 1) }

// below are the actor at the path and those below it; all where the path is empty. Where no actor is at the path, the pod in it
// may be named as in its manifest, without the node's name.
func below(all []api.Actor, path string) ([]api.Actor, error) {
	path = strings.Trim(path, "/")
	if rest, ok := strings.CutPrefix(path, "pod/"); ok {
		path = "pods/" + rest
	}
	if path == "" || path == messages.Node.String() {
		return all, nil
	}
	meant := named
	if !slices.ContainsFunc(all, func(a api.Actor) bool { return named(&a, path) }) {
		meant = inManifest
	}
	var out []api.Actor
	for i := range all {
		a := &all[i]
		switch {
		case len(out) > 0 && strings.HasPrefix(string(a.Path), string(out[0].Path)+"/"):
			out = append(out, *a)
		case !meant(a, path):
		case len(out) > 0:
			return nil, fmt.Errorf("%q is the name of %s and of %s", path, ShownPath(&out[0]), ShownPath(a))
		default:
			out = append(out, *a)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("there is no actor %q (playlet actors lists them)", path)
	}
	return out, nil
}

func (c *actorsCommand) get(ctx context.Context, path string) (*api.Actors, error) {
	got, err := c.Client.Actors(ctx)
	if err == nil {
		got.Actors, err = below(got.Actors, path)
	}
	return got, err
}

func (c *actorsCommand) forPrograms() bool { return c.Output == "yaml" || c.Output == "json" }

func (c *actorsCommand) newTable() *cli.Table {
	if c.Output == "wide" {
		return &cli.Table{Out: c.Out, Heading: wideHeading}
	}
	return &cli.Table{Out: c.Out, Heading: Heading}
}

func (c *actorsCommand) list(ctx context.Context, path string) error {
	got, err := c.get(ctx, path)
	if err != nil {
		return err
	}
	if c.forPrograms() {
		return c.Print(got)
	}
	rows, names := make([][]string, 0, len(got.Actors)), PodNames(got.Actors)
	for i, branch := range Branches(got.Actors) {
		rows = append(rows, Row(&got.Actors[i], branch, names, got.At, c.Output == "wide"))
	}
	return c.newTable().Print(rows)
}

// printedState is the printed path of an actor, and its printed state.
type printedState struct{ path, state string }

// watch prints rows as they change, until ctx ends.
func (c *actorsCommand) watch(ctx context.Context, path string) error {
	t, last := c.newTable(), map[messages.Address]printedState{}
	for {
		got, err := c.get(ctx, path)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		var rows [][]string
		names := PodNames(got.Actors)
		there := map[messages.Address]bool{}
		for i := range got.Actors {
			a := &got.Actors[i]
			there[a.Path] = true
			now := printedState{ShownPath(a), fmt.Sprint(a.State, a.Restarts, a.Waiting)}
			if last[a.Path] != now {
				last[a.Path] = now
				rows = append(rows, Row(a, now.path, names, got.At, c.Output == "wide"))
			}
		}
		for _, gone := range slices.Sorted(maps.Keys(last)) {
			if !there[gone] {
				rows = append(rows, []string{last[gone].path, "gone"})
				delete(last, gone)
			}
		}
		if err := t.Print(rows); err != nil {
			return err
		}
		if !cli.Pause(ctx, c.every) {
			return nil
		}
	}
}

// PodNames returns the names of the actors' pods, by UID.
func PodNames(actors []api.Actor) map[string]string {
	out := map[string]string{}
	for i := range actors {
		if a := &actors[i]; a.Pod != "" {
			out[a.Path.PodUID()] = a.Pod
		}
	}
	return out
}

// Row returns one line of the table: an actor's state at a time. names maps UIDs to the names of pods.
func Row(a *api.Actor, name string, names map[string]string, at time.Time, wide bool) []string {
	state, oldest, uptime, busy, failure := string(a.State), cli.NoCell, cli.NoCell, cli.NoCell, cli.NoCell
	if !a.Until.IsZero() {
		state += ", starts in " + duration.HumanDuration(max(a.Until.Sub(at), 0))
	} else if !a.Since.IsZero() {
		uptime = duration.HumanDuration(max(at.Sub(a.Since), 0))
	}
	if h := a.Handling; h != nil {
		oldest = duration.HumanDuration(max(at.Sub(h.Sent), 0))
		from := &api.Actor{Vitals: supervisors.Vitals{Path: h.From}, Pod: names[h.From.PodUID()]}
		busy = fmt.Sprintf("%s of %s, %s", h.Message, ShownPath(from), duration.HumanDuration(max(at.Sub(h.Began), 0)))
	}
	if f := a.Failure; f != nil {
		failure = cli.Plain(f.Reason) + " (" + duration.HumanDuration(max(at.Sub(f.At), 0)) + " ago)"
	}
	row := []string{name, state, strconv.FormatInt(a.Waiting, 10), oldest, strconv.Itoa(a.Restarts), uptime}
	if wide {
		row = append(row, string(a.Kind), a.Path.String(), busy, cmp.Or(a.Desired, cli.NoCell))
	}
	return append(row, failure)
}

// Branches draw the place of each actor in the tree below the first.
func Branches(actors []api.Actor) []string {
	depths := make([]int, len(actors))
	for i := range actors {
		for a := actors[i].Path; a != actors[0].Path; a = a.Parent() {
			depths[i]++
		}
	}
	last := func(i int) bool { // of its siblings
		for j := i + 1; j < len(depths); j++ {
			if depths[j] <= depths[i] {
				return depths[j] < depths[i]
			}
		}
		return true
	}
	out := make([]string, len(actors))
	var open []string // the line prefix of each level above
	for i := range actors {
		a := &actors[i]
		if depths[i] == 0 {
			out[i] = ShownPath(a)
			continue
		}
		name, line, beside := a.Path.Name(), "├─ ", "│  "
		if a.Pod != "" && a.Path.Parent() == messages.Pods {
			name = a.Pod
		}
		if last(i) {
			line, beside = "└─ ", "   "
		}
		open = append(open[:depths[i]-1], beside)
		out[i] = strings.Join(open[:depths[i]-1], "") + line + name
	}
	return out
}

// Paths returns the paths of all actors, to complete the only argument.
func Paths(ctx context.Context, client *api.Client, args []string) (out []string) {
	all, err := client.Actors(ctx)
	if err != nil || len(args) > 0 {
		return nil
	}
	for i := range all.Actors {
		out = append(out, ShownPath(&all.Actors[i]))
	}
	return out
}
