package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/config"
)

const rootLong = `Playlet is a Kubernetes node agent made of actors. It takes the kubelet's flags and KubeletConfiguration. Without a
command it runs the pods of this node, in the foreground, until SIGTERM or SIGINT; containers outlive it.`

// commandGroups are the commands in the order of the help text. One that is in no group is listed behind them.
var commandGroups = []struct{ title, names string }{
	{"Pods", "pods describe explain events logs exec attach port-forward cp"},
	{"Change them", "run restart rm objects images"},
	{"The agent", "actors trace top observatory chaos"},
	{"The node", "dev doctor install uninstall version"},
}

// groupCommands puts the commands of root into their groups.
func groupCommands(root *cobra.Command) {
	for _, g := range commandGroups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, c := range root.Commands() {
			if slices.Contains(strings.Fields(g.names), c.Name()) {
				c.GroupID = g.title
			}
		}
	}
	root.SetCompletionCommandGroupID(commandGroups[len(commandGroups)-1].title)
	root.SetHelpCommandGroupID(commandGroups[len(commandGroups)-1].title)
}

// setHelp makes the help of root fit on a screen, and adds "playlet help flags".
func setHelp(root *cobra.Command, flags *config.Flags) {
	ofCommand := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		switch {
		case !cmd.HasParent():
			printRootHelp(cmd.OutOrStdout(), root, flags)
		case cmd.Parent() == root && cmd.Name() == "flags":
			printFlags(cmd.OutOrStdout(), flags)
		default:
			ofCommand(cmd, args)
		}
	})
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" { // cobra's own has help for a shell that there is not
			c.Args, c.RunE = cli.NoArguments, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
		if c.Name() == "help" { // cobra's own takes a command that there is not for the root
			c.Short = "Tell of a command"
			c.Long = "Tell of a command, with examples, or of all flags of the agent (playlet help flags)."
			c.Run, c.RunE = nil, func(_ *cobra.Command, args []string) error { return helpOn(root, args) }
		}
	}
	root.AddCommand(&cobra.Command{
		Use: "flags", Short: "All flags of the agent, with their fields of the configuration file", Hidden: true,
		Args: cli.NoArguments, Run: func(cmd *cobra.Command, _ []string) { printFlags(cmd.OutOrStdout(), flags) },
	})
}

// helpOn prints the help of the command that args name.
func helpOn(root *cobra.Command, args []string) error {
	of, left, err := root.Find(args)
	if err != nil {
		return err
	}
	if len(left) > 0 && of.HasSubCommands() {
		return cli.NoArguments(of, left)
	}
	of.InitDefaultHelpFlag()
	return of.Help()
}

// printRootHelp prints a help that fits on a screen. Commands without a group are named in one line.
func printRootHelp(w io.Writer, root *cobra.Command, flags *config.Flags) {
	fmt.Fprintf(w, "%s\nUsage: playlet [FLAGS], or playlet COMMAND [ARGUMENTS]\n", rootLong)
	var others []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && c.GroupID == "" {
			others = append(others, c.Name())
		}
	}
	for _, g := range root.Groups() {
		fmt.Fprintf(w, "\n%s\n", g.Title)
		for _, c := range root.Commands() {
			if c.IsAvailableCommand() && c.GroupID == g.ID {
				fmt.Fprintf(w, "  %-13s %s\n", c.Name(), c.Short)
			}
		}
	}
	if len(others) > 0 {
		fmt.Fprintf(w, "\nOthers: %s\n", strings.Join(others, ", "))
	}
	fmt.Fprint(w, "\nCommon flags of the agent:\n")
	for _, name := range config.CommonFlags {
		h := flags.HelpOf(name)
		usage, _, _ := strings.Cut(h.Usage, ". ")
		usage, _, _ = strings.Cut(usage, "; ")
		fmt.Fprintf(w, "  %-37s %s\n", signature(h), usage)
	}
	fmt.Fprintln(w, `"playlet help flags" lists all of them; "playlet COMMAND --help" describes a command, with examples.`)
}

