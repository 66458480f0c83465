package main

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "lower the recorded shares to today's")

// TestRecordedShares_Update lowers the recorded limits with -update. The lint step compares them.
func TestRecordedShares_Update(t *testing.T) {
	if !*update {
		t.Skip("runs with -update only; the lint step compares the shares")
	}
	rooms, err := countComments("../..")
	if err != nil {
		t.Fatal(err)
	}
	var recorded map[string]int
	path := filepath.Join("../..", sharesFile)
	if text, err := os.ReadFile(path); err == nil {
		if recorded, err = parseShares(string(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, []byte(formatShares(rooms, recorded)), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCountComments_PerRoom(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"cri/a.go": "// Package cri says nothing new.\npackage cri\n\n//go:generate says who said it\n\n// what now\n\n" +
			"/* two plain words here\n   and somebody too */\nvar s = \"who said that\" // trailing words are WANTED\n",
		"actors/pod/inner/a_test.go":     "package inner\n\n// whatever whoever somebodys\n",
		"actors/internal/linux/linux.go": "package linux\n\n// first that of the others\n",
		"cri/notes.txt":                  "// who said what",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := countComments(dir)
	want := map[string]commentCount{"cri": {4, 3}, "actors/pod": {1, 0}, "actors/internal/linux": {1, 1}}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("countComments: got %v, %v; want %v", got, err, want)
	}
}

func TestCompareShares_FailsWhenARoomGetsWorse(t *testing.T) {
	const lower = "cri: lower its limit in .ci/check/english.txt to "
	for _, test := range []struct {
		name           string
		count          commentCount
		limit          int
		problem, lower string
	}{
		{"at its limit", commentCount{100, 40}, 40, "", ""},
		{"worse", commentCount{100, 41}, 40, "cri: 41.0 % of the comment lines match the list, the limit is 40 %", ""},
		{"better", commentCount{100, 20}, 40, "", lower + "20 %"},
		{"finished", commentCount{100, 3}, 0, "", ""},
		{"finished, still recorded", commentCount{100, 2}, 4, "", lower + "3 %"},
		{"worse than finished", commentCount{100, 4}, 0, "cri: 4.0 % of the comment lines match the list, the limit is 3 %", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			limits := map[string]int{}
			if test.limit > 0 {
				limits["cri"] = test.limit
			}
			problems, notes := compareShares(map[string]commentCount{"cri": test.count}, limits)
			if got := strings.Join(problems, "\n"); got != test.problem {
				t.Errorf("problems: got %q, want %q", got, test.problem)
			}
			if got := strings.Join(notes, "\n"); got != test.lower {
				t.Errorf("notes: got %q, want %q", got, test.lower)
			}
		})
	}
	if problems, _ := compareShares(nil, map[string]int{"cri": 9}); len(problems) != 1 {
		t.Errorf("limit of a missing room: got %q, want one problem", problems)
	}
}

func TestFormatShares_NeverRaisesALimit(t *testing.T) {
	rooms := map[string]commentCount{"a": {100, 50}, "b": {100, 10}, "c": {100, 3}, "d": {100, 30}}
	const want = "a 40\nb 10\n"
	if got := formatShares(rooms, map[string]int{"a": 40, "b": 20, "c": 30}); got != want {
		t.Errorf("formatShares: got %q, want %q", got, want)
	}
}
