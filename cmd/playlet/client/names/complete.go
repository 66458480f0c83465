package names

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
)

// completeTimeout is how long a shell's completion waits for the agent.
const completeTimeout = 2 * time.Second

// CompletionContext is that of a command whose words are completed, bounded in time.
func CompletionContext(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return context.WithTimeout(ctx, completeTimeout)
}

// CompletePods completes the names of pods; of all namespaces where none is chosen.
func CompletePods(socket, namespace *string, several bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 && !several {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, d := listed(cmd, *socket, api.Filter{Namespace: *namespace}, func(p *api.Pod) string { return p.Pod.Name })
		return slices.DeleteFunc(names, func(n string) bool { return slices.Contains(args, n) }), d
	}
}

// CompleteNamespaces completes the namespaces in which there are pods.
func CompleteNamespaces(socket *string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return listed(cmd, *socket, api.Filter{}, func(p *api.Pod) string { return p.Pod.Namespace })
	}
}

// AddNamespaceFlag adds -n to a command for one pod at a time, with its completion.
func AddNamespaceFlag(cmd *cobra.Command, to *string, socket *string) {
	cmd.Flags().StringVarP(to, "namespace", "n", "", "The pod's `namespace`; not needed where only one pod has this name")
	if err := cmd.RegisterFlagCompletionFunc("namespace", CompleteNamespaces(socket)); err != nil {
		panic(err) // the flag was added a moment ago
	}
}

// listed asks the agent; one that cannot be asked completes nothing.
func listed(
	cmd *cobra.Command, socket string, f api.Filter, of func(*api.Pod) string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := CompletionContext(cmd)
	defer cancel()
	pods, err := api.NewClient(socket).Pods(ctx, f)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for i := range pods.Pods {
		out = append(out, of(&pods.Pods[i]))
	}
	slices.Sort(out)
	return slices.Compact(out), cobra.ShellCompDirectiveNoFileComp
}

// AddContainerFlag adds -c, with the containers of the pods that are named as its completion.
func AddContainerFlag(cmd *cobra.Command, to *string, socket, namespace *string) {
	cmd.Flags().StringVarP(to, "container", "c", "", "The `container`, where the pod has several")
	complete := func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		set := Set{Namespace: *namespace}
		if len(args) > 0 {
			args = args[:1]
		}
		if err := set.Settle(args); err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := CompletionContext(cmd)
		defer cancel()
		pods, err := api.NewClient(*socket).Pods(ctx, set.Filter())
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []cobra.Completion
		found, _ := set.Choose(pods.Pods)
		for i := range found {
			spec := &found[i].Pod.Spec
			for k := range spec.InitContainers {
				out = append(out, spec.InitContainers[k].Name)
			}
			for k := range spec.Containers {
				out = append(out, spec.Containers[k].Name)
			}
			for k := range spec.EphemeralContainers {
				out = append(out, spec.EphemeralContainers[k].Name)
			}
		}
		slices.Sort(out)
		return slices.Compact(out), cobra.ShellCompDirectiveNoFileComp
	}
	if err := cmd.RegisterFlagCompletionFunc("container", complete); err != nil {
		panic(err) // the flag was added a moment ago
	}
}
