package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/agent"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client"
	"github.com/playlet-dev/playlet/cmd/playlet/client/summary"
	"github.com/playlet-dev/playlet/config"
)

const devLong = `Run a throwaway node without any preparation: its own containerd, a registry with two small images, the agent,
and a sample pod that answers over HTTP. Manifests in its folder run as well. The node serves the web page on the loopback, with
a token, accepts ConfigMaps and Secrets, and has chaos enabled. It prints commands to try.

It needs root. containerd, runc and CNI plugins are looked up in $PATH, /usr/lib/cni, /opt/cni/bin and among the parts that
the project's tests have built. Missing ones are listed, and downloaded with --install.

Ctrl-C stops it and leaves the machine as it was: no process, mount, interface, rule, cgroup or file remains. The next run
removes what a killed run has left behind.`

const devExample = `  # A node and a sample pod, until Ctrl-C
  playlet dev

  # The same, shown in five steps: start, watch, explain, break, heal
  playlet dev --tour

  # With pods of your own beside the sample
  playlet dev --pods=web.yaml

  # The same, and download containerd if it is missing
  playlet dev --install

  # Does it work on this machine? Start, send the sample pod a request, stop
  playlet dev --once

  # Keep the manifests in a folder of your own
  playlet dev --dir=./node

  # Another containerd than the one in $PATH
  playlet dev --programs=$HOME/containerd/bin,$HOME/cni/bin

  # Only remove the remains of a killed run
  playlet dev --clean`

// NewCommand is "playlet dev".
func NewCommand() *cobra.Command {
	var o Options
	var clean bool
	cmd := &cobra.Command{
		Use: "dev", Short: "Run a throwaway node with its own containerd and a sample pod",
		Long: devLong, Example: devExample, Args: cli.NoArguments, SilenceUsage: true,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Dir, "dir", "",
		"Keep everything, including manifests, in this `folder`, which is not removed; if empty, in a temporary one")
	flags.StringSliceVar(&o.Programs, "programs", nil, "Look for containerd, runc and CNI plugins in these `folders` first")
	flags.BoolVar(&o.Install, "install", false,
		"Download missing programs as Debian packages with apt-get, and unpack them into the cache, where they stay")
	flags.BoolVar(&o.Once, "once", false, "Stop as soon as the sample pod has answered; the exit code is 0 if it did")
	flags.StringVar(&o.AdminSocket, "admin-socket", "",
		"Agent's Unix `socket`; if empty, "+config.DefaultAdminSocket+", or one in the folder if another agent uses that")
	flags.IntVar(&o.Page, "page", 4195, "`port` of the web page on the loopback, or another one if it is taken; -1: no page")
	flags.BoolVar(&o.Chaos, "chaos", true, "Allow \"playlet chaos\" to break actors of the agent")
	flags.StringVar(&o.ObjectDir, "object-dir", "", "`folder` of ConfigMaps and Secrets; if empty, a folder of this run")
	flags.StringArrayVar(&o.Pods, "pods", nil,
		"Also run the pods of this manifest `file`, folder or URL, as \"playlet run\" does; repeatable")
	flags.BoolVar(&o.Tour, "tour", false, "Show the node in five steps; each waits for Enter")
	flags.BoolVar(&clean, "clean", false, "Only remove the remains of a killed run")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.DefaultSocket, o.Out = config.DefaultAdminSocket, cmd.OutOrStdout()
		o.In = cmd.InOrStdin()
		switch {
		case clean:
			return Clean(o)
		case o.Tour && (o.Once || !o.Chaos):
			return errors.New("--tour breaks an actor and waits for Enter: leave out --once and --chaos=false")
		}
		for i, file := range o.Pods {
			if strings.Contains(file, "://") {
				continue
			}
			if _, err := os.Stat(file); err != nil {
				return fmt.Errorf("--pods: %w", err)
			}
			path, err := filepath.Abs(file)
			if err != nil {
				return err
			}
			o.Pods[i] = path
		}
		return Run(cmd.Context(), o)
	}
	cmd.AddCommand(
		&cobra.Command{Use: InitStage, Hidden: true, Args: cobra.ExactArgs(1), RunE: func(_ *cobra.Command, args []string) error {
			return Init(args[0])
		}},
		&cobra.Command{Use: NodeStage, Hidden: true, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return Node(cmd.Context(), args[0], Hooks{
					Start: startAgent, Status: summary.Line, Notes: nodeNotes, Command: runCommand,
				})
			}},
	)
	return cmd
}

// runCommand runs one of the commands that ask the agent.
func runCommand(ctx context.Context, args []string, out io.Writer) error {
	root := &cobra.Command{Use: "playlet", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(client.Commands()...)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(out)
	return root.ExecuteContext(ctx)
}

// startAgent starts the agent in this process, as its command line would.
func startAgent(args []string, log io.Writer) (*Agent, error) {
	a, err := agent.Start(args, log)
	if err != nil {
		return nil, err
	}
	return &Agent{NodeName: a.NodeName(), Failed: a.Failed(), Close: a.Close}, nil
}

// nodeNotes returns the notes about the node, without the remedy for an unavailable runtime: playlet dev restarts containerd
// itself.
func nodeNotes(n *api.Node) []string {
	if n.Runtime.Ready {
		return summary.NodeNotes(n, nil, time.Time{})
	}
	note := "containerd is not ready"
	if r := n.Runtime.Reason; r != nil {
		note += ": " + cli.Plain(r.Code)
	}
	rest := *n
	rest.Runtime = api.Runtime{Ready: true, NetworkReady: true}
	return append([]string{note}, summary.NodeNotes(&rest, nil, time.Time{})...)
}
