package names

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
)

// completeTimeout is how long a shell's completion waits for the agent.
const completeTimeout = 2 * time.Second

// Completion completes the words that list gives, without those that are there already. An agent that cannot be asked completes
// nothing.
func Completion(socket *string, list func(ctx context.Context, client *api.Client, args []string) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmp.Or(cmd.Context(), context.Background()), completeTimeout)
		defer cancel()
		out := list(ctx, api.NewClient(*socket), args)
		slices.Sort(out)
		out = slices.DeleteFunc(slices.Compact(out), func(word string) bool { return slices.Contains(args, word) })
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompletePods completes the names of pods; of all namespaces where none is chosen.
func CompletePods(socket, namespace *string, several bool) cobra.CompletionFunc {
	return Completion(socket, func(ctx context.Context, client *api.Client, args []string) []string {
		if len(args) > 0 && !several {
			return nil
		}
		return words(ctx, client, Set{Namespace: *namespace}, func(p *v1.Pod) []string { return []string{p.Name} })
	})
}

// AddNamespaceFlag adds -n, with the namespaces in which there are pods as its completion.
func AddNamespaceFlag(cmd *cobra.Command, to, socket *string, usage string) {
	cmd.Flags().StringVarP(to, "namespace", "n", "", usage)
	list := func(ctx context.Context, client *api.Client, _ []string) []string {
		return words(ctx, client, Set{}, func(p *v1.Pod) []string { return []string{p.Namespace} })
	}
	cli.Complete(cmd, "namespace", Completion(socket, list))
}

// OfOnePod is the usage of -n of commands for one pod at a time.
const OfOnePod = "The pod's `namespace`; not needed if only one pod has this name"

// AddContainerFlag adds -c, with the containers of the pods that are named as its completion.
func AddContainerFlag(cmd *cobra.Command, to, socket, namespace *string) {
	cmd.Flags().StringVarP(to, "container", "c", "", "Name of the `container`, if the pod has several")
	list := func(ctx context.Context, client *api.Client, args []string) []string {
		set := Set{Namespace: *namespace}
		if set.Settle(cmd, args[:min(len(args), 1)]) != nil {
			return nil
		}
		return words(ctx, client, set, func(p *v1.Pod) (out []string) {
			for _, c := range Containers(p) {
				out = append(out, c.Name)
			}
			return out
		})
	}
	cli.Complete(cmd, "container", Completion(socket, list))
}

// words returns the completions from the chosen pods.
func words(ctx context.Context, client *api.Client, set Set, of func(*v1.Pod) []string) (out []string) {
	all, err := client.Pods(ctx, set.Filter())
	if err != nil {
		return nil
	}
	found, _ := set.Choose(all.Pods)
	for i := range found {
		out = append(out, of(found[i].Pod)...)
	}
	return out
}
