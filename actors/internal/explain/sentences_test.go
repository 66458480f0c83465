package explain

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// readers are the files that look for words in texts of failures, each with the foreign component that writes the text. A failure
// of our own has a messages.Cause, and nothing reads its sentence.
var readers = map[string]string{
	"actors/internal/manifest/strict.go":        "the YAML decoder",
	"actors/internal/manifest/syntax.go":        "the YAML decoder",
	"actors/status/state.go":                    "the API server",
	"cmd/playlet/client/chaos/experiment.go":    "the YAML decoder",
	"cmd/playlet/client/pods/describe.go":       "the Events of probes, whose words are Kubernetes' interface",
	"cmd/playlet/client/streams/portforward.go": "client-go",
	"config/configfile/decode.go":               "the YAML decoder",
	"cri/facts/container.go":                    "the runtime",
	"cri/runtime.go":                            "the runtime",
	"supervisors/trace/transcript.go":           "no failure: it is the name of a message",
}

var matchers = []string{"Contains", "ContainsAny", "HasPrefix", "HasSuffix", "Cut", "CutPrefix", "CutSuffix", "TrimPrefix", "TrimSuffix",
	"Index", "EqualFold", "MatchString", "FindStringSubmatch"}

// fields of structs that hold the text of a failure or of its reason.
var fields = []string{"Message", "Reason", "Explained", "HookFailed", "StopFailed"}

// isFailure reports whether an expression is the text of an error or of a reason, a sentence of explain, or a variable that
// holds one.
func isFailure(e ast.Expr, texts map[string]bool) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return texts[e.Name]
	case *ast.CallExpr: // err.Error(), cri.Message(err), explain.Waits(…)
		f, ok := e.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		switch of, _ := f.X.(*ast.Ident); {
		case of != nil && of.Name == "explain":
			return true
		case of != nil && of.Name == "strings": // strings.ToLower(err.Error())
			return slices.ContainsFunc(e.Args, func(a ast.Expr) bool { return isFailure(a, texts) })
		}
		return f.Sel.Name == "Error" && len(e.Args) == 0 || f.Sel.Name == "Message" && len(e.Args) == 1
	case *ast.BinaryExpr: // r.Reason + ": " + r.Message
		return e.Op == token.ADD && (isFailure(e.X, texts) || isFailure(e.Y, texts))
	case *ast.SelectorExpr: // r.Message, r.Cause.Text
		of, ok := e.X.(*ast.SelectorExpr)
		return slices.Contains(fields, e.Sel.Name) || ok && of.Sel.Name == "Cause" && e.Sel.Name == "Text"
	}
	return false
}

// No file outside readers looks for words in the text of an error or a reason.
func TestNothingReadsSentences(t *testing.T) {
	const root = "../../.."
	used := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		switch {
		case d.IsDir() && (name == "e2e" || strings.HasPrefix(d.Name(), ".") && name != "." || d.Name() == "testdata"):
			return fs.SkipDir
		case filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			texts := map[string]bool{} // variables of the function that hold such a text
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					for i, of := range n.Rhs {
						if to, ok := n.Lhs[min(i, len(n.Lhs)-1)].(*ast.Ident); ok && isFailure(of, nil) {
							texts[to.Name] = true
						}
					}
				case *ast.CallExpr:
					f, ok := n.Fun.(*ast.SelectorExpr)
					if !ok || len(n.Args) == 0 || !slices.Contains(matchers, f.Sel.Name) || !isFailure(n.Args[0], texts) {
						break
					}
					_, joined := n.Args[0].(*ast.BinaryExpr)
					words, ok := n.Args[len(n.Args)-1].(*ast.BasicLit)
					if ok && joined && !strings.ContainsFunc(words.Value, unicode.IsLetter) {
						break // it takes a separator off that it has put there
					}
					if used[name] = true; readers[name] == "" {
						t.Errorf("%s: %s of the text of a failure: give the failure a messages.Cause", files.Position(n.Pos()), f.Sel.Name)
					}
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(readers)) {
		if !used[name] {
			t.Errorf("%s reads no sentence any more", name)
		}
	}
}

// This package matches no words: it imports no regexp, and it looks for no literal in a text.
func TestExplainMatchesNoWords(t *testing.T) {
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			if i.Path.Value == `"regexp"` {
				t.Errorf("%s imports regexp", path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains(matchers, f.Sel.Name) {
				return true
			}
			if words, ok := call.Args[1].(*ast.BasicLit); ok && words.Kind == token.STRING {
				if text, _ := strconv.Unquote(words.Value); strings.ContainsFunc(text, func(r rune) bool { return r >= 'A' }) {
					t.Errorf("%s looks for %q", files.Position(call.Pos()), text)
				}
			}
			return true
		})
	}
}
