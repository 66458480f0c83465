package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestPartOf_FirstPartTakesTheSpec(t *testing.T) {
	for _, c := range []struct {
		spec spec
		part string
	}{
		{spec{"[sig-node] Eviction [Serial]", "k8s.io/kubernetes@v1/test/e2e_node/eviction_test.go"}, "eviction"},
		{spec{"[sig-node] Eviction [NodeConformance]", "k8s.io/kubernetes@v1/test/e2e_node/eviction_test.go"}, "conformance"},
		{spec{"[sig-node] Restart [Serial]", "k8s.io/kubernetes@v1/test/e2e_node/restart_test.go"}, "restart"},
		{spec{"[sig-node] Container Restart", "k8s.io/kubernetes@v1/test/e2e_node/container_restart_test.go"}, "criproxy"},
		{spec{"[sig-node] Unforeseen", "k8s.io/kubernetes@v1/test/e2e_node/unforeseen_test.go"}, "features"},
	} {
		if got := partOf(c.spec); got != c.part {
			t.Errorf("%s of %s is in part %s, want %s", c.spec.name, c.spec.file, got, c.part)
		}
	}
}

func TestExactly_MatchesWholeNames(t *testing.T) {
	re := regexp.MustCompile(exactly([]string{"[sig-node] One (a)", "[sig-node] Two"}))
	for name, want := range map[string]bool{
		"E2eNode Suite [sig-node] One (a)": true, "E2eNode Suite [sig-node] Two": true, "E2eNode Suite [sig-node] Two more": false,
	} {
		if re.MatchString(name) != want {
			t.Errorf("%q: match %v, want %v", name, !want, want)
		}
	}
}

func TestTable_KeepsRowsOfEarlierRuns(t *testing.T) {
	rows := map[string]row{
		"[sig-node] a|b": {"[sig-node] a|b", "failed", "passed", "2026-01-02 abc", "got 1 | 2"},
		"[sig-node] c":   {"[sig-node] c", "passed", "", "2026-01-03 def", ""},
	}
	names := []string{"[sig-node] a|b", "[sig-node] c", "[sig-node] d"}
	text := markdown(part{name: "some"}, names, rows)
	if !strings.Contains(text, "Of 3 specs 1 passed, 1 failed, 0 skipped themselves, 1 did not run.") {
		t.Errorf("the table has wrong counts:\n%s", text)
	}
	path := filepath.Join(t.TempDir(), "some.md")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readTable(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(rows) {
		t.Errorf("the table has %d rows of runs, want %d", len(got), len(rows))
	}
	for name, want := range rows {
		if got[name] != want {
			t.Errorf("row %q was read as %+v, want %+v", name, got[name], want)
		}
	}
}
