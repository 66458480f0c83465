package client

import (
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/version"
)

func thisVersion() api.Version {
	return api.Version{
		Version: version.Playlet(), Kubernetes: version.Kubernetes, Go: runtime.Version(), Platform: runtime.GOOS + "/" +
			runtime.GOARCH,
	}
}

// PrintVersion prints this program's version in a line.
func PrintVersion(w io.Writer) error {
	_, err := fmt.Fprintln(w, "playlet", versionLine(thisVersion()))
	return err
}

// versions is what the command prints with -o.
type versions struct {
	Client api.Version  `json:"client"`
	Agent  *api.Version `json:"agent,omitempty"`
	// AgentError says why there is no Agent.
	AgentError string `json:"agentError,omitempty"`
}

const versionExample = `  # This program, and the agent that runs
  playlet version

  # This program alone, asking nobody
  playlet version --client

  # For scripts
  playlet version -o json`

func newVersionCommand() *cobra.Command {
	var output string
	var alone bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the versions of this program, of the agent and of the runtime", Example: versionExample,
		Long: `Print the version of this program, the release of Kubernetes that it is tested against and, when the agent runs, the
versions of the agent and of the container runtime that it uses. An agent that does not run is no error.`,
		Args: cli.NoArguments, SilenceUsage: true,
	}
	socket := cli.SocketFlag(cmd)
	cmd.Flags().BoolVar(&alone, "client", false, "This program's version alone; the agent is not asked")
	cli.OutputFlag(cmd, &output, "", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := cli.OneOf("output", output, "", "json", "yaml"); err != nil {
			return err
		}
		out := versions{Client: thisVersion()}
		if !alone {
			agent, err := api.NewClient(*socket).Version(cmd.Context())
			out.Agent = agent
			switch {
			case errors.Is(err, api.ErrNotRunning):
				out.AgentError = "not running"
			case err != nil:
				out.AgentError = err.Error()
			}
		}
		return printVersions(cmd.OutOrStdout(), out, output)
	}
	return cmd
}

func printVersions(w io.Writer, v versions, output string) error {
	if output != "" {
		return cli.PrintObject(w, v, output)
	}
	text := "Playlet: " + versionLine(v.Client) + "\n"
	switch {
	case v.Agent != nil:
		text += "Agent:   " + versionLine(*v.Agent) + "\n" + "Runtime: " + runtimeLine(v.Agent.Runtime) + "\n"
	case v.AgentError != "":
		text += "Agent:   " + cli.Plain(v.AgentError) + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
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
