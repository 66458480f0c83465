package submissions

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/sources/submit"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/base"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
	"github.com/playlet-dev/playlet/cmd/playlet/client/summary"
	"github.com/playlet-dev/playlet/messages"
)

const rmLong = `Remove pods that were submitted with "playlet run": they are stopped gracefully and do not run again.

A pod can be named as in its manifest or in any form that is printed: web, web-node1, pod/web, default/web. Remove pods of
other sources at the source: the manifest file or URL.`

const rmExample = `  # Remove a pod
  playlet rm web

  # Remove a pod of another namespace, and wait until it is gone
  playlet rm kube-system/dns --wait

  # Remove all submitted pods with a label
  playlet rm -l app=web

  # Remove all pods, ConfigMaps and Secrets of a manifest
  playlet rm -f web.yaml

  # See what would be removed
  playlet rm -l app=web --dry-run

  # Remove a pod at once, even if it is already stopping
  playlet rm web --force`

func newRmCommand() *cobra.Command {
	c := &rmCommand{}
	cmd := &cobra.Command{
		Use: "rm NAME... | -l SELECTOR | -f FILE|-", Aliases: []string{"delete"}, Short: "Remove submitted pods", Long: rmLong,
		Example: rmExample,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && len(c.files) == 0 && c.set.Selector == "" {
				return errors.New("which pod? name it, or its manifest with -f (playlet rm --help shows examples)")
			}
			return c.set.Settle(cmd, args)
		},
	}
	c.addFlags(cmd, "Wait until the pods are gone; progress is printed to stderr")
	c.set.AddFlags(cmd, &c.Socket)
	cmd.Flags().BoolVar(&c.force, "force", false, "Stop the pods at once: they get 1 s, including hooks")
	cmd.Flags().Int64Var(&c.grace, "grace-period", -1,
		"Time in `seconds` that a pod has to stop; if negative, its own terminationGracePeriodSeconds")
	cmd.MarkFlagsMutuallyExclusive("force", "grace-period")
	c.addDryRun(cmd, dryRunOfRemoval)
	cmd.ValidArgsFunction = names.Completion(&c.Socket, c.submittedNames)
	return c.Runs(cmd, func(ctx context.Context, _ []string) error {
		if c.force {
			c.grace = 0
		}
		c.wait = c.wait && c.dryRun == "none"
		return c.perform(ctx, c.withdrawAll(ctx), c.awaitGone)
	})
}

const dryRunOfRemoval = "Print the objects that would be removed, and remove nothing"

// addDryRun adds --dry-run with kubectl's values.
func (c *submitCommand) addDryRun(cmd *cobra.Command, does string) {
	cli.ChoiceFlag(cmd, &c.dryRun, "dry-run", "", "none", does+": server, client, or none", "none", "server", "client")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = "server"
}

// rmCommand is one run of "playlet rm".
type rmCommand struct {
	submitCommand
	set   names.Set
	force bool
	grace int64 // seconds; negative: the pod's own
}

