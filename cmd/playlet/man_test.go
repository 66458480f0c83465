package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Every command that is shown has a page, with its options and examples; the root's has all flags.
func TestManualHasEveryCommand(t *testing.T) {
	dir := t.TempDir()
	if out, problems, code := playlet(t, "man", dir); code != 0 || out+problems != "" {
		t.Fatal(code, out, problems)
	}
	for page, wants := range map[string][]string{
		"playlet":            {".SH NAME\nplaylet \\- A Kubernetes", "\\-\\-pod\\-manifest\\-path=PATH  [staticPodPath]", ".BR playlet\\-run (1)"},
		"playlet-run":        {".B \\-f, \\-\\-filename=FILE\n", ".SH EXAMPLES\n.nf\n  # Run the pods of a manifest", ".BR playlet (1)"},
		"playlet-logs":       {".TH \"PLAYLET-LOGS\" 1 "},
		"playlet-chaos-kill": {".BR playlet\\-chaos (1)"},
	} {
		text, err := os.ReadFile(filepath.Join(dir, page+".1"))
		for _, want := range wants {
			if err != nil || !strings.Contains(string(text), want) {
				t.Errorf("%s: %q is not in it (%v):\n%s", page, want, err, text)
			}
		}
	}
	for _, c := range newRoot().Commands() {
		if _, err := os.Stat(filepath.Join(dir, "playlet-"+c.Name()+".1")); (err == nil) != c.IsAvailableCommand() {
			t.Errorf("%s: %v", c.Name(), err)
		}
	}
}

// A placeholder of a flag is a word for its value, and no example of it: the manual has it in capitals.
func TestPlaceholdersAreNoExamples(t *testing.T) {
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if value, _ := pflag.UnquoteUsage(f); strings.ContainsAny(value, ",!") {
				t.Errorf("%s --%s has the placeholder %q", c.CommandPath(), f.Name, value)
			}
		})
		for _, sub := range c.Commands() {
			check(sub)
		}
	}
	check(newRoot())
	dir := t.TempDir()
	if _, problems, code := playlet(t, "man", dir); code != 0 {
		t.Fatal(problems)
	}
	text, err := os.ReadFile(filepath.Join(dir, "playlet-pods.1"))
	if want := ".B \\-l, \\-\\-selector=SELECTOR\n"; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("%v, %q is not in\n%s", err, want, text)
	}
}

// A line of a text that begins with a dot is no request.
func TestManualEscapes(t *testing.T) {
	if got := roff(".x\n'y\\ a-b"); got != "\\&.x\n\\&'y\\e a\\-b" {
		t.Errorf("%q", got)
	}
}
