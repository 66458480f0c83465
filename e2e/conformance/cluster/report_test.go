package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/conformance/suite"
)

func TestReport_NamesAPartialRun(t *testing.T) {
	was := known
	t.Cleanup(func() { known = was })
	known = []suite.Exclusion{{`never runs`, "no such image"}}
	spec := func(name string) suite.Spec { return suite.Spec{Name: name} }
	r := report{
		Options: suite.Options{Out: t.TempDir()},
		Results: suite.Results{
			Passed: []suite.Spec{spec("[sig-node] a [Conformance]")},
			Failed: []suite.Spec{{Name: "[sig-apps] b | [Conformance]", Why: "expected <int> 1"}},
		},
		All: []string{"[sig-node] a [Conformance]", "[sig-apps] b | [Conformance]", "[sig-node] never runs [Conformance]"},
	}
	table := filepath.Join(t.TempDir(), "docs", "table.md")
	read := func() string {
		t.Helper()
		if err := r.write(table); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const partial = "**This run is partial**: 2 of 4 specs did not run."
	text := read()
	for _, want := range []string{
		"| sig-apps | 0 | 1 | 0 | 0 |", "| sig-node | 1 | 0 | 1 | 0 |", `| [sig-apps] b \| [Conformance] | expected &lt;int> 1 |`,
		"| [sig-node] never runs [Conformance] | no such image |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "partial") {
		t.Errorf("a whole run is called partial:\n%s", text)
	}
	r.All = append(r.All, "[sig-node] was cut off [Conformance]")
	if text = read(); !strings.Contains(text, partial) || !strings.Contains(text, "| sig-node | 1 | 0 | 1 | 1 |") {
		t.Errorf("a partial run is not named:\n%s", text)
	}
	for _, name := range []string{"PRODUCT.yaml", "README.md"} {
		if _, err := os.Stat(filepath.Join(r.Out, name)); err != nil {
			t.Error(err)
		}
	}
}