func (c *rmCommand) withdrawAll(ctx context.Context) error {
	wanted, errs := c.submitted(ctx)
	files, err := manifestFiles(c.files)
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := c.read(ctx, file)
		if err != nil {
			return err
		}
		if data = c.supported(data); len(bytes.TrimSpace(data)) == 0 {
			continue
		}
		names, problems := submit.Names(shownName(file), data)
		for _, p := range problems {
			c.Note(api.ProblemText(p))
		}
		if len(problems) > 0 {
			return fmt.Errorf("%s does not tell which pods it means; name them instead, nothing was removed", shownName(file))
		}
		wanted = append(wanted, names...)
	}
	for _, n := range wanted {
		gone, err := base.Retry(ctx, startTimeout, func() (*api.SubmitReply, error) {
			if n.Kind != "" {
				return c.Client.WithdrawObject(ctx, n.Kind, n.Namespace, n.Name, c.dryRun != "none")
			}
			return c.Client.Withdraw(ctx, n.Namespace, n.Name, c.grace, c.dryRun != "none")
		})
		if err == nil {
			c.say(gone.Pods)
			continue
		}
		var refused *api.Error
		if !errors.As(err, &refused) {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// submitted finds the submissions that are meant. An error is of one name that is none, or of the agent.
func (c *rmCommand) submitted(ctx context.Context) (out []submit.Name, errs []error) {
	if len(c.set.Names) == 0 && c.set.Selector == "" {
		return nil, nil
	}
	all, err := base.Retry(ctx, startTimeout, func() (*api.Submissions, error) { return c.Client.Submissions(ctx) })
	if err != nil {
		return nil, []error{err}
	}
	for i := range all.Submissions {
		var p v1.Pod
		s := &all.Submissions[i]
		if c.set.Selector != "" && c.set.MayMean(s.Namespace, s.Name, "") && json.Unmarshal(s.Manifest, &p) == nil &&
			c.set.Labels.Matches(labels.Set(p.Labels)) {
			out = append(out, submit.Name{Namespace: s.Namespace, Name: s.Name})
		}
	}
	if c.set.Selector != "" && len(out) == 0 {
		errs = append(errs, fmt.Errorf("no submitted pod has the labels %s", c.set.Selector))
	}
	for _, n := range c.set.Names {
		found := slices.DeleteFunc(slices.Clone(all.Submissions), func(s messages.Submission) bool {
			return n.Namespace != "" && n.Namespace != s.Namespace || n.Name != s.Name && n.Name != s.PodName
		})
		switch len(found) {
		case 0:
			pod, left, err := c.other(ctx, n)
			switch {
			case left != nil:
				out = append(out, *left)
			case err != nil:
				errs = append(errs, err)
			case c.grace < 0 && pod.Ending != "" && pod.Source == messages.Submit:
				c.leave(pod)
			default: // the agent ends it sooner, or returns the reason why it cannot be removed
				out = append(out, submit.Name{Namespace: pod.Pod.Namespace, Name: pod.Pod.Name})
			}
		case 1:
			out = append(out, submit.Name{Namespace: found[0].Namespace, Name: found[0].Name})
		default:
			var names []string
			for _, s := range found {
				names = append(names, s.Namespace+"/"+s.Name)
			}
			errs = append(errs, fmt.Errorf("several pods have this name: %s; -n names the namespace", strings.Join(names, ", ")))
		}
	}
	return out, errs
}

// other returns a pod that was not submitted, or the name of one that runs without a usable record of its submission.
func (c *rmCommand) other(ctx context.Context, n names.Pod) (pod *api.Pod, left *submit.Name, err error) {
	all, err := c.Client.Pods(ctx, api.Filter{Namespace: n.Namespace})
	if err != nil {
		return nil, nil, err
	}
	if pod, _, err = n.One(all.Pods); err == nil {
		return pod, nil, nil
	}
	for _, p := range all.Problems {
		namespace, name, _ := strings.Cut(p.Pod, "/")
		if (n.Namespace == "" || n.Namespace == namespace) && strings.HasPrefix(name+"-", n.Name+"-") {
			return nil, &submit.Name{Namespace: namespace, Name: n.Name}, nil // the agent compares the whole name
		}
	}
	return nil, nil, err
}

// leave reports the progress of the end of a pod that was removed before.
func (c *rmCommand) leave(p *api.Pod) {
	c.done = append(c.done, messages.SubmittedPod{Namespace: p.Pod.Namespace, Name: p.Pod.Name, PodName: p.Pod.Name,
		UID: string(p.Pod.UID), Change: messages.PodTerminating})
	if c.Output == "" {
		text := cmp.Or(summary.WaitingFor(p, c.Now()), cli.Plain(p.Ending))
		fmt.Fprintf(c.Out, "pod/%s already terminating: %s (--force ends it at once)\n", p.Pod.Name, text)
	}
}

// awaitGone waits until the agent has forgotten every pod.
func (c *rmCommand) awaitGone(ctx context.Context) error {
	return c.await(ctx, "gone", func(*api.Pod) (bool, error) { return false, nil })
}

// submittedNames returns the names of submitted pods, for completions.
func (c *rmCommand) submittedNames(ctx context.Context, client *api.Client, _ []string) (out []string) {
	all, err := client.Submissions(ctx)
	if err != nil {
		return nil
	}
	for _, s := range all.Submissions {
		if c.set.Namespace == "" || s.Namespace == c.set.Namespace {
			out = append(out, s.Name)
		}
	}
	return out
}
