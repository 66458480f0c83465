// Package client holds the commands that ask the agent, over its admin socket. Most are in the packages below it.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/server/observatory"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/actors"
	"github.com/playlet-dev/playlet/cmd/playlet/client/base"
	"github.com/playlet-dev/playlet/cmd/playlet/client/chaos"
	"github.com/playlet-dev/playlet/cmd/playlet/client/images"
	"github.com/playlet-dev/playlet/cmd/playlet/client/pods"
	"github.com/playlet-dev/playlet/cmd/playlet/client/streams"
	"github.com/playlet-dev/playlet/cmd/playlet/client/submissions"
	"github.com/playlet-dev/playlet/cmd/playlet/client/top"
	"github.com/playlet-dev/playlet/cmd/playlet/version"
)

// Commands are all of them.
func Commands() []*cobra.Command {
	return slices.Concat(actors.Commands(), pods.Commands(), streams.Commands(), submissions.Commands(), []*cobra.Command{
		chaos.NewCommand(), images.NewCommand(), newObservatoryCommand(), top.NewCommand(), newVersionCommand(),
	})
}

func thisVersion() api.Version {
	return api.Version{
		Version: version.Playlet(), Kubernetes: version.Kubernetes, Go: runtime.Version(), Platform: runtime.GOOS + "/" +
			runtime.GOARCH,
	}
}

// versions is the output of the command with -o.
type versions struct {
	Client api.Version  `json:"client"`
	Agent  *api.Version `json:"agent,omitempty"`
	// AgentError is the reason why Agent is missing.
	AgentError string `json:"agentError,omitempty"`
}

const versionExample = `  # This program and the running agent
  playlet version

  # Only this program, without asking the agent
  playlet version --client

  # For scripts
  playlet version -o json`

func newVersionCommand() *cobra.Command {
	c := &base.Command{}
	var alone bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the versions of this program, the agent and the runtime", Example: versionExample,
		Long: `Print the version of this program, the Kubernetes release that it is tested against and, if the agent is running,
the versions of the agent and its container runtime. An agent that is not running is not an error.`,
		Args: cli.NoArguments,
	}
	cmd.Flags().BoolVar(&alone, "client", false, "Only print this program's version, without asking the agent")
	cli.OutputFlag(cmd, &c.Output, "", "json", "yaml")
	return c.Runs(cmd, func(ctx context.Context, _ []string) error {
		out := versions{Client: thisVersion()}
		if !alone {
			agent, err := c.Client.Version(ctx)
			out.Agent = agent
			switch {
			case errors.Is(err, api.ErrNotRunning):
				out.AgentError = "not running"
			case err != nil:
				out.AgentError = err.Error()
			}
		}
		if c.Output != "" {
			return c.Print(out)
		}
		text := "Playlet: " + versionLine(out.Client) + "\n"
		switch {
		case out.Agent != nil:
			text += "Agent:   " + versionLine(*out.Agent) + "\nRuntime: " + runtimeLine(out.Agent.Runtime) + "\n"
		case out.AgentError != "":
			text += "Agent:   " + cli.Plain(out.AgentError) + "\n"
		}
		_, err := io.WriteString(c.Out, text)
		return err
	})
}

func versionLine(v api.Version) string {
	return fmt.Sprintf("%s (Kubernetes %s, %s, %s)", cli.Plain(v.Version), cli.Plain(v.Kubernetes), cli.Plain(v.Go),
		cli.Plain(v.Platform))
}

func runtimeLine(r *api.Runtime) string {
	switch {
	case r == nil || r.Name == "":
		return "has not answered yet"
	case !r.Ready:
		return cli.Plain(r.Name+" "+r.Version) + ", which is not ready"
	default:
		return cli.Plain(r.Name + " " + r.Version)
	}
}

const observatoryLong = `Print the address of the web page that shows this node: its actors, its pods with their explanations,
live messages, charts, and chaos if it is enabled. The address contains a token: treat it like a password. Only root can read
it. No browser is opened.

The agent serves the page on a port if it was started with --observatory-address=127.0.0.1:PORT. It always serves it on the
admin socket, without a token: anyone who can connect to that socket is root on the node.`

const observatoryExample = `  # On this machine
  playlet observatory

  # From another one: forward the port, and open the same address there
  ssh -L 4195:127.0.0.1:4195 root@node

  # Without a port on the node. Only from a machine that no one else uses: anyone who reaches the port there is root here
  ssh -L 4195:/run/playlet/admin.sock root@node    # and open http://localhost:4195/`

func newObservatoryCommand() *cobra.Command {
	c := &base.Command{}
	cmd := &cobra.Command{
		Use: "observatory", Short: "Print the address of the web page that shows this node", Long: observatoryLong,
		Example: observatoryExample, Args: cli.NoArguments,
	}
	return c.Runs(cmd, func(ctx context.Context, _ []string) error {
		at, err := c.Client.Observatory(ctx)
		if refused, ok := errors.AsType[*api.Error](err); ok && refused.Status == 404 {
			return fmt.Errorf("%s; it is also on the admin socket, which \"%s --help\" shows how to reach", refused.Text,
				cmd.CommandPath())
		}
		if err != nil {
			return err
		}
		token, err := observatory.ReadToken(at.TokenFile)
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("only root may read the web page's token, %s: run it with sudo", at.TokenFile)
		}
		if err != nil {
			return fmt.Errorf("the web page's token: %w", err)
		}
		u := url.URL{Scheme: "http", Host: reachable(at.Address), Path: "/", RawQuery: "token=" + token}
		_, err = fmt.Fprintln(c.Out, u.String())
		return err
	})
}

// reachable is an address to connect to on this machine: one that stands for all of them becomes the loopback.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip, ipErr := netip.ParseAddr(host); err == nil && ipErr == nil && ip.IsUnspecified() {
		return net.JoinHostPort("localhost", port)
	}
	return address
}
