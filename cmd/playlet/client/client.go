// Package client holds the commands that ask the agent, over its admin socket.
package client

import (
	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/cmd/playlet/client/images"
)

// Commands are all of them.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		newActorsCommand(), newAttachCommand(), newChaosCommand(), newCpCommand(), newExecCommand(), newDescribeCommand(),
		newEventsCommand(), newExplainCommand(), images.NewCommand(), newRestartCommand(),
		newLogsCommand(), newObservatoryCommand(), newPodsCommand(), newPortForwardCommand(), newRmCommand(), newRunCommand(),
		newTopCommand(), newTraceCommand(), newVersionCommand(),
	}
}
