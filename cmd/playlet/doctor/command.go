package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/playlet-dev/playlet/actors/pod"
	"github.com/playlet-dev/playlet/actors/resources"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/cmd/playlet/agent"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cni"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

const doctorLong = `Check whether this machine is fit for the agent: container runtime, cgroups, network, mounts, ports, disks, clock, capabilities,
kernel. Each finding comes with a remedy. It works whether or not the agent is running, takes the agent's flags and configuration
(also those not listed here, see playlet help flags), and leaves nothing behind: the network is tested in a temporary namespace,
which is removed afterwards, also after Ctrl-C. Only a setting that a network plugin turns on for a pod, such as
net.ipv4.ip_forward, stays, and is named.

The configuration that is checked is named first. It is that of the installed service or, if another agent answers, that of the
running agent, modified by the flags given here. --config, --config-dir and --root-dir choose another one; --config= chooses the
defaults. The running agent is asked on --admin-socket or, without that flag, on $PLAYLET_SOCKET.

The exit code is 1 if a check fails. Warnings and skipped checks do not count.`

const doctorExample = `  # Is this machine fit?
  playlet doctor

  # Check another configuration than that of the running agent or the installed service
  playlet doctor --config=/var/lib/kubelet/config.yaml

  # Only some checks; all but one
  playlet doctor runtime network
  playlet doctor --skip=attach

  # For scripts
  playlet doctor -o json | jq -r '.findings[] | select(.result == "fail") | .do'`

// doctorFlags are the agent's flags that the help of the command lists.
var doctorFlags = []string{
	"admin-socket", "cni-bin-dir", "cni-conf-dir", "config", "config-dir", "container-runtime-endpoint", "hostname-override",
	"node-ip",
	"pod-manifest-path", "root-dir",
}

// NewCommand is "playlet doctor".
func NewCommand() *cobra.Command { return newCommand("/") }

// newCommand looks for the installed service below root.
func newCommand(root string) *cobra.Command {
	var output string
	var without []string
	cmd := &cobra.Command{
		Use: "doctor [CHECK...]", Short: "Check whether this machine can run pods, and suggest a fix for each fault",
		Long: doctorLong + "\n\n" + listChecks(), Example: doctorExample,
		ValidArgs: checkNames(),
	}
	flags := config.AddFlags(cmd.Flags())
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = !slices.Contains(doctorFlags, f.Name) })
	cmd.Flags().Lookup("cni-conf-dir").Usage = "`folder` of network configurations; if empty, as reported by the runtime"
	cmd.Flags().Lookup("cni-bin-dir").Usage = "`folders` of network plugins; if empty, as reported by the runtime"
	cli.OutputFlag(cmd, &output, "table", "table", "json", "yaml")
	cmd.Flags().StringSliceVar(&without, "skip", nil, "Skip these `checks`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		checks, err := chooseChecks(args, without)
		if err != nil {
			return err
		}
		findings := examine(cmd, flags, checks, root)
		if cmd.Context().Err() != nil {
			return fmt.Errorf("interrupted: not all checks ran")
		}
		if output == "table" {
			err = printFindings(cmd.OutOrStdout(), findings)
		} else {
			err = cli.PrintObject(cmd.OutOrStdout(), newReport(findings), output)
		}
		if err != nil {
			return err
		}
		return failedChecks(findings)
	}
	return cmd
}

func checkNames() []string {
	var names []string
	for _, c := range Checks {
		names = append(names, c.Name)
	}
	return names
}

func listChecks() string {
	text := "The checks are:\n"
	for _, c := range Checks {
		text += fmt.Sprintf("  %-14s %s\n", c.Name, c.About)
	}
	return strings.TrimSuffix(text, "\n")
}

