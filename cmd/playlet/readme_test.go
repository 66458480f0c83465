package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/config"
)

var update = flag.Bool("update", false, "rewrite what README.md and cmd/playlet/README.md say is missing")

// missingPhrase is one phrase of the column "not yet". It stands there while the code's tables have one of its settings or fields
// as refused or without effect, or none of its gates as obeyed; without any of these, a person keeps it true.
type missingPhrase struct {
	area, phrase string
	detail       string   // the phrase of the detailed table, where it is another
	onlyDetail   bool     // it is in the detailed table alone
	fields       []string // of a pod's spec
	settings     []string // of the configuration
	gates        []string
}

var missings = []missingPhrase{
	{area: "volumes", phrase: "fc", fields: []string{"volumes[].fc"}},
	{area: "volumes", phrase: "block devices of iscsi"},
	{area: "volumes", phrase: "SELinux mount options", gates: []string{"SELinuxMount"}},
	{area: "volumes", phrase: "certificates of pods", onlyDetail: true,
		fields: []string{"volumes[].projected.sources[].podCertificate"}},
	{area: "volumes", phrase: "attaching without the attach/detach controller", onlyDetail: true},
	{area: "API", phrase: "of cAdvisor: process lists, summaries, `/spec` and `/storage` of v2.1",
		detail: "of cAdvisor's API: process lists, summaries, `/spec` and `/storage` of v2.1, which its Go clients do not ask for"},
}

func (m missingPhrase) still(t *testing.T) bool {
	t.Helper()
	obeyed := config.EffectiveGates()
	in := func(names, table []string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(table, n) })
	}
	none := len(m.fields)+len(m.settings)+len(m.gates) == 0
	still := none || in(m.fields, base.RefusedFields()) || in(m.settings, config.Pending()) || len(m.gates) > 0 && !in(m.gates, obeyed)
	if !still {
		t.Logf("%q is there now: take its row out of missings, and say so in the column before", m.phrase)
	}
	return still
}

// The column "not yet" of both tables, and the lists below the detailed one, are made of the tables in the code.
func TestReadme_SaysWhatIsMissing(t *testing.T) {
	for file, detailed := range map[string]bool{"../../README.md": false, "README.md": true} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := withColumn(t, string(text), detailed)
		if detailed {
			want = withLists(t, want)
		}
		if want == string(text) {
			continue
		}
		if !*update {
			t.Errorf("%s does not say what the code's tables say is missing: go test -run TestReadme ./cmd/playlet -update", file)
			continue
		}
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// withColumn has the last column of the table "not yet" made again.
func withColumn(t *testing.T, text string, detailed bool) string {
	t.Helper()
	cells := map[string][]string{}
	for _, m := range missings {
		phrase := m.phrase
		if detailed && m.detail != "" {
			phrase = m.detail
		}
		if m.still(t) && (detailed || !m.onlyDetail) {
			cells[m.area] = append(cells[m.area], phrase)
		}
	}
	var out []string
	in := false
	for _, line := range strings.Split(text, "\n") {
		row := strings.Split(line, " | ")
		switch {
		case strings.HasPrefix(line, "| area | there | not yet |"):
			in = true
		case in && !strings.HasPrefix(line, "|"):
			in = false
		case in && len(row) >= 3 && !strings.HasPrefix(line, "| ---"):
			area := strings.TrimPrefix(row[0], "| ")
			cell := strings.Join(cells[area], ", ") + " |"
			delete(cells, area)
			line = strings.Join(append(row[:2], strings.TrimLeft(cell, " ")), " | ")
		}
		out = append(out, line)
	}
	if len(cells) > 0 {
		t.Errorf("the table has no rows for %v", cells)
	}
	return strings.Join(out, "\n")
}

const begin, end = "<!-- made by go test -run TestReadme ./cmd/playlet -update -->\n", "<!-- end -->\n"

// withLists has the lists between the marks made again.
func withLists(t *testing.T, text string) string {
	t.Helper()
	before, rest, ok := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("README.md lacks the marks %q and %q", begin, end)
	}
	var list strings.Builder
	for _, l := range []struct {
		title string
		names []string
	}{
		{"Fields of a pod's spec that are refused (those of containers also of init containers and ephemeral ones)", base.RefusedFields()},
		{"Settings that are read and have no effect yet, which a warning says at the start", config.Pending()},
		{"Feature gates that are obeyed, on and off; a warning names any other that is changed", config.EffectiveGates()},
	} {
		fmt.Fprintf(&list, "- %s: `%s`.\n", l.title, strings.Join(l.names, "`, `"))
	}
	return before + begin + list.String() + end + after
}
