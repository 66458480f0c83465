package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/playlet-dev/playlet/actors/server/admin"
)

// kubernetesVersion is the release of Kubernetes that Playlet is tested against.
const kubernetesVersion = "1.36.3"

// buildVersion is set by the linker: -ldflags "-X main.buildVersion=v1.2.3".
var buildVersion string

// version is Playlet's own: what the linker was told, or else what Go recorded of the checkout.
func version() string {
	if buildVersion != "" {
		return buildVersion
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return versionOf(info)
}

// versionOf is the module's version, or "devel" with the commit where it was built from a checkout.
func versionOf(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	out, dirty := "devel", false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			out += "-" + s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	if dirty {
		out += "-dirty"
	}
	return out
}

func thisVersion() admin.Version {
	return admin.Version{
		Version: version(), Kubernetes: kubernetesVersion, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

func printVersionLine(w io.Writer) error {
	_, err := fmt.Fprintln(w, "playlet", versionLine(thisVersion()))
	return err
}

// versions is what the command prints with -o.
type versions struct {
	Client admin.Version  `json:"client"`
	Agent  *admin.Version `json:"agent,omitempty"`
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
		Args: cobra.NoArgs, SilenceUsage: true,
	}
	socket := addSocketFlag(cmd)
	cmd.Flags().BoolVar(&alone, "client", false, "This program's version alone; the agent is not asked")
	addOutputFlag(cmd, &output, "", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := oneOf("output", output, "", "json", "yaml"); err != nil {
			return err
		}
		out := versions{Client: thisVersion()}
		if !alone {
			agent, err := admin.NewClient(*socket).Version(cmd.Context())
			out.Agent = agent
			switch {
			case errors.Is(err, admin.ErrNotRunning):
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
		return printObject(w, v, output)
	}
	text := "Playlet: " + versionLine(v.Client) + "\n"
	switch {
	case v.Agent != nil:
		text += "Agent:   " + versionLine(*v.Agent) + "\n" + "Runtime: " + runtimeLine(v.Agent.Runtime) + "\n"
	case v.AgentError != "":
		text += "Agent:   " + plain(v.AgentError) + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

func versionLine(v admin.Version) string {
	return fmt.Sprintf("%s (Kubernetes %s, %s, %s)", plain(v.Version), plain(v.Kubernetes), plain(v.Go), plain(v.Platform))
}

func runtimeLine(r *admin.Runtime) string {
	switch {
	case r == nil || r.Name == "":
		return "has not answered yet"
	case !r.Ready:
		return plain(r.Name+" "+r.Version) + ", which is not ready"
	default:
		return plain(r.Name + " " + r.Version)
	}
}

// printObject prints v for programs: "json" or "yaml".
func printObject(w io.Writer, v any, output string) error {
	var text []byte
	var err error
	if output == "json" {
		if text, err = json.MarshalIndent(v, "", "    "); err == nil {
			text = append(text, '\n')
		}
	} else {
		text, err = yaml.Marshal(v)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}