// chooseChecks are those that were named, or all, without those to skip.
func chooseChecks(named, without []string) ([]Check, error) {
	for _, name := range slices.Concat(named, without) {
		if !slices.Contains(checkNames(), name) {
			return nil, fmt.Errorf("there is no check %q; there are %s", name, strings.Join(checkNames(), ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(Checks), func(c Check) bool {
		return slices.Contains(without, c.Name) || len(named) > 0 && !slices.Contains(named, c.Name)
	}), nil
}

// examine runs the checks over the machine with the chosen configuration. An unreadable configuration is the only finding:
// without it, the checks could only guess.
func examine(cmd *cobra.Command, flags *config.Flags, checks []Check, root string) []Finding {
	given := newSubject(flags, cmd.Flags())
	s, err := given.choose(cmd.Context(), root)
	var node *config.Node
	var warnings []config.Warning
	if err == nil {
		node, warnings, err = config.Load(s.flags, s.set)
	}
	if err != nil && s.service != "" && errors.Is(err, fs.ErrPermission) {
		given.unread = s.service
		s = given
		node, warnings, err = config.Load(s.flags, s.set)
	}
	if err != nil {
		return []Finding{{Check: "configuration", Result: Fail, Seen: messages.OneLine(err),
			Do: "correct it: the agent does not start with it"}}
	}
	m := machineOf(node, warnings)
	m.Socket, m.Chosen, m.Service, m.Unread = s.socket, s.chosen, s.service, s.unread
	m.Running, m.RunningPID, m.Unasked = s.running, s.pid, s.unasked
	m.Held = func(ctx context.Context) ([]api.Finding, error) { return held(ctx, api.NewClient(s.socket)) }
	m.Agent = func(ctx context.Context) (RunningAgent, error) {
		v, err := api.NewClient(s.socket).Version(ctx)
		if err != nil {
			return RunningAgent{}, err
		}
		return RunningAgent{v.Version, v.RootDir}, nil
	}
	if s.set.Changed("cni-conf-dir") || s.set.Changed("network-plugin-dir") {
		m.CNIConfDir = node.CNIConfDir
	}
	if s.set.Changed("cni-bin-dir") {
		m.CNIBinDirs = node.CNIBinDirs
	}
	show, done := showProgress(cmd.ErrOrStderr(), len(checks))
	defer done()
	return Run(cmd.Context(), m, checks, show)
}

// machineOf is this machine.
func machineOf(node *config.Node, warnings []config.Warning) *Machine {
	ours := []string{"--cni-conf-dir", "--cni-bin-dir", "--network-plugin-dir"} // they have an effect here
	return &Machine{
		Node:     node,
		Warnings: slices.DeleteFunc(warnings, func(w config.Warning) bool { return slices.Contains(ours, w.Flag) }),
		Proc:     "/proc", Sys: "/sys", Run: "/run", System: kernel{},
		TrialDir: cni.DefaultStateDir, NetNSDir: cni.DefaultNetNSDir, Built: built(),
		Dial: func(node *config.Node) (Runtime, error) {
			return cri.Dial(cri.Options{RuntimeEndpoint: node.Kubelet.ContainerRuntimeEndpoint,
				ImageEndpoint: node.ImageEndpoint()})
		},
		UserBounds: pod.UserBounds,
		Addresses:  func() []netip.Addr { return agent.NodeIPs(node, slog.New(slog.DiscardHandler)) },
	}
}

// held returns the folders that the agent keeps.
func held(ctx context.Context, agent *api.Client) (out []api.Finding, err error) {
	answer, err := agent.Explain(ctx, api.Filter{})
	if err != nil {
		return nil, err
	}
	for _, item := range answer.Items {
		for _, f := range append([]api.Finding{item.Finding}, item.Others...) {
			if f.Code == messages.EventVolumeHeld {
				out = append(out, f)
			}
		}
	}
	return out, nil
}

// built is when this program was: as Go recorded it of the checkout, or as old as its file.
func built() time.Time {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if at, err := time.Parse(time.RFC3339, s.Value); s.Key == "vcs.time" && err == nil {
				return at
			}
		}
	}
	if info, err := os.Stat("/proc/self/exe"); err == nil {
		return info.ModTime()
	}
	return time.Time{}
}

// failedChecks is the error for the exit code.
func failedChecks(findings []Finding) error {
	var names []string
	for _, f := range findings {
		if f.Result == Fail {
			names = append(names, f.Check)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("not fit: %s", strings.Join(slices.Compact(names), ", "))
}

// settledChecks find problems that no later start of the machine, the runtime or its network repairs. A bad manifest is not
// among them, since the agent runs the others.
var settledChecks = []string{"configuration", "cgroups", "cgroup-driver", "kernel"}

// Refuse is the error of arguments that an agent could not work with on this machine; it names all that is wrong, and the
// remedies.
func Refuse(ctx context.Context, args []string) error {
	node, warnings, err := load(args)
	if err != nil {
		return fmt.Errorf("the agent would not start with it: %w", err)
	}
	return refusal(ctx, machineOf(node, warnings))
}

// Folders are the folders of an agent that a take-over reads.
type Folders struct {
	Root, StaticPods string
	Standalone       bool
	Node             base.Node // the node for which the manifests are read
}

// FoldersOf returns the folders of an agent with these arguments.
func FoldersOf(args []string) (Folders, error) {
	node, _, err := load(args)
	if err != nil {
		return Folders{}, err
	}
	return Folders{Root: node.RootDir, StaticPods: node.Kubelet.StaticPodPath, Standalone: node.Standalone(),
		Node: manifestNode(node)}, nil
}

func load(args []string) (*config.Node, []config.Warning, error) {
	set := pflag.NewFlagSet("playlet", pflag.ContinueOnError)
	flags := config.AddFlags(set)
	if err := set.Parse(args); err != nil {
		return nil, nil, err
	}
	return config.Load(flags, set)
}

func refusal(ctx context.Context, m *Machine) error {
	checks := slices.DeleteFunc(slices.Clone(Checks), func(c Check) bool { return !slices.Contains(settledChecks, c.Name) })
	var errs []error
	for _, f := range Run(ctx, m, checks, nil) {
		if f.Result == Fail {
			errs = append(errs, fmt.Errorf("%s: %s (%s)", f.Check, cli.Plain(f.Seen), f.Do))
		}
	}
	swaps, err := resources.Swaps(m.Proc)
	if err == nil {
		err = m.Node.CheckSwap(swaps)
	}
	return errors.Join(append(errs, err)...)
}
