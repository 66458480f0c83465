package stall

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// longDeadlines lists the program's deadlines of five minutes or more. Each has the reason that it does not interrupt work that
// would start from zero.
var longDeadlines = map[string]string{
	"actors/internal/hooks/hooks.go Limit":             "a hook runs once",
	"actors/eviction/oom.go killTimeout":               "a wait, which is repeated",
	"actors/images/images.go defaultPullTimeout":       "of a pull without a sign of life; progress puts it off",
	"actors/images/need.go slotLimit":                  "of a slot; the pull goes on without it",
	"actors/logs/actor.go tendTimeout":                 "of an operation; progress puts it off",
	"actors/registration/actor.go watchTimeout":        "of a watch, which goes on where it ended",
	"actors/runtime/actor.go settleTimeout":            "a wait, which is repeated",
	"actors/runtime/events.go waitTimeout":             "a wait, which is repeated",
	"actors/server/nodeapi/nodeapi.go longTimeout":     "of work whose length the client chose; pieces of an answer put it off",
	"actors/shutdown/shutdown.go awaitLimit":           "a wait, which is repeated",
	"actors/volumes/kinds/waiting.go OperationTimeout": "of an operation; progress puts it off",
	"actors/volumes/nfs/mounter.go deadline":           "of a mount, whose repeat loses nothing",
	"actors/volumes/persistence.go driversTimeout":     "a wait, which is repeated",
	"cmd/playlet/agent/runonce.go onceLimit":           "of --runonce, after which the program ends",
}

var deadlineName = regexp.MustCompile(`(?i)(timeout|limit|deadline)$`)

// A deadline of minutes must not lose minutes of work. Each is listed with a reason. The test reads the source tree.
func TestLongDeadlines_AreListed(t *testing.T) {
	root := filepath.Join("..", "..")
	seen := 0
	for _, room := range []string{"actors", "cri", "cni", "cmd", "supervisors"} {
		err := filepath.WalkDir(filepath.Join(root, room), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				spec, is := n.(*ast.ValueSpec)
				if !is {
					return true
				}
				for i, name := range spec.Names {
					if i >= len(spec.Values) || !deadlineName.MatchString(name.Name) || !long(spec.Values[i]) {
						continue
					}
					seen++
					called, _ := filepath.Rel(root, path)
					if key := filepath.ToSlash(called) + " " + name.Name; longDeadlines[key] == "" {
						t.Errorf("%s is a deadline of minutes: list it with the reason that it cuts off no work that begins again from "+
							"zero, or have the work report its progress (package stall)", key)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < len(longDeadlines)/2 {
		t.Errorf("only %d deadlines were found: the test reads the wrong tree", seen)
	}
}

// long reports whether the expression is a duration of five minutes or more. It only recognises literals.
func long(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return e.Sel.Name == "Hour"
	case *ast.BinaryExpr:
		if unit, is := e.Y.(*ast.SelectorExpr); is && unit.Sel.Name == "Minute" && e.Op == token.MUL {
			if number, is := e.X.(*ast.BasicLit); is {
				n, err := strconv.ParseFloat(number.Value, 64)
				return err == nil && n >= 5
			}
		}
		return long(e.X) || long(e.Y)
	}
	return false
}
