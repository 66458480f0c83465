package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/config"
)

// newManCommand is what packages are made with: the help of every command, as pages of the manual.
func newManCommand(flags *config.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "man FOLDER", Short: "Write the pages of the manual", Hidden: true, Args: cli.One("folder", "man1"),
		RunE: func(cmd *cobra.Command, args []string) error { return writeMan(cmd.Root(), flags, args[0]) },
	}
}

// writeMan writes the page of a command and those of its sub-commands, as playlet-run.1.
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
		text := "--" + f.Name
		if f.Shorthand != "" {
			text = "-" + f.Shorthand + ", " + text
		}
		if value != "" {
			text += "=" + strings.ToUpper(strings.TrimRight(value, "0123456789"))
		}
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(text), roff(usage))
	})
	return strings.TrimRight(b.String(), "\n")
}
