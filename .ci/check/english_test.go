package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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

func TestOverLimit(t *testing.T) {
	for _, test := range []struct {
		name  string
		count commentCount
		want  []string
	}{
		{"no comments", commentCount{}, nil},
		{"at the limit", commentCount{100, 3}, nil},
		{"above the limit", commentCount{100, 4}, []string{"cri: 4 of 100 comment lines (4.0 %) match the list, the limit is 3 %"}},
		{"above by less than one line in a hundred", commentCount{1000, 31},
			[]string{"cri: 31 of 1000 comment lines (3.1 %) match the list, the limit is 3 %"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := overLimit(map[string]commentCount{"cri": test.count}); !slices.Equal(got, test.want) {
				t.Errorf("problems: got %q, want %q", got, test.want)
			}
		})
	}
}

// TestPlainEnglish_FailsAboveTheLimit runs the step on a tree with one room below and one above the limit.
func TestPlainEnglish_FailsAboveTheLimit(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(room, comment string) {
		t.Helper()
		if err := os.MkdirAll(room, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(room, "a.go"), []byte("// "+comment+"\npackage a\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("cri", "Package a holds plain words.")
	var out strings.Builder
	if _, err := plainEnglish(t.Context(), &out); err != nil {
		t.Fatalf("plain comments: got %v, want no error", err)
	}
	write("cni", "Package a says nothing.")
	_, err := plainEnglish(t.Context(), &out)
	if err == nil || !strings.Contains(err.Error(), "cni: 1 of 1 ") || strings.Contains(err.Error(), "cri") {
		t.Errorf("a listed comment in cni: got %v, want an error about cni only", err)
	}
}
