// Package streams carries streams to and from containers: commands, terminals, files, ports, logs.
package streams

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
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
	client    *api.Client
	namespace string
	options   api.ExecOptions
	noted     bool // which container was chosen

	adminSocket *string // the flag, for completions
	in          io.Reader
	out, err    io.Writer
}

func (c *streamCommand) addFlags(cmd *cobra.Command) (socket *string) {
	socket = cli.SocketFlag(cmd)
	c.adminSocket = socket
	names.AddNamespaceFlag(cmd, &c.namespace, socket)
	cmd.ValidArgsFunction = names.CompletePods(socket, &c.namespace, false)
	return socket
}

func (c *streamCommand) addContainerFlag(cmd *cobra.Command) {
	names.AddContainerFlag(cmd, &c.options.Container, c.adminSocket, &c.namespace)
}

func (c *streamCommand) begin(cmd *cobra.Command, socket string) {
	c.client, c.in, c.out, c.err = api.NewClient(socket), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
}

func (c *streamCommand) note(text string) { fmt.Fprintln(c.err, cli.Plain(text)) }

// find finds the pod that is meant, which is known by its UID from then on.
func (c *streamCommand) find(ctx context.Context, arg string) (*api.Pod, error) {
	pod, err := names.Find(ctx, c.client, c.namespace, arg, c.note)
	if err == nil {
		c.options.UID = string(pod.Pod.UID)
	}
	return pod, err
}

// terminal takes the terminal over, where the command is to have one.
func (c *streamCommand) terminal(ctx context.Context, t *api.Terminal) (restore func(), err error) {
	if !c.options.TTY {
		return func() {}, nil
	}
	f, ok := c.in.(*os.File)
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
		return fmt.Errorf("which pod? (playlet pods lists them; %s --help shows examples)", cmd.CommandPath())
	case 1:
		return nil
	}
	return fmt.Errorf("one pod at a time, not %s (-c names a container)", strings.Join(args, ", "))
}
