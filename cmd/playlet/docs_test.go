package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/playlet-dev/playlet/actors/server/admin"
	"github.com/playlet-dev/playlet/config"
)

const docsDir = "../../docs"

// tools are programs other than playlet that a page may call.
var tools = strings.Fields("apt-get cat curl dpkg go journalctl kubeadm kubectl promtool ssh systemctl update-alternatives")

var (
	inlineCode = regexp.MustCompile("`([^`\n]+)`")
	mdLink     = regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)
	longFlag   = regexp.MustCompile(`^--[a-z][a-z0-9-]*`)
)

// pages returns the hand-written pages by file name.
func pages(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(docsDir + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "not to be edited") {
			out[filepath.Base(f)] = string(text)
		}
	}
	return out
}

// commandsOf returns the commands of a page: lines of console blocks after "$ ", and inline commands of
// playlet with arguments.
func commandsOf(text string) (out []string) {
	var prose strings.Builder
	for i, part := range strings.Split("\n"+text, "\n```") {
		if i%2 == 0 {
			prose.WriteString(part)
			continue
		}
		language, body, _ := strings.Cut(part, "\n")
		for line := range strings.Lines(body) {
			if command, ok := strings.CutPrefix(line, "$ "); ok && language == "console" {
				out = append(out, strings.TrimSpace(command))
			}
		}
	}
	for _, m := range inlineCode.FindAllStringSubmatch(prose.String(), -1) {
		if words := strings.Fields(m[1]); words[0] == "playlet" && len(words) > 2 {
			out = append(out, m[1])
		}
	}
	return out
}

var (
	bracket     = regexp.MustCompile(` ?\[[^]]*\]`)
	readmeLines = regexp.MustCompile(`(?m)^(?:sudo )?playlet .*`)
)

// readmeCommandsOf returns the commands of the usage blocks of a README, without and with the optional parts in [brackets]. Each
// alternative of a part is in one of them.
func readmeCommandsOf(text string) (out []string) {
	for i, block := range strings.Split("\n"+text, "\n```") {
		if i%2 == 0 {
			continue
		}
		for _, line := range readmeLines.FindAllString(block, -1) {
			line, _, _ = strings.Cut(line, "  ")
			most := 0
			for choice := 0; choice <= most; choice++ {
				out = append(out, bracket.ReplaceAllStringFunc(line, func(part string) string {
					lead, inner, _ := strings.Cut(strings.TrimSuffix(part, "]"), "[")
					options := strings.Split(inner, " | ")
					if before, last, found := strings.Cut(inner, "|"); found && len(options) == 1 { // -o mermaid|perfetto
						options = []string{before, before[:strings.LastIndex(before, " ")+1] + last}
					}
					if most = max(most, len(options)); choice == 0 {
						return ""
					}
					return lead + options[min(choice, len(options))-1]
				}))
			}
		}
	}
	return out
}

