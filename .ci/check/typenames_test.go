package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// nounsLikeParticiples are words that end like a participle and are nouns.
var nounsLikeParticiples = []string{
	"feed", "finding", "keyring", "listing", "mapping", "meaning", "need", "ping", "reading", "ring", "warning",
	"pending", // actors/volumes/csi: not renamed yet
}

// irregularParticiples do not end in -ed or -ing.
var irregularParticiples = []string{
	"built", "chosen", "done", "drawn", "found", "gone", "given", "held", "kept", "known", "left", "lost", "made", "seen", "sent",
	"shown", "taken", "told", "written",
}

// TestTypeNames_AreNoParticiples reads all declared types but the messages, which are facts in the past tense.
func TestTypeNames_AreNoParticiples(t *testing.T) {
	root, types, files := os.DirFS("../.."), 0, token.NewFileSet()
	used := map[string]bool{}
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || path == "messages"):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			declared, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			types++
			word := strings.ToLower(declared.Name.Name)
			switch {
			case !isParticiple(declared.Name.Name):
			case slices.Contains(nounsLikeParticiples, word):
				used[word] = true
			default:
				t.Errorf("%s: the type %s is a participle: name it with a noun", files.Position(declared.Pos()), declared.Name.Name)
			}
			return true
		})
		return nil
	})
	if err != nil || types == 0 {
		t.Errorf("read %d types: %v", types, err)
	}
	for _, word := range nounsLikeParticiples {
		if !used[word] {
			t.Errorf("no type is named %s: remove it from the permitted nouns", word)
		}
	}
}

// isParticiple reports whether a name is a single word that ends like a participle. The last word of a longer name may be one:
// the messages of an actor to itself are facts, too.
func isParticiple(name string) bool {
	if strings.IndexFunc(name[1:], unicode.IsUpper) >= 0 {
		return false
	}
	word := strings.ToLower(name)
	return strings.HasSuffix(word, "ed") || strings.HasSuffix(word, "ing") || slices.Contains(irregularParticiples, word)
}

func TestIsParticiple_ReadsSingleWords(t *testing.T) {
	for name, want := range map[string]bool{
		"taking": true, "Followed": true, "Given": true, "killRead": false, "bounded": true, "boundedWriter": false, "podEnded": false,
	} {
		if got := isParticiple(name); got != want {
			t.Errorf("participle %s: got %t, want %t", name, got, want)
		}
	}
}
