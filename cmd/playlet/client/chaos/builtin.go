package chaos

import (
	"embed"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/cmd/playlet/cli"
)

// experiments are those that come with the program.
//
//go:embed experiments/*.yaml
var experiments embed.FS

// builtin begins the name of an experiment that comes with the program.
const builtin = "builtin:"

const chaosRunExample = `  # Kill every kind of actor once or more, and check that no pod notices
  playlet chaos run builtin:kills

  # See which actors would be affected
  playlet chaos run builtin:messages --dry-run

  # One of your own, from a copy
  playlet chaos show builtin:kills > mine.yaml
  playlet chaos run mine.yaml`

// builtins are the names of the experiments that come with the program.
func builtins() (out []string) {
	files, err := experiments.ReadDir("experiments")
	if err != nil {
		panic(err) // they are embedded
	}
	for _, f := range files {
		out = append(out, builtin+strings.TrimSuffix(f.Name(), ".yaml"))
	}
	return out
}

// readFile reads an experiment by its path, or one that comes with the program.
func readFile(name string) ([]byte, error) {
	rest, ok := strings.CutPrefix(name, builtin)
	if !ok {
		return os.ReadFile(name)
	}
	data, err := experiments.ReadFile(path.Join("experiments", rest+".yaml"))
	if err != nil {
		return nil, fmt.Errorf("there is no experiment %q; there are %s", name, strings.Join(builtins(), ", "))
	}
	return data, nil
}

func completeExperiments(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return builtins(), cobra.ShellCompDirectiveDefault
}

func newChaosShow() *cobra.Command {
	return &cobra.Command{
		Use: "show EXPERIMENT", Short: "Print an experiment that comes with Playlet",
		Args:              cli.One("experiment", "builtin:kills"),
		ValidArgsFunction: completeExperiments,
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := readFile(args[0])
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(data)
			return err
		},
	}
}