// signature is a flag with its value.
func signature(h config.FlagHelp) string {
	out := "--" + h.Name
	if h.Shorthand != "" && h.Shorthand != h.Name {
		out = "-" + h.Shorthand + ", " + out
	}
	if h.Value != "" {
		out += "=" + strings.ToUpper(strings.TrimRight(h.Value, "0123456789")) // int32
	}
	return out
}

// printFlags prints all flags in their groups.
func printFlags(w io.Writer, flags *config.Flags) {
	fmt.Fprint(w, `All flags of the agent. A name in [brackets] is the field of KubeletConfiguration (the --config file) that the flag sets;
where both are given, the flag wins. NOT IN FORCE marks what is read, and has no effect in this version.
Flags of older kubelets are taken, too; the log says what replaces them.
`)
	for _, g := range flags.Help() {
		fmt.Fprintf(w, "\n%s:\n", g.Title)
		for _, h := range g.Flags {
			if h.Usage == config.NoEffect {
				fmt.Fprintf(w, "  --%s\n", h.Name)
				continue
			}
			line := "  " + signature(h)
			if h.Field != "" {
				line += "  [" + h.Field + "]"
			}
			if !h.InForce {
				line += "  NOT IN FORCE"
			}
			usage := h.Usage
			if h.Default != "" {
				usage += " (default " + h.Default + ")"
			}
			fmt.Fprintf(w, "%s\n      %s\n", line, usage)
		}
	}
}

// newManCommand returns the command for packagers that writes the help of every command as pages of the manual.
func newManCommand(flags *config.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "man FOLDER", Short: "Write the pages of the manual", Hidden: true, Args: cli.One("folder", "man1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return writeMan(cmd.Root(), flags, args[0])
		},
	}
}

// writeMan writes the page of a command and its sub-commands, as playlet-run.1.
func writeMan(cmd *cobra.Command, flags *config.Flags, folder string) error {
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	if err := os.WriteFile(filepath.Join(folder, name+".1"), []byte(manPage(cmd, flags)), 0o600); err != nil {
		return err
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			if err := writeMan(c, flags, folder); err != nil {
				return err
			}
		}
	}
	return nil
}

// roff keeps a text from being read as requests of man(7).
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	return strings.NewReplacer("\n.", "\n\\&.", "\n'", "\n\\&'").Replace("\n" + text)[1:]
}

// manPage is a page of man(7). It bears no date, so that the same program makes the same page.
func manPage(cmd *cobra.Command, flags *config.Flags) string {
	var b strings.Builder
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	section := func(title, text string) {
		if text != "" {
			fmt.Fprintf(&b, ".SH %s\n%s\n", title, text)
		}
	}
	verbatim := func(text string) string {
		if text == "" {
			return ""
		}
		return ".nf\n" + roff(strings.TrimRight(text, "\n")) + "\n.fi"
	}
	fmt.Fprintf(&b, ".TH %q 1 \"\" \"Playlet\" \"User Commands\"\n", strings.ToUpper(name))
	section("NAME", roff(name+" - "+cmd.Short))
	section("SYNOPSIS", ".B "+roff(cmd.UseLine()))
	long := cmd.Long
	if long == "" {
		long = cmd.Short
	}
	section("DESCRIPTION", strings.ReplaceAll(roff(long), "\n\n", "\n.PP\n"))
	if cmd.HasParent() {
		section("OPTIONS", manOptions(cmd))
	} else {
		var all strings.Builder
		printFlags(&all, flags)
		section("OPTIONS", verbatim(all.String()))
	}
	section("EXAMPLES", verbatim(cmd.Example))
	var others []string
	if cmd.HasParent() {
		others = append(others, strings.ReplaceAll(cmd.Parent().CommandPath(), " ", "-"))
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			others = append(others, name+"-"+c.Name())
		}
	}
	for i := range others {
		others[i] = ".BR " + roff(others[i]) + " (1)"
	}
	section("SEE ALSO", strings.Join(others, ",\n"))
	return b.String()
}

func manOptions(cmd *cobra.Command) string {
	var b strings.Builder
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		text := signature(config.FlagHelp{Name: f.Name, Shorthand: f.Shorthand, Value: value})
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(text), roff(usage))
	})
	return strings.TrimRight(b.String(), "\n")
}
