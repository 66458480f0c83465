// Package chaos breaks actors on purpose: the rules that a person gives one by one, and whole experiments.
package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/actors"
	"github.com/playlet-dev/playlet/cmd/playlet/client/base"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
	"github.com/playlet-dev/playlet/config/configfile"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

const chaosLong = `Break actors of the agent on purpose, and watch the node heal. The agent must run with --enable-chaos.

TARGET chooses actors:
  volumes, pods/web, sources/*   by path, as "playlet actors" prints it; * matches one name, so * alone is each service
  pods/**                        everything below a path; ** alone is everything but the root
  kind/container                 by kind
  pod/web, pod/shop/*            the actors of a pod, by name, and of its containers
  label/app=web,tier!=db         the same by the pod's labels

A rule acts once unless --count is given, and expires by itself. The same --seed repeats the same choices: which message of
which actor, counted from the start of the rule. Messages that an actor sends to itself (timers, results of its work) are not
lost, delayed or duplicated, but the actor can be killed or paused at them. Every effect is in the agent's log, in its flight
recorder and in the node's events. Containers are never touched: that is the point of the test.

A target that matches no actor is an error. With --wait=false a pattern may match actors that appear later.`

const chaosExample = `  # See which actors the rule would select, then kill the actor of a pod
  playlet chaos kill pods/web --dry-run
  playlet chaos kill pods/web

  # Lose every tenth message to each service of the node (the actors right below the root) for five minutes
  playlet chaos drop '*' --probability 0.1 --count -1 --for 5m

  # Pause the runtime's actor for ten seconds
  playlet chaos pause runtime --duration 10s

  # An experiment with checks before, during and after
  playlet chaos run builtin:kills`

const (
	pollChaos   = 200 * time.Millisecond
	stopTimeout = 5 * time.Second // for a rule to be ended after Ctrl-C
)

var chaosShort = map[chaos.Verb]string{
	chaos.Kill:      "Make actors panic, as a bug would",
	chaos.Pause:     "Pause actors",
	chaos.Delay:     "Delay messages",
	chaos.Drop:      "Drop messages",
	chaos.Duplicate: "Deliver messages twice",
	chaos.Reorder:   "Deliver messages out of order",
}

// NewCommand is "playlet chaos".
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "chaos", Short: "Break actors on purpose", Long: chaosLong, Example: chaosExample,
		Args: cli.NoArguments, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, verb := range chaos.Verbs {
		cmd.AddCommand(newChaosVerb(verb))
	}
	cmd.AddCommand(newChaosList(), newChaosStop(), newChaosRun(), newChaosShow())
	return cmd
}

// chaosCommand is one run of "playlet chaos VERB".
type chaosCommand struct {
	base.Command
	rule         chaos.Rule
	dryRun, wait bool
}

func newChaosVerb(verb chaos.Verb) *cobra.Command {
	c := &chaosCommand{rule: chaos.Rule{Verb: verb}}
	cmd := &cobra.Command{
		Use: string(verb) + " TARGET", Short: chaosShort[verb], Args: cli.One("target", "pods/web"),
		Long:              chaosShort[verb] + ".\n\n" + strings.SplitN(chaosLong, "\n\n", 2)[1],
		ValidArgsFunction: names.Completion(&c.Socket, actors.Paths),
	}
	flags := cmd.Flags()
	flags.StringVar(&c.rule.Message, "message", "", "Act only on this `type` of message; * matches any text")
	flags.IntVar(&c.rule.Count, "count", 1, "Act this many `times`; -1 means no limit")
	flags.Float64Var(&c.rule.Probability, "probability", 1, "Act on each matching message with this `probability`")
	flags.Uint64Var(&c.rule.Seed, "seed", 0, "Random `number` that determines the choices; 0 chooses a new one and prints it")
	longer := ""
	switch verb {
	case chaos.Pause, chaos.Delay, chaos.Reorder:
		what := map[chaos.Verb]string{chaos.Pause: "How long an actor is paused", chaos.Delay: "How long a message is delayed",
			chaos.Reorder: "How long a message may be delayed"}[verb]
		flags.DurationVar(&c.rule.Duration.Duration, "duration", chaos.DefaultDuration, what)
		longer = ", or twice --duration"
	case chaos.Kill:
		flags.BoolVar(&c.rule.Force, "force", false, "Kill an actor more often than its supervisor tolerates, which puts it "+
			"into "+
			"quarantine or ends the agent")
	case chaos.Drop, chaos.Duplicate:
	}
	flags.DurationVar(&c.rule.For.Duration, "for", 0, "End the rule after this `time` (default 1m"+longer+")")
	flags.BoolVar(&c.dryRun, "dry-run", false, "Only list the actors that the rule matches")
	flags.BoolVar(&c.wait, "wait", true, "Wait until the rule has ended, and report its effects; Ctrl-C ends it; "+
		"with --wait=false see playlet chaos list")
	cli.OutputFlag(cmd, &c.Output, "text", "text", "json")
	return c.Runs(cmd, c.run)
}

