// Package streams carries streams to and from containers: commands, terminals, files, ports, logs.
package streams

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/base"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
	"github.com/playlet-dev/playlet/cmd/playlet/client/terminal"
)

// Commands are "playlet attach", "cp", "exec", "logs" and "port-forward".
func Commands() []*cobra.Command {
	return []*cobra.Command{
		newAttachCommand(), newCpCommand(), newExecCommand(), newLogsCommand(), newPortForwardCommand(),
	}
}

// streamCommand is one run of a command that streams with a pod.
type streamCommand struct {
	base.Command
	namespace string
	options   api.ExecOptions
	noted     bool // which container was chosen
}

func (c *streamCommand) addFlags(cmd *cobra.Command) {
	names.AddNamespaceFlag(cmd, &c.namespace, &c.Socket, names.OfOnePod)
	cmd.ValidArgsFunction = names.CompletePods(&c.Socket, &c.namespace, false)
}

func (c *streamCommand) addContainerFlag(cmd *cobra.Command) {
	names.AddContainerFlag(cmd, &c.options.Container, &c.Socket, &c.namespace)
}

// note is Note with one line.
func (c *streamCommand) note(text string) { c.Note(text) }

// find finds the pod that is meant, which is known by its UID from then on.
func (c *streamCommand) find(ctx context.Context, arg string) (*api.Pod, error) {
	all, err := c.Client.Pods(ctx, api.Filter{Namespace: c.namespace})
	if err != nil {
		return nil, err
	}
	pod, notes, err := names.One(c.namespace, arg, all.Pods)
	if err != nil {
		return nil, err
	}
	c.Note(notes...)
	c.options.UID = string(pod.Pod.UID)
	return pod, nil
}

// terminal takes the terminal over, where the command is to have one.
func (c *streamCommand) terminal(ctx context.Context, t *api.Terminal) (restore func(), err error) {
	if !c.options.TTY {
		return func() {}, nil
	}
	f, ok := c.In.(*os.File)
	if !ok || !cli.IsTerminal(f) {
		return func() {}, nil
	}
	var stop func()
	t.Sizes, stop = terminal.WatchSize(ctx, f)
	if !c.options.Stdin {
		return stop, nil
	}
	calm, err := terminal.MakeRaw(f)
	if err != nil {
		stop()
		return nil, err
	}
	return func() { calm(); stop() }, nil
}

func onePod(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return names.NoPod(cmd)
	case 1:
		return nil
	}
	return fmt.Errorf("one pod at a time, not %s (-c names a container)", strings.Join(args, ", "))
}
