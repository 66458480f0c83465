package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	featuregates "github.com/playlet-dev/playlet/config/gates"
)

// A gate that the program names is obeyed, and one that is obeyed is not warned of as without effect. The test reads the tree.
func TestEffectiveGates_AreThoseOfTheProgram(t *testing.T) {
	// Names of groups of gates.
	notGates := map[string]bool{featuregates.AllAlpha: true, featuregates.AllBeta: true}
	found := map[string]string{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (path == filepath.Join("..", "e2e") || path == filepath.Join("..", "config", "gates")):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || entry.Name() == "effects.go":
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				name, _ := strconv.Unquote(literal.Value)
				if _, known := featuregates.Known()[name]; known && !notGates[name] {
					found[name] = path
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range found {
		if !effectiveGates[name] {
			t.Errorf("%s names the gate %s, which is not in effectiveGates", path, name)
		}
	}
	for name := range effectiveGates {
		if found[name] == "" {
			t.Errorf("effectiveGates has %s, which the program names nowhere", name)
		}
	}
}
