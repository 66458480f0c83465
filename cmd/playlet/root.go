package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

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
		SilenceUsage: true, SilenceErrors: true, Args: noArguments,
	}
	flags := config.AddFlags(root.Flags())
	root.Flags().SortFlags = true
	showVersion := root.Flags().Bool("version", false, "Print the version and exit")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *showVersion {
			return printVersionLine(cmd.OutOrStdout())
		}
		node, warnings, err := config.Load(flags, root.Flags())
		if err != nil {
			return err
		}
		log := node.Logger(os.Stderr)
		for _, w := range warnings {
			log.Warn(w.Message, "flag", w.Flag)
		}
		return runAgent(cmd.Context(), node, log)
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w (%s --help lists the flags)", err, cmd.CommandPath())
	})
	root.AddCommand(newDevCommand(), newDoctorCommand(), newExecCommand(), newInstallCommand(), newLogsCommand(), newPodsCommand(), newRmCommand(), newRunCommand(),
		newUninstallCommand(), newVersionCommand())
	return root
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unknown command %q (playlet --help lists the commands)", args[0])
	}
	return nil
}
