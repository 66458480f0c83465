// Package base has the common parts of the commands that send requests to the agent.
package base

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
)

// Command is one run of a command that asks the agent.
type Command struct {
	Socket   string // on which the agent is asked
	Client   *api.Client
	Output   string // the format of -o
	In       io.Reader
	Out, Err io.Writer
	Now      func() time.Time
}

// Runs has cmd, which it returns, run this with its arguments. It adds the flag of the socket.
func (c *Command) Runs(cmd *cobra.Command, run func(ctx context.Context, args []string) error) *cobra.Command {
	cli.SocketFlag(cmd, &c.Socket)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.Client, c.Now = api.NewClient(c.Socket), time.Now
		c.In, c.Out, c.Err = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
		return run(cmd.Context(), args)
	}
	return cmd
}

// Note prints lines beside the output.
func (c *Command) Note(lines ...string) {
	for _, l := range lines {
		fmt.Fprintln(c.Err, cli.Plain(l))
	}
}

const askEvery = 200 * time.Millisecond

var (
	// ErrBusy is the error of an answer after which the question is repeated.
	ErrBusy = errors.New("the agent is busy; try it again")
	// ErrGoesOn is the error of an answer while the agent's work is in progress. Retry repeats the request without a time limit.
	ErrGoesOn = errors.New("it goes on")
)

// Retry repeats a question, which must be one that may be repeated, for so long while the agent cannot answer it: it is being
// started, or busy.
func Retry[T any](ctx context.Context, limit time.Duration, ask func() (T, error)) (T, error) {
	for began := time.Now(); ; {
		out, err := ask()
		refused, known := errors.AsType[*api.Error](err)
		switch {
		case errors.Is(err, ErrGoesOn):
			began = time.Now()
		case errors.Is(err, ErrBusy), known && refused.Status == http.StatusServiceUnavailable:
		default:
			return out, err
		}
		if time.Since(began) > limit || !cli.Pause(ctx, askEvery) {
			return out, err
		}
	}
}

// Print prints v as -o asks for.
func (c *Command) Print(v any) error { return cli.PrintObject(c.Out, v, c.Output) }
