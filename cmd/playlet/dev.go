package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/playlet-dev/playlet/actors/server/admin"
	"github.com/playlet-dev/playlet/cmd/playlet/dev"
	"github.com/playlet-dev/playlet/config"
)

const devLong = `Run a node for trying things out, with nothing prepared: a containerd of its own, a registry with two small images,
the agent, and a sample pod that answers over HTTP. Manifests that are put into its folder run as well.

It takes root. containerd, runc and CNI plugins are looked for in $PATH, /usr/lib/cni, /opt/cni/bin and among the parts
that the project's tests have built; what is missing is named, and installed with --install.

Ctrl-C ends it and leaves the machine as it was: no process, mount, interface, rule, cgroup or file stays. What a run
that was killed has left is removed by the next one.`

const devExample = `  # A node and a sample pod, until Ctrl-C
  playlet dev

  # The same where containerd may not be there yet
  playlet dev --install

  # Does it work on this machine? Start, ask the sample pod, stop
  playlet dev --once

  # Keep the manifests in a folder of your own
  playlet dev --dir=./node

  # Another containerd than the one in $PATH
  playlet dev --programs=$HOME/containerd/bin,$HOME/cni/bin

  # Only remove what a run that was killed has left
  playlet dev --clean`

func newDevCommand() *cobra.Command {
	var o dev.Options
	var clean bool
	cmd := &cobra.Command{
		Use: "dev", Short: "Run a node for trying things out, with its own containerd and a sample pod",
		Long: devLong, Example: devExample, Args: cobra.NoArgs, SilenceUsage: true,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Dir, "dir", "", "Keep everything in this `folder`, manifests among it, which stay; a temporary one when empty")
	flags.StringSliceVar(&o.Programs, "programs", nil, "Look for containerd, runc and CNI plugins in these `folders` first")
	flags.BoolVar(&o.Install, "install", false, "Install what is missing, as Debian packages, with apt-get; they stay")
	flags.BoolVar(&o.Once, "once", false, "End as soon as the sample pod has answered; the exit code says whether it did")
	flags.StringVar(&o.AdminSocket, "admin-socket", "",
		"Agent's unix `socket`; when empty "+config.DefaultAdminSocket+", or one in the folder where another agent has that")
	flags.BoolVar(&clean, "clean", false, "Only remove what a run that was killed has left")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.DefaultSocket, o.Out = config.DefaultAdminSocket, cmd.OutOrStdout()
		if clean {
			return dev.Clean(o)
		}
		return dev.Run(cmd.Context(), o)
	}
	cmd.AddCommand(
		&cobra.Command{Use: dev.InitStage, Hidden: true, Args: cobra.ExactArgs(1), RunE: func(_ *cobra.Command, args []string) error {
			return dev.Init(args[0])
		}},
		&cobra.Command{Use: dev.NodeStage, Hidden: true, Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			return dev.Node(cmd.Context(), args[0], dev.Hooks{Start: startDevAgent, Status: devStatus, Notes: devNotes})
		}},
	)
	return cmd
}

// startDevAgent starts the agent in this process, as its command line would.
func startDevAgent(args []string, log io.Writer) (*dev.Agent, error) {
	fs := pflag.NewFlagSet("playlet", pflag.ContinueOnError)
	flags := config.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	node, warnings, err := config.Load(flags, fs)
	if err != nil {
		return nil, err
	}
	logger := node.Logger(log)
	for _, w := range warnings {
		logger.Warn(w.Message, "flag", w.Flag)
	}
	a, err := newAgent(node, logger)
	if err != nil {
		return nil, err
	}
	if err := a.start(nil); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return &dev.Agent{NodeName: node.NodeName, Failed: a.failed, Close: a.close}, nil
}

// devStatus is a pod in a few words, the same until it changes.
func devStatus(p *admin.Pod) string {
	s := summarize(p)
	text := fmt.Sprintf("%s  %d/%d ready", plain(s.status), s.ready, s.total)
	if ip := podIP(p.Pod); ip != "" {
		text += "  " + ip
	}
	if s.restarts > 0 {
		text += fmt.Sprintf("  %d restarts", s.restarts)
	}
	if waits := waitingFor(p, time.Time{}); waits != "" {
		text += "  (" + strings.TrimPrefix(waits, s.status+": ") + ")"
	}
	return text
}

// devNotes are those of the node. What to do about a runtime that is away is not the user's business here: containerd is
// started again.
func devNotes(n *admin.Node) []string {
	if n.Runtime.Ready {
		return nodeNotes(n, admin.Filter{}, time.Time{})
	}
	note := "containerd is not ready"
	if r := n.Runtime.Reason; r != nil {
		note += ": " + plain(r.Code)
	}
	rest := *n
	rest.Runtime = admin.Runtime{Ready: true, NetworkReady: true}
	return append([]string{note}, nodeNotes(&rest, admin.Filter{}, time.Time{})...)
}