func (c *chaosCommand) run(ctx context.Context, args []string) error {
	c.rule.Target, c.rule.Seed = args[0], cmp.Or(c.rule.Seed, chaos.RandomSeed())
	if c.rule.Count == 0 || c.rule.Probability == 0 { // which stand for the defaults in a rule
		return errors.New("--count=0 and --probability=0 would do nothing")
	}
	if err := checkMessage(c.rule.Message); err != nil {
		return fmt.Errorf("--message: %w", err)
	}
	added, err := c.Client.AddChaos(ctx, c.rule, true)
	if err == nil && len(added.Targets) == 0 && (c.wait || c.dryRun || !strings.ContainsAny(c.rule.Target, "*?[=")) {
		return c.unmatched(ctx)
	}
	if err == nil && !c.dryRun {
		added, err = c.Client.AddChaos(ctx, c.rule, false)
	}
	if err != nil {
		return err
	}
	if c.Output == "text" {
		c.printTargets(added)
	}
	if !c.dryRun && c.wait {
		if err := c.await(ctx, added); err != nil {
			return err
		}
	}
	switch {
	case c.Output == "json":
		err = c.Print(added)
	case !c.dryRun && c.wait:
		printDone(c.Out, &added.Status, added.Targets)
	}
	if err == nil && added.Over && added.Acted == 0 && ctx.Err() == nil {
		err = fmt.Errorf("rule %d did nothing%s", added.ID, sparedText(added.Spared, ": no matching message arrived"))
	}
	return err
}

// unmatched is the error of a target that matches no actor, with the path that was probably meant.
func (c *chaosCommand) unmatched(ctx context.Context) error {
	const list = "(playlet actors lists them)"
	all, err := c.Client.Actors(ctx)
	if err != nil {
		return err
	}
	meant, similar := "", map[string]string{} // paths, by a path or the last name of one
	for i := range all.Actors {
		a := &all.Actors[i]
		shown := actors.ShownPath(a)
		if a.Path.Name() == c.rule.Target || strings.HasSuffix(shown, "/"+c.rule.Target) {
			meant = cmp.Or(meant, shown)
		}
		similar[shown] = shown
		if similar[a.Path.Name()] == "" {
			similar[a.Path.Name()] = shown
		}
		if a.Pod == "" || a.Path.Parent() != messages.Pods {
			continue
		}
		_, name, _ := strings.Cut(a.Pod, "/")
		for _, pod := range []string{a.Pod, name, a.Manifest} {
			if pod == c.rule.Target { // a pod goes before a container of this name
				return fmt.Errorf("no actor matches %q; did you mean pods/%s? %s", c.rule.Target, pod, list)
			}
			similar[pod], similar["pods/"+pod] = "pods/"+pod, "pods/"+pod
		}
	}
	delete(similar, "")
	meant = cmp.Or(meant, similar[configfile.Closest(c.rule.Target, slices.Collect(maps.Keys(similar)))])
	if meant != "" {
		return fmt.Errorf("no actor matches %q; did you mean %s? %s", c.rule.Target, meant, list)
	}
	return fmt.Errorf("no actor matches %q %s", c.rule.Target, list)
}

// results are the exported results of an actor's own work. All others begin with a small letter, as timers do.
var results = []any{
	work.ContainerResized{}, work.PodRemoved{}, work.SandboxStarted{}, work.SandboxStopped{}, work.SandboxUpdated{},
}

// checkMessage returns an error if text, the type name of a message or a glob, matches none. Names that begin with a small letter
// are known only to their actor, and are checked only for a wrong case.
func checkMessage(text string) error {
	all := messages.Names()
	for _, r := range results {
		all = append(all, reflect.TypeOf(r).Name())
	}
	matches := func(name string) bool {
		ok, err := path.Match(text, name)
		return ok || err != nil // the agent refuses a malformed glob
	}
	if text == "" || slices.ContainsFunc(all, matches) {
		return nil
	}
	meant := configfile.Closest(text, all)
	if first, _ := utf8.DecodeRuneInString(text); !unicode.IsUpper(first) && !strings.EqualFold(text, meant) {
		return nil
	}
	if meant != "" {
		meant = "; did you mean " + meant + "?"
	}
	return fmt.Errorf("no message matches %q%s", text, meant)
}

func sparedText(spared int, otherwise string) string {
	if spared == 0 {
		return otherwise
	}
	return fmt.Sprintf(": %d times it spared an actor that its supervisor would have given up on (--force kills it)", spared)
}

