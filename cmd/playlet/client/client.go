// Package client holds the commands that ask the agent, over its admin socket. Most are in the packages below it.
package client

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/cmd/playlet/client/actors"
	"github.com/playlet-dev/playlet/cmd/playlet/client/chaos"
	"github.com/playlet-dev/playlet/cmd/playlet/client/images"
	"github.com/playlet-dev/playlet/cmd/playlet/client/pods"
	"github.com/playlet-dev/playlet/cmd/playlet/client/streams"
	"github.com/playlet-dev/playlet/cmd/playlet/client/submissions"
	"github.com/playlet-dev/playlet/cmd/playlet/client/top"
)

// Commands are all of them.
func Commands() []*cobra.Command {
	return slices.Concat(actors.Commands(), pods.Commands(), streams.Commands(), submissions.Commands(), []*cobra.Command{
		chaos.NewCommand(), images.NewCommand(), newObservatoryCommand(), top.NewCommand(), newVersionCommand(),
	})
}
