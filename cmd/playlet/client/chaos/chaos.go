// Package chaos breaks actors on purpose: the rules that a person gives one by one, and whole experiments.
package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/actors"
	"github.com/playlet-dev/playlet/cmd/playlet/client/base"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

const chaosLong = `Break actors of the agent on purpose, and see the node heal. The agent must have been started with --enable-chaos.

TARGET chooses actors:
  volumes, pods/web, sources/*   by path, as "playlet actors" shows it; * stands for one name
  pods/**                        all below a path; ** alone is all but the root
  kind/container                 by kind
  pod/web, pod/shop/*            the actors of a pod, by name, and of its containers
  label/app=web,tier!=db         the same by the pod's labels

A rule acts once unless --count says otherwise, and ends by itself. The same --seed makes the same choices again: which message of
which actor, counted from the start of the rule. Messages that an actor has from itself (timers, results of its work) are neither
lost nor late nor doubled; it can be killed and paused at them. What was done is in the agent's log, in its flight recorder
and, in a cluster, in Events of the node. Containers are not touched by any of it; that is what is tested.`

const chaosExample = `  # Kill the actor of a pod, and look what the rule would choose before
  playlet chaos kill pods/web --dry-run
  playlet chaos kill pods/web

  # Lose every tenth message to images and volumes for five minutes
  playlet chaos drop '*' --probability 0.1 --count -1 --for 5m

  # Have the runtime's actor stand still for ten seconds
  playlet chaos pause runtime --duration 10s

  # An experiment with checks before, during and after
  playlet chaos run e2e/chaos/kills.yaml`

const (
	pollChaos   = 200 * time.Millisecond
	stopTimeout = 5 * time.Second // for a rule to be ended after Ctrl-C
)

var chaosShort = map[chaos.Verb]string{
	chaos.Kill:      "Make actors panic, as by a bug",
	chaos.Pause:     "Have actors stand still",
	chaos.Delay:     "Have messages come late",
	chaos.Drop:      "Lose messages",
	chaos.Duplicate: "Have messages come twice",
	chaos.Reorder:   "Have messages overtake one another",
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
	cmd.AddCommand(newChaosList(), newChaosStop(), newChaosRun())
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
	flags.StringVar(&c.rule.Message, "message", "", "`Type` of message at which it acts, * stands for anything; any when empty")
	flags.IntVar(&c.rule.Count, "count", 1, "Act so many `times`; -1: as often as it can")
	flags.Float64Var(&c.rule.Probability, "probability", 1, "Act with this `probability` at each message that it chooses")
	flags.Uint64Var(&c.rule.Seed, "seed", 0, "`Number` that makes the choices; 0: a random one, which is printed")
	flags.DurationVar(&c.rule.For.Duration, "for", 0, "End the rule after this `time` (default 1m, or twice --duration)")
	switch verb {
	case chaos.Pause, chaos.Delay, chaos.Reorder:
		what := map[chaos.Verb]string{chaos.Pause: "How long an actor stands still", chaos.Delay: "How late a message comes",
			chaos.Reorder: "How late a message may come"}[verb]
		flags.DurationVar(&c.rule.Duration.Duration, "duration", chaos.DefaultDuration, what)
	case chaos.Kill:
		flags.BoolVar(&c.rule.Force, "force", false, "Kill an actor more often than its supervisor bears: it is put into "+
			"quarantine, or the agent ends")
	case chaos.Drop, chaos.Duplicate:
	}
	flags.BoolVar(&c.dryRun, "dry-run", false, "Only list the actors that it may act on")
	flags.BoolVar(&c.wait, "wait", true, "Wait for the end of the rule, and say what it did; Ctrl-C ends it. "+
		"Without, see playlet chaos list")
	cli.OutputFlag(cmd, &c.Output, "text", "text", "json")
	return c.Runs(cmd, c.run)
}

func (c *chaosCommand) run(ctx context.Context, args []string) error {
	c.rule.Target, c.rule.Seed = args[0], cmp.Or(c.rule.Seed, chaos.RandomSeed())
	if c.rule.Count == 0 || c.rule.Probability == 0 { // which stand for the defaults in a rule
		return errors.New("--count=0 and --probability=0 would do nothing")
	}
	added, err := c.Client.AddChaos(ctx, c.rule, c.dryRun)
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
		err = fmt.Errorf("rule %d did nothing%s", added.ID, sparedText(added.Spared, ": no such message came"))
	}
	return err
}

func sparedText(spared int, otherwise string) string {
	if spared == 0 {
		return otherwise
	}
	return fmt.Sprintf(": %d times it left an actor alive that its supervisor would have given up (--force kills it)", spared)
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
			return fmt.Errorf("the agent has forgotten rule %d: it was started again, or had a hundred others since", added.ID)
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
	times := "as often as it can"
	if r.Count > 0 {
		times = timesText(r.Count)
	}
	on := fmt.Sprintf("these %d actors as they are now:", len(r.Targets))
	switch len(r.Targets) {
	case 0:
		on = "actors that are not there now"
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
		fmt.Fprintln(out, "acted on nothing")
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
		fmt.Fprintf(out, "  %s %s\n", name, timesText(s.Actors[a]))
	}
}

func newChaosList() *cobra.Command {
	c := &base.Command{}
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List rules in force, and those that ended last", Args: cli.NoArguments,
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
		Long: "End rules. An actor that is paused goes on; messages that are late already come in their time.",
	}
	cmd.Flags().BoolVar(&all, "all", false, "End all")
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
			fmt.Fprintln(c.Out, "no rule is in force")
			return nil
		}
		return printRules(c.Out, got.Rules)
	})
}