// await waits until the rule is over. The end of ctx ends it.
func (c *chaosCommand) await(ctx context.Context, added *api.ChaosRule) error {
	for !added.Over {
		select {
		case <-time.After(pollChaos):
		case <-ctx.Done():
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
			defer cancel()
			_, err := c.Client.StopChaos(ending, added.ID)
			if gone := (*api.Error)(nil); err != nil && !errors.As(err, &gone) { // it has just ended by itself
				return err
			}
			ctx = ending
		}
		rules, err := c.Client.Chaos(ctx)
		if ctx.Err() != nil {
			continue
		}
		if err != nil {
			return err
		}
		i := slices.IndexFunc(rules.Rules, func(s chaos.Status) bool { return s.ID == added.ID && s.Since.Equal(added.Since) })
		if i < 0 {
			return fmt.Errorf("the agent no longer has rule %d: it has restarted, or a hundred newer rules were added", added.ID)
		}
		added.Status = rules.Rules[i]
	}
	return nil
}

// shownTarget is the path of an actor with the name of its pod.
func shownTarget(t *api.ChaosTarget) string {
	a := api.Actor{Pod: t.Pod}
	a.Path = t.Path
	return actors.ShownPath(&a)
}

func (c *chaosCommand) printTargets(r *api.ChaosRule) {
	what := fmt.Sprintf("rule %d: %s", r.ID, r.Rule)
	if c.dryRun {
		what = fmt.Sprintf("would %s", r.Rule)
	}
	times := "without limit"
	if r.Count > 0 {
		times = timesText(r.Count)
	}
	on := fmt.Sprintf("%d actors that match now:", len(r.Targets))
	switch len(r.Targets) {
	case 0:
		on = "actors that appear later: none matches now"
	case 1:
		on = "this actor:"
	}
	fmt.Fprintf(c.Out, "%s\nacts %s within %s, on %s\n", cli.Plain(what), times, duration.HumanDuration(r.For.Duration), on)
	for i := range r.Targets {
		fmt.Fprintln(c.Out, "  "+shownTarget(&r.Targets[i]))
	}
}

func timesText(n int) string {
	if n == 1 {
		return "once"
	}
	return strconv.Itoa(n) + " times"
}

func printDone(out io.Writer, s *chaos.Status, targets []api.ChaosTarget) {
	if s.Acted == 0 {
		fmt.Fprintln(out, "nothing was done")
		return
	}
	names := map[messages.Address]string{}
	for i := range targets {
		names[targets[i].Path] = shownTarget(&targets[i])
	}
	fmt.Fprintf(out, "acted %s:\n", timesText(s.Acted))
	if s.Spared > 0 {
		fmt.Fprintln(out, "rule", s.ID, "spared actors"+sparedText(s.Spared, ""))
	}
	for _, a := range slices.Sorted(maps.Keys(s.Actors)) {
		name := names[a]
		if name == "" {
			name = a.String()
		}
		if len(s.Actors) > 1 {
			name += " " + timesText(s.Actors[a])
		}
		fmt.Fprintf(out, "  %s\n", name)
	}
}

func newChaosList() *cobra.Command {
	c := &base.Command{}
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List active rules and recently ended ones", Args: cli.NoArguments,
	}
	cli.OutputFlag(cmd, &c.Output, "table", "table", "json")
	return c.Runs(cmd, func(ctx context.Context, _ []string) error {
		got, err := c.Client.Chaos(ctx)
		if err != nil {
			return err
		}
		if c.Output == "json" {
			return c.Print(got)
		}
		return printRules(c.Out, got.Rules)
	})
}

func printRules(out io.Writer, rules []chaos.Status) error {
	rows := make([][]string, 0, len(rules))
	for _, s := range rules {
		state, count := "ends in "+duration.HumanDuration(max(time.Until(s.Until), 0)), strconv.Itoa(s.Count)
		if s.Over {
			state = "over"
		}
		if s.Count < 0 {
			count = "any"
		}
		rows = append(rows, []string{strconv.FormatUint(s.ID, 10), cli.Plain(s.String()), state,
			fmt.Sprintf("%d of %s", s.Acted, count), strconv.Itoa(len(s.Actors))})
	}
	return (&cli.Table{Out: out, Heading: []string{"ID", "RULE", "STATE", "ACTED", "ACTORS"}}).Print(rows)
}

func newChaosStop() *cobra.Command {
	c := &base.Command{}
	var all bool
	cmd := &cobra.Command{
		Use: "stop {ID | --all}", Short: "End rules", Args: cli.AtMostOne("rule"),
		Long: "End rules. A paused actor continues; messages already delayed arrive when they are due.",
	}
	cmd.Flags().BoolVar(&all, "all", false, "End all rules")
	return c.Runs(cmd, func(ctx context.Context, args []string) error {
		if all != (len(args) == 0) {
			return errors.New("which rule? name its number (playlet chaos list), or --all")
		}
		id := uint64(0)
		if !all {
			var err error
			if id, err = strconv.ParseUint(args[0], 10, 64); err != nil || id == 0 {
				return fmt.Errorf("%q is not the number of a rule", args[0])
			}
		}
		got, err := c.Client.StopChaos(ctx, id)
		if err != nil {
			return err
		}
		if len(got.Rules) == 0 {
			fmt.Fprintln(c.Out, "no rule is active")
			return nil
		}
		return printRules(c.Out, got.Rules)
	})
}
