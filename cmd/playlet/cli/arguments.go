package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/config"
)

// habits are commands of kubectl, podman and crictl that Playlet has by another name, and that name.
var habits = []struct{ theirs, ours string }{
	{"get node, get nodes, node, nodes, status, info", "playlet explain node"},
	{"get events, get event", "playlet events"},
	{"get, ps, list, ls, kubectl", "playlet pods"},
	{"apply, create, replace, edit, patch, scale, start, play, kube", "playlet run -f FILE"},
	{"diff", "playlet run -f FILE --diff"},
	{"wait", "playlet run -f FILE --wait"},
	{"stop, kill", "playlet rm POD"},
	{"rollout", "playlet restart POD"},
	{"inspect", "playlet describe POD"},
	{"stats", "playlet top pods"},
	{"pull", "playlet images pull IMAGE"},
	{"rmi", "playlet images rm IMAGE"},
	{"prune", "playlet images prune"},
}

// NoArguments refuses arguments, which would be misspelt commands, or those of other programs.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	path := cmd.CommandPath()
	if !cmd.HasSubCommands() {
		return fmt.Errorf("%s takes no arguments, and %q is one (%s --help)", path, args[0], path)
	}
	if !cmd.HasParent() {
		for _, h := range habits {
			theirs := strings.Split(h.theirs, ", ")
			if slices.Contains(theirs, args[0]) || len(args) > 1 && slices.Contains(theirs, args[0]+" "+args[1]) {
				return fmt.Errorf("unknown command %q; here it is %q (%s --help lists the commands)", args[0], h.ours, path)
			}
		}
	}
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	if meant := config.Closest(args[0], known); meant != "" {
		return fmt.Errorf("unknown command %q; did you mean %q? (%s --help lists the commands)", args[0], path+" "+meant, path)
	}
	return fmt.Errorf("unknown command %q (%s --help lists the commands)", args[0], path)
}

// One wants one argument, which is what, and such as example.
func One(what, example string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("which %s? (for example: %s %s)", what, cmd.CommandPath(), example)
		}
		return AtMostOne(what)(cmd, args)
	}
}

// AtMostOne wants one argument or none.
func AtMostOne(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("one %s at a time, not %s", what, strings.Join(args, ", "))
		}
		return nil
	}
}
