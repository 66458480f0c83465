package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/sources/submit"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
)

const rmLong = `Take back pods that were submitted with "playlet run": they are ended gracefully and run no more.

A pod is named as in its manifest, or as "playlet pods" shows it. Pods of other sources are taken away there: by removing
the manifest's file, or at its URL.`

const rmExample = `  # End a pod
  playlet rm web

  # In another namespace, and wait until nothing of it is left
  playlet rm -n kube-system dns --wait

  # All pods of a manifest
  playlet rm -f web.yaml`

func newRmCommand() *cobra.Command {
	c := &rmCommand{submitCommand: submitCommand{now: time.Now}}
	cmd := &cobra.Command{
		Use: "rm NAME... | -f FILE|-", Aliases: []string{"delete"}, Short: "Take back submitted pods", Long: rmLong,
		Example:      rmExample,
		SilenceUsage: true,
	}
	socket := cli.SocketFlag(cmd)
	c.addFlags(cmd, "Wait until nothing is left of the pods; their progress goes to stderr")
	cmd.Flags().StringVarP(&c.namespace, "namespace", "n", metav1.NamespaceDefault, "`Namespace` of the pods that are named")
	cmd.ValidArgsFunction = completeSubmitted(socket, &c.namespace)
	if err := cmd.RegisterFlagCompletionFunc("namespace", completeNamespaces(socket)); err != nil {
		panic(err) // the flag was added a moment ago
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && len(c.files) == 0 {
			return errors.New("which pod? name it, or its manifest with -f (playlet rm --help shows examples)")
		}
		c.names = args
		return c.perform(cmd, *socket, c.withdrawAll, c.awaitGone)
	}
	return cmd
}

// rmCommand is one run of "playlet rm".
type rmCommand struct {
	submitCommand
	namespace string
	names     []string
}

func (c *rmCommand) withdrawAll(ctx context.Context) error {
	var wanted []submit.Name
	for _, name := range c.names {
		wanted = append(wanted, submit.Name{Namespace: c.namespace, Name: name})
	}
	for _, file := range c.files {
		data, err := c.read(file)
		if err != nil {
			return err
		}
		names, problems := submit.Names(shownName(file), data)
		for _, p := range problems {
			fmt.Fprintln(c.err, cli.Plain(api.ProblemText(p)))
		}
		if len(problems) > 0 {
			return fmt.Errorf("%s does not tell which pods it means; name them instead, nothing was removed", shownName(file))
		}
		wanted = append(wanted, names...)
	}
	var errs []error
	for _, n := range wanted {
		gone, err := retry(ctx, func() (*api.Submitted, error) { return c.client.Withdraw(ctx, n.Namespace, n.Name) })
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

// awaitGone waits until the agent has forgotten every pod.
func (c *rmCommand) awaitGone(ctx context.Context) error {
	return c.await(ctx, "gone", func(*api.Pod) (bool, error) { return false, nil })
}

// completeSubmitted completes the names of submitted pods.
func completeSubmitted(socket, namespace *string) completion {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(contextOf(cmd), completeTimeout)
		defer cancel()
		all, err := api.NewClient(*socket).Submissions(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []cobra.Completion
		for _, s := range all.Submissions {
			if s.Namespace == *namespace {
				out = append(out, s.Name)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

func contextOf(cmd *cobra.Command) context.Context {
	if ctx := cmd.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}
