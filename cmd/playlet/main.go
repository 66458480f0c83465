// Command playlet is the node agent and its sub-commands.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/cmd/playlet/agent"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client"
	"github.com/playlet-dev/playlet/cmd/playlet/dev"
	"github.com/playlet-dev/playlet/cmd/playlet/doctor"
	"github.com/playlet-dev/playlet/cmd/playlet/service"
	"github.com/playlet-dev/playlet/cmd/playlet/version"
	"github.com/playlet-dev/playlet/config"
)

func main() { os.Exit(cli.Main(newRoot(), os.Args[1:], os.Stdout, os.Stderr)) }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use: "playlet", Short: "A Kubernetes node agent made of actors", Long: rootLong,
		Args: cli.NoArguments,
	}
	flags := config.AddFlags(root.Flags())
	root.Flags().SortFlags = true
	showVersion := root.Flags().Bool("version", false, "Print the kubelet's version that this stands for, and exit")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *showVersion {
			// The kubelet's form: kubeadm refuses a node on which it cannot read it. The command version has more.
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "Kubernetes", version.Kubelet())
			return err
		}
		node, log, err := agent.Load(flags, root.Flags(), os.Stderr)
		if err != nil {
			return err
		}
		return agent.Run(cmd.Context(), node, log)
	}
	root.AddCommand(dev.NewCommand(), doctor.NewCommand(), service.NewInstallCommand(), service.NewUninstallCommand())
	root.AddCommand(client.Commands()...)
	root.AddCommand(newManCommand(flags))
	groupCommands(root)
	setHelp(root, flags)
	return root
}
