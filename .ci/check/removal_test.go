package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// recursive are the functions that remove a folder with its content, by any import name. removeFolder is a wrapper that kinds of
// volume share.
var recursive = []string{"RemoveAll", "RemoveAllOneFilesystem", "removeFolder"}

// mayRemove are the permitted callers of recursive removal, each with the reason for which the content is no user's. Any other
// folder is unmounted and removed by safepath.Root.RemoveEmpty.
var mayRemove = map[string]string{
	"actors/volumes/kinds/emptydir.go emptyDir.Unmount":          "an emptyDir ends with its pod",
	"actors/volumes/kinds/content.go content.Unmount":            "files that the agent wrote: configMap, secret, downwardAPI, projected",
	"actors/volumes/kinds/layout.go removeFolder":                "of the two above alone",
	"actors/volumes/kinds/write.go writing.replace":              "files that this write began",
	"actors/volumes/kinds/write.go writing.sweep":                "files that the agent wrote earlier",
	"actors/volumes/kinds/remove.go RemovePod":                   "termination logs",
	"actors/volumes/kinds/remove.go removeNotes":                 "notes of an agent on the kinds above",
	"actors/runtime/collector.go removeLogs":                     "logs of a pod",
	"actors/runtime/oldlogs.go removeLog":                        "one log of a container",
	"actors/internal/host/remove.go removeLogs":                  "logs of a pod",
	"cmd/playlet/service/install.go installer.refuses":           "a temporary folder of this call",
	"cmd/playlet/dev/containerd/folder.go Snapshotter":           "a temporary folder of this call",
	"cmd/playlet/dev/folder.go folder.remove":                    "the folder that playlet dev made",
	"cmd/playlet/dev/programs/packages.go unpack":                "programs that playlet dev unpacked",
	".ci/check/e2e.go artifacts":                                 "results of an earlier run",
	".ci/package/main.go release":                                "a temporary folder of this call",
	".ci/package/pack.go pack.make":                              "a temporary folder of this call",
	"actors/internal/host/hosttest/hosttest.go Simulated":        "a temporary folder of a test",
	"cmd/playlet/client/fake/agent.go Start":                     "a temporary folder of a test",
	"actors/internal/linux/safepath/remove.go removal.removeDir": "the one implementation, which crosses no mount",
	"actors/internal/linux/safepath/empty.go removeEmpty":        "one empty folder",
	"actors/internal/linux/safepath/links.go Root.Rmdir":         "one empty folder",
}

// TestPermittedCallersOfRecursiveRemoval reads the whole tree. It knows no types: any selector or name of a recursive removal
// counts, also one that is passed as a value, so that an alias of the import evades nothing.
func TestPermittedCallersOfRecursiveRemoval(t *testing.T) {
	found := map[string]bool{}
	eachSource(t, func(path string, file *ast.File) {
		for caller := range callersOf(file) {
			found[path+" "+caller] = true
		}
	})
	for caller := range found {
		if mayRemove[caller] == "" {
			t.Errorf("%s removes folders with their content and is not among the permitted callers", caller)
		}
	}
	for caller := range mayRemove {
		if !found[caller] {
			t.Errorf("%s is a permitted caller and removes nothing", caller)
		}
	}
}

// TestRecursiveRemovalIsFound shows the finder each form of a call.
func TestRecursiveRemovalIsFound(t *testing.T) {
	for source, want := range map[string]string{
		`import o "os"; func (a *actor) f() { o.RemoveAll("x") }`:                               "actor.f",
		`import . "os"; func f() { RemoveAll("x") }`:                                            "f",
		`import "os"; var remove = os.RemoveAll`:                                                "package",
		`func f(r interface{ RemoveAll(string) error }) { g := r.RemoveAll; g("x") }`:           "f",
		`import "os/exec"; func f() { exec.Command("rm", "-rf", "x") }`:                         "f",
		"const script = `\nrm -r -f /etc/x`":                                                    "package",
		`import "golang.org/x/sys/unix"; func f() { unix.Unlinkat(1, "x", unix.AT_REMOVEDIR) }`: "f",
		`import "os"; func f() { os.Remove("x") }`:                                              "",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+source, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(slices.Collect(maps.Keys(callersOf(file))), " "); got != want {
			t.Errorf("in %s the callers are %q, want %q", source, got, want)
		}
	}
}

// shell is the removal of folders by a shell or its program.
var shell = regexp.MustCompile(`(^|[^\w/-])rm\s+(-\w+\s+)*-\w*[rR]|^(/\w+)*/?rm$`)

// callersOf returns the functions of a file that remove recursively, or remove folders by the system call itself.
func callersOf(file *ast.File) map[string]bool {
	out := map[string]bool{}
	for _, decl := range file.Decls {
		name := "package"
		if f, ok := decl.(*ast.FuncDecl); ok {
			name = f.Name.Name
			if f.Recv != nil {
				name = fmt.Sprint(receiver(f.Recv.List[0].Type), ".", name)
			}
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.InterfaceType: // declares, and calls nothing
				return false
			case *ast.Ident:
				if slices.Contains(recursive, n.Name) && !declares(decl, n) || n.Name == "AT_REMOVEDIR" {
					out[name] = true
				}
			case *ast.BasicLit:
				if n.Kind == token.STRING && shell.MatchString(strings.Trim(n.Value, "\"`")) {
					out[name] = true
				}
			}
			return true
		})
	}
	return out
}

func declares(decl ast.Decl, name *ast.Ident) bool {
	f, ok := decl.(*ast.FuncDecl)
	return ok && f.Name == name
}

func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	}
	return "?"
}

// eachSource parses each Go file of the product, tests and tools left out.
func eachSource(t *testing.T, do func(path string, file *ast.File)) {
	t.Helper()
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "e2e" || path == ".git"): // tests run in folders of their own
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../..", path), nil, parser.SkipObjectResolution)
		if err == nil {
			do(path, file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
