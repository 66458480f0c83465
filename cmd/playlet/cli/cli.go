// Package cli has the common parts of the sub-commands: exit and waiting, flags, and output.
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
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/config/configfile"
	"github.com/playlet-dev/playlet/config/logformat"
	"github.com/playlet-dev/playlet/messages"
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
		prefix := ""
		if logformat.Journal(stderr) { // the service did not start
			prefix = logformat.ErrorPrefix
		}
		fmt.Fprintf(stderr, "%splaylet: %s\n", prefix, messages.OneLine(err))
	}
	if known {
		return exit.Code
	}
	return 1
}

// ExitError ends the process with the exit code of a command that ran elsewhere.
type ExitError struct {
	Code int
	Err  error // printed; nil if the command has already printed it
}

// Error implements error.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("the command exited with code %d", e.Code)
	}
	return e.Err.Error()
}

// flagError describes an invalid flag in plain words, and suggests a similar one. The flags before an unknown command are parsed
// as the root's; then the error is about the command.
func flagError(cmd *cobra.Command, err error) error {
	if !cmd.HasParent() && cmd.Flags().NArg() > 0 {
		return NoArguments(cmd, cmd.Flags().Args())
	}
	list := cmd.CommandPath() + " --help lists the flags"
	if !cmd.HasParent() {
		list = cmd.CommandPath() + " help flags lists the flags"
	}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if known, ok := errors.AsType[unknownError](err); ok {
			return fmt.Errorf("--%s=%q is unknown; it may be %w", wrong.GetFlag().Name, wrong.GetValue(), known)
		}
		return fmt.Errorf("--%s=%q: %s (%s)", wrong.GetFlag().Name, wrong.GetValue(), configfile.Plain(wrong.Unwrap()), list)
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
		if ours := flagHabits[cmd.CommandPath()+" "+name]; ours != "" {
			return fmt.Errorf("unknown flag: %s; %s (%s)", name, ours, list)
		}
		if meant := configfile.Closest(unknown.GetSpecifiedName(), known); meant != "" {
			return fmt.Errorf("unknown flag: %s; did you mean --%s? (%s)", name, meant, list)
		}
		return fmt.Errorf("unknown flag: %s (%s)", name, list)
	}
	return fmt.Errorf("%w (%s)", err, list)
}

// dashed returns a flag as it is typed. shorthands is the group of letters that contained it, and empty for a long name.
func dashed(name, shorthands string) string {
	if shorthands != "" {
		return "-" + name
	}
	return "--" + name
}

// SocketVariable names the environment variable with the socket of the commands.
const SocketVariable = "PLAYLET_SOCKET"

// SocketFlag adds the flag of every command that asks the agent.
func SocketFlag(cmd *cobra.Command, p *string) {
	cmd.Flags().StringVar(p, "admin-socket", cmp.Or(os.Getenv(SocketVariable), config.DefaultAdminSocket),
		"Unix `socket` of the agent; the environment variable "+SocketVariable+" sets the default")
}

// OutputFlag adds -o, with its completion.
func OutputFlag(cmd *cobra.Command, p *string, otherwise string, forms ...string) {
	ChoiceFlag(cmd, p, "output", "o", otherwise, "Output `form`: "+strings.Join(forms, ", "), forms...)
	Complete(cmd, "output", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp))
}

// ChoiceFlag adds a flag whose value is its default, or one of the known ones. Any text may follow a known value that ends with
// "=".
func ChoiceFlag(cmd *cobra.Command, p *string, name, shorthand, otherwise, usage string, known ...string) {
	*p = otherwise
	cmd.Flags().VarP(&choice{p, otherwise, known}, name, shorthand, usage)
}

// choice is its pflag.Value.
type choice struct {
	value     *string
	otherwise string
	known     []string
}

func (c *choice) String() string { return *c.value }

func (c *choice) Type() string { return "string" }

func (c *choice) Set(text string) error {
	form, _, _ := strings.Cut(text, "=")
	if text != c.otherwise && !slices.Contains(c.known, text) && !slices.Contains(c.known, form+"=") {
		return unknownError(c.known)
	}
	*c.value = text
	return nil
}

// unknownError are the values that a flag may have, and does not.
type unknownError []string

func (e unknownError) Error() string { return strings.Join(e, ", ") }

// Complete sets how the values of a flag of the command are completed.
func Complete(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // there is no such flag
	}
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

// WantsColour reports whether w is a terminal with colours enabled (no-color.org).
func WantsColour(w io.Writer) bool {
	return IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

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

// flagHabits are flags of kubectl that a command of Playlet lacks, with advice.
var flagHabits = map[string]string{
	"playlet top -o":           printsFigures,
	"playlet top --output":     printsFigures,
	"playlet top --containers": "playlet top pods --containers prints them",
	"playlet rm --all":         choosePods,
	"playlet rm --now":         "--grace-period=1 is similar",
	"playlet restart --all":    choosePods,
	"playlet run --image":      "a pod runs from a manifest, -f FILE",
}

const (
	printsFigures = "the screen has one form; playlet top pods -o json prints the figures, and playlet pods -o json the pods"
	choosePods    = "name the pods, or choose them by their labels, as -l app=web"
)

// NoArguments rejects arguments, which are probably misspelt commands, or commands of other programs.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	path := cmd.CommandPath()
	if !cmd.HasAvailableSubCommands() {
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
	const flags = "flags" // of playlet help flags; it is hidden
	if !cmd.HasParent() {
		known = append(known, flags)
	}
	if meant := configfile.Closest(args[0], known); meant != "" {
		if meant == flags {
			meant = "help " + flags
		}
		return fmt.Errorf("unknown command %q; did you mean %q? (%s --help lists the commands)", args[0], path+" "+meant, path)
	}
	return fmt.Errorf("unknown command %q (%s --help lists the commands)", args[0], path)
}

// One requires exactly one argument. Its error names what and the example.
func One(what, example string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("which %s? (for example: %s %s)", what, cmd.CommandPath(), example)
		}
		return AtMostOne(what)(cmd, args)
	}
}

// AtMostOne requires one argument or none.
func AtMostOne(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("one %s at a time, not %s", what, strings.Join(args, ", "))
		}
		return nil
	}
}

// ReconnectEvery is how often an agent that is gone is looked for.
const ReconnectEvery = time.Second

// progressEvery is the interval of progress messages about a long operation: a pull, or the wait for one.
const progressEvery = 10 * time.Second

// Pause waits, and reports whether ctx is still active.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Repeat calls say every ten seconds, or at each tick, until ctx ends. Without ticks it uses a clock.
func Repeat(ctx context.Context, ticks <-chan time.Time, say func()) {
	if ticks == nil {
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		ticks = ticker.C
	}
	for {
		select {
		case <-ticks:
			say()
		case <-ctx.Done():
			return
		}
	}
}

// Count returns a number with its noun, which gets an s unless the number is 1.
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