// checkCommand returns why a command of a page cannot be right: an unknown command, flag, program or path.
func checkCommand(command string) error {
	command, _, _ = strings.Cut(command, "  #")
	for part := range strings.SplitSeq(command, " | ") {
		part, _, _ = strings.Cut(part, " > ")
		args := strings.Fields(strings.NewReplacer("'", "", `"`, "").Replace(part))
		if len(args) > 0 && args[0] == "sudo" {
			args = args[1:]
		}
		switch {
		case len(args) == 0:
			return fmt.Errorf("an empty command")
		case args[0] == "playlet":
			if err := checkPlaylet(args[1:]); err != nil {
				return err
			}
		case !slices.Contains(tools, args[0]):
			return fmt.Errorf("unknown program %s", args[0])
		case args[0] == "go":
			for _, arg := range args {
				if path, ok := strings.CutPrefix(arg, "./"); ok {
					if _, err := os.Stat("../../" + strings.TrimSuffix(path, "/...")); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// checkPlaylet parses arguments as the program does, and runs nothing.
func checkPlaylet(args []string) error {
	cmd, err := parsePlaylet(args)
	if err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// parsePlaylet finds the command of arguments and parses its flags.
func parsePlaylet(args []string) (*cobra.Command, error) {
	cmd, rest, err := newRoot().Find(args)
	if err != nil {
		return nil, err
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return nil, err
	}
	if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 { // the argument may be an unknown command
		return cmd, cmd.ValidateArgs(cmd.Flags().Args())
	}
	return cmd, nil
}

// flagNames returns the flags of all commands.
func flagNames() map[string]bool {
	out := map[string]bool{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) { out["--"+f.Name] = true })
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot())
	return out
}

func TestDocs_CommandsFlagsAndLinksExist(t *testing.T) {
	flags, n := flagNames(), 0
	for name, text := range pages(t) {
		for _, command := range commandsOf(text) {
			n++
			if err := checkCommand(command); err != nil {
				t.Errorf("docs/%s: %q: %v", name, command, err)
			}
		}
		for _, m := range inlineCode.FindAllStringSubmatch(text, -1) {
			if flag := longFlag.FindString(m[1]); flag != "" && !flags[flag] {
				t.Errorf("docs/%s: no command has the flag %s", name, flag)
			}
		}
		for _, m := range mdLink.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(docsDir, m[1])); err != nil {
				t.Errorf("docs/%s: broken link: %v", name, err)
			}
		}
	}
	if n < 20 {
		t.Errorf("%d commands found in docs, want 20 at least", n)
	}
}

func TestReadme_CommandsExist(t *testing.T) {
	for file, least := range map[string]int{"../../README.md": 16, "README.md": 25} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		commands := readmeCommandsOf(string(text))
		for _, command := range commands {
			words := strings.Fields(strings.TrimPrefix(command, "sudo "))
			if _, err := parsePlaylet(words[1:]); err != nil { // some optional parts exclude others
				t.Errorf("%s: %q: %v", file, command, err)
			}
		}
		if len(commands) < least {
			t.Errorf("%s: %d commands found, want %d at least: %q", file, len(commands), least, commands)
		}
	}
	got := readmeCommandsOf("\n```\nplaylet a[/b] [c | d] [-o e|f]  # g\n```\n")
	if _, err := parsePlaylet([]string{"pods", "--nope"}); err == nil {
		t.Error("an unknown flag passes")
	}
	if _, err := parsePlaylet([]string{"bogus"}); err == nil {
		t.Error("an unknown command passes")
	}
	if want := []string{"playlet a", "playlet a/b c -o e", "playlet a/b d -o f"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDocs_CheckFindsErrors(t *testing.T) {
	for _, command := range []string{"playlet pod --nope", "playlet bogus", "playlet logs", "playlet chaos bogus", "frobnicate", "go test ./nowhere"} {
		if checkCommand(command) == nil {
			t.Errorf("%q passes", command)
		}
	}
}

func TestDocs_IndexListsEveryPage(t *testing.T) {
	all := pages(t)
	for name := range all {
		if name != "README.md" && !strings.Contains(all["README.md"], "("+name+")") {
			t.Errorf("docs/README.md has no link to %s", name)
		}
	}
}

// The tables of flags and of routes are generated between marks.
func TestDocs_GeneratedTables(t *testing.T) {
	for name, table := range map[string]string{"configuration.md": flagTable(), "api.md": routeTable()} {
		path := filepath.Join(docsDir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		const begin, end = "<!-- generated: go test -run TestDocs ./cmd/playlet -update -->\n", "<!-- end -->\n"
		before, rest, ok := strings.Cut(string(text), begin)
		_, after, closed := strings.Cut(rest, end)
		if !ok || !closed {
			t.Fatalf("docs/%s lacks the marks %q and %q", name, begin, end)
		}
		want := before + begin + table + end + after
		switch {
		case want == string(text):
		case !*update:
			t.Errorf("docs/%s is out of date: go test -run TestDocs ./cmd/playlet -update", name)
		default:
			if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func flagTable() string {
	var b strings.Builder
	cell := strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ")
	for _, g := range config.AddFlags(pflag.NewFlagSet("", pflag.ContinueOnError)).Help() {
		fmt.Fprintf(&b, "\n### %s\n\n| flag | field | default | |\n| --- | --- | --- | --- |\n", g.Title)
		for _, f := range g.Flags {
			usage := f.Usage
			if !f.InForce && usage != config.NoEffect {
				usage = "**No effect yet.** " + usage
			}
			fmt.Fprintf(&b, "| `--%s` | %s | %s | %s |\n", f.Name, f.Field, cell.Replace(f.Default), cell.Replace(usage))
		}
	}
	return b.String() + "\n"
}

func routeTable() string {
	var b strings.Builder
	b.WriteString("| method | path | |\n| --- | --- | --- |\n")
	for _, r := range admin.Routes() {
		fmt.Fprintf(&b, "| %s | `%s` | %s |\n", r.Method, r.Path, r.Summary)
	}
	return b.String()
}
