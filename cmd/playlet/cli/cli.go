// Package cli holds what the sub-commands share: how a command ends and waits, flags, and output.
package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/playlet-dev/playlet/config"
)

// Main runs the command that args name and returns its exit code. An error is one line on stderr.
func Main(root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetFlagErrorFunc(flagError)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	exit, known := errors.AsType[*ExitError](err)
	if !known || exit.Err != nil {
		fmt.Fprintf(stderr, "playlet: %s\n", OneLine(err))
	}
	if known {
		return exit.Code
	}
	return 1
}

// ExitError ends the process with the exit code of a command that ran elsewhere.
type ExitError struct {
	Code int
	Err  error // printed; nil where the command has said all itself
}

// Error implements error.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("the command ended with exit code %d", e.Code)
	}
	return e.Err.Error()
}

// flagError says what is wrong with a flag in plain words, and which one was probably meant. Before an unknown command its flags
// are read as the root's: then the command is what is wrong.
func flagError(cmd *cobra.Command, err error) error {
	if !cmd.HasParent() && cmd.Flags().NArg() > 0 {
		return NoArguments(cmd, cmd.Flags().Args())
	}
	list := cmd.CommandPath() + " --help lists the flags"
	if !cmd.HasParent() {
		list = cmd.CommandPath() + " help flags lists the flags"
	}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return fmt.Errorf("--%s=%q: %s (%s)", wrong.GetFlag().Name, wrong.GetValue(), config.Plain(wrong.Unwrap()), list)
	}
	if bare, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Errorf("%s needs a value (%s)", dashed(bare.GetSpecifiedName(), bare.GetSpecifiedShortnames()), list)
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var known []string
		if unknown.GetSpecifiedShortnames() == "" {
			cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		}
		name := dashed(unknown.GetSpecifiedName(), unknown.GetSpecifiedShortnames())
		if meant := config.Closest(unknown.GetSpecifiedName(), known); meant != "" {
			return fmt.Errorf("unknown flag: %s; did you mean --%s? (%s)", name, meant, list)
		}
		return fmt.Errorf("unknown flag: %s (%s)", name, list)
	}
	return fmt.Errorf("%w (%s)", err, list)
}

// dashed is a flag as it is typed; shorthands are what it was among, and empty where it has a long name.
func dashed(name, shorthands string) string {
	if shorthands != "" {
		return "-" + name
	}
	return "--" + name
}

// SocketVariable names the environment variable with the socket of the commands.
const SocketVariable = "PLAYLET_SOCKET"

// SocketFlag adds the flag of every command that asks the agent.
func SocketFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("admin-socket", cmp.Or(os.Getenv(SocketVariable), config.DefaultAdminSocket),
		"Unix `socket` on which the agent is asked; "+SocketVariable+" in the environment sets the default")
}

// OutputFlag adds -o, with its completion.
func OutputFlag(cmd *cobra.Command, p *string, otherwise string, forms ...string) {
	cmd.Flags().StringVarP(p, "output", "o", otherwise, "Output `form`: "+strings.Join(forms, ", "))
	complete := cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc("output", complete); err != nil {
		panic(err) // the flag was added a moment ago
	}
}

// OneOf refuses a flag's value that is not among the known ones.
func OneOf(flag, value string, known ...string) error {
	if slices.Contains(known, value) {
		return nil
	}
	known = slices.DeleteFunc(slices.Clone(known), func(s string) bool { return s == "" })
	return fmt.Errorf("--%s=%q is unknown; it may be %s", flag, value, strings.Join(known, ", "))
}

// OneLine is an error's text without line breaks.
func OneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// Plain keeps a text that others wrote (a registry's answer, a manifest's path) to one line, and its escape sequences
// away from the terminal.
func Plain(s string) string {
	return strings.Join(strings.FieldsFunc(s, unicode.IsControl), " ")
}

// PrintObject prints v for programs: "json" or "yaml".
func PrintObject(w io.Writer, v any, output string) error {
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

// WantsColour says whether w is a terminal whose user has nothing against colours (no-color.org).
func WantsColour(w io.Writer) bool {
	return IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// IsTerminal says whether w is a terminal.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
