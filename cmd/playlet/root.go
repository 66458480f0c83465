package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/cmd/playlet/agent"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client"
	"github.com/playlet-dev/playlet/cmd/playlet/dev"
	"github.com/playlet-dev/playlet/cmd/playlet/doctor"
	"github.com/playlet-dev/playlet/cmd/playlet/service"
	"github.com/playlet-dev/playlet/config"
)

const rootLong = `playlet is a Kubernetes node agent made of actors. It does the kubelet's job and takes the kubelet's flags and
KubeletConfiguration, so that it can stand in its place.

Without a sub-command it is the agent: it runs the pods that its sources want, in the foreground, until it is sent
SIGTERM or SIGINT. Containers outlive it.`

const rootExample = `  # Run the pods of a folder of manifests, on containerd
  playlet --pod-manifest-path=/etc/kubernetes/manifests

  # With a configuration file
  playlet --config=/var/lib/kubelet/config.yaml

  # Try it with nothing prepared: its own containerd, a sample pod
  playlet dev

  # Have it run a pod
  playlet run -f web.yaml

  # See what runs, and why a pod is where it is
  playlet pods -w`

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use: "playlet", Short: "A Kubernetes node agent made of actors", Long: rootLong, Example: rootExample,
		Args: cli.NoArguments,
	}
	flags := config.AddFlags(root.Flags())
	root.Flags().SortFlags = true
	showVersion := root.Flags().Bool("version", false, "Print the version and exit")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *showVersion {
			return client.PrintVersion(cmd.OutOrStdout())
		}
		node, log, err := agent.Load(flags, root.Flags(), os.Stderr)
		if err != nil {
			return err
		}
		return agent.Run(cmd.Context(), node, log)
	}
	root.AddCommand(dev.NewCommand(), doctor.NewCommand(), service.NewInstallCommand(), service.NewUninstallCommand())
	root.AddCommand(client.Commands()...)
	return root
}
