package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// recursive are the functions that remove a folder with its content, by any import name. removeFolder is a wrapper shared by
// kinds of volumes. Rmdir counts because it can be part of a recursive removal.
var recursive = []string{"RemoveAll", "RemoveAllOneFilesystem", "removeFolder", "Rmdir"}

// single are the functions that remove one file or empty folder. They count in a function that also lists files.
var (
	single = []string{"Remove", "Unlink"}
	walks  = []string{"Walk", "WalkDir", "ReadDir", "Readdir", "Readdirnames", "Glob", "Names"}
)

// permit is the permitted number of removals in a function or script, and the reason that the content is not user data.
type permit struct {
	calls  int
	reason string
}

// mayRemove are the permitted callers of recursive removal. Any other folder is unmounted, and removed by
// safepath.Root.RemoveEmpty.
var mayRemove = map[string]permit{
	"actors/volumes/kinds/emptydir.go emptyDir.Unmount":          {1, "an emptyDir ends with its pod"},
	"actors/volumes/kinds/content.go content.Unmount":            {1, "configMap, secret, downwardAPI and projected volumes"},
	"actors/volumes/kinds/layout.go removeFolder":                {2, "of the two above alone"},
	"actors/volumes/kinds/write.go contentWrite.replace":         {1, "files that this write began"},
	"actors/volumes/kinds/write.go contentWrite.sweep":           {2, "files that the agent wrote earlier, and its link"},
	"actors/volumes/kinds/remove.go RemovePod":                   {2, "termination logs, and the record of the pod's user IDs"},
	"actors/volumes/kinds/remove.go removeNotes":                 {1, "notes of an agent on the kinds above"},
	"actors/runtime/collector.go removeLogs":                     {1, "logs of a pod"},
	"actors/runtime/oldlogs.go removeLog":                        {1, "one log of a container"},
	"actors/internal/host/remove.go removeLogs":                  {1, "logs of a pod"},
	"cmd/playlet/service/install.go installer.refuses":           {1, "a temporary folder of this call"},
	"cmd/playlet/dev/containerd/folder.go Snapshotter":           {1, "a temporary folder of this call"},
	"cmd/playlet/dev/folder.go folder.remove":                    {5, "the folder that playlet dev made"},
	"cmd/playlet/dev/programs/packages.go unpack":                {3, "programs that playlet dev unpacked"},
	".ci/check/e2e.go artifacts":                                 {1, "results of an earlier run"},
	".ci/package/main.go release":                                {1, "a temporary folder of this call"},
	".ci/package/pack.go pack.make":                              {1, "a temporary folder of this call"},
	"actors/internal/host/hosttest/hosttest.go Simulated":        {1, "a temporary folder of a test"},
	"cmd/playlet/client/fake/agent.go Start":                     {1, "a temporary folder of a test"},
	"actors/internal/linux/safepath/remove.go removal.removeDir": {2, "the one implementation, which crosses no mount"},
	"actors/internal/linux/safepath/empty.go removeEmpty":        {1, "one empty folder"},
	"actors/volumes/kinds/write.go contentWrite.unlinkOld":       {1, "links to files that the agent wrote"},
	"actors/volumes/kept.go cutKept":                             {1, "the hosts file that the agent wrote"},
	"actors/logs/rotate.go log.rotate":                           {1, "rotated logs"},
	"cni/attachments.go Attachments.DropDamaged":                 {1, "libcni's records that are no JSON"},
	"actors/internal/devices/plugin.go Manager.Clear":            {1, "sockets of device plugins"},
	"actors/pods/store.go store.load":                            {1, "the agent's records"},
	"actors/images/pullrecord/records.go prune":                  {1, "the agent's records"},
	"cmd/playlet/dev/namespaces/cgroups.go removeTreeNow":        {1, "cgroups that playlet dev made"},
}

// TestPermittedCallersOfRecursiveRemoval reads the whole tree. It knows no types: any selector or name of a recursive removal
// counts, also one that is passed as a value, so that an alias of the import evades nothing.
func TestPermittedCallersOfRecursiveRemoval(t *testing.T) {
	found := map[string]int{}
	eachSource(t, func(path string, file *ast.File) {
		for caller, calls := range callersOf(file) {
			found[path+" "+caller] += calls
		}
	}, func(path, text string) {
		if calls := len(shell.FindAllString(text, -1)); calls > 0 {
			found[path] = calls
		}
	})
	for caller, calls := range found {
		if permitted := mayRemove[caller].calls; calls != permitted {
			t.Errorf("%s has %d removals of folders with their content, and is permitted to have %d", caller, calls, permitted)
		}
	}
	for caller := range mayRemove {
		if found[caller] == 0 || mayRemove[caller].reason == "" {
			t.Errorf("%s is a permitted caller, and removes nothing or has no reason", caller)
		}
	}
}

// TestRecursiveRemovalIsFound shows the finder each form of a call.
func TestRecursiveRemovalIsFound(t *testing.T) {
	for source, want := range map[string]string{
		`import o "os"; func (a *actor) f() { o.RemoveAll("x") }`:                               "actor.f 1",
		`import . "os"; func f() { RemoveAll("x") }`:                                            "f 1",
		`import "os"; var remove = os.RemoveAll`:                                                "package 1",
		`func f(r interface{ RemoveAll(string) error }) { g := r.RemoveAll; g("x") }`:           "f 1",
		`import "os"; func f() { os.RemoveAll("x"); os.RemoveAll("y") }`:                        "f 2",
		`import "os/exec"; func f() { exec.Command("rm", "-rf", "x") }`:                         "f 1",
		"const script = `\nrm -r -f /etc/x`":                                                    "package 1",
		"const script = `rm --recursive --force /etc/x`":                                        "package 1",
		"const script = `/bin/rm -f -r /etc/x`":                                                 "package 1",
		`import "os/exec"; func f() { exec.Command("sh", "-c", "cd x; /bin/rm -rf y") }`:        "f 1",
		`import "os/exec"; func f() { exec.Command("find", "x", "-delete") }`:                   "f 1",
		"const script = `find /x -type f -delete`":                                              "package 1",
		`import "golang.org/x/sys/unix"; func f() { unix.Unlinkat(1, "x", unix.AT_REMOVEDIR) }`: "f 1",
		`import "golang.org/x/sys/unix"; func f() { unix.Unlinkat(1, "x", 0x200) }`:             "f 1",
		`import "golang.org/x/sys/unix"; func f(n int) { unix.Unlinkat(1, "x", n) }`:            "f 1",
		`import "golang.org/x/sys/unix"; func f() { unix.Unlinkat(1, "x", 0) }`:                 "",
		`import "golang.org/x/sys/unix"; var remove = unix.Unlinkat`:                            "package 1",
		`import "golang.org/x/sys/unix"; func f() { unix.Rmdir("x") }`:                          "f 1",
		`func f(r *safepath.Root) { r.Rmdir("x"); r.Unlink("y") }`:                              "f 1",
		`func f(r *safepath.Root) { names, _ := r.Names("x"); r.Unlink(names[0]) }`:             "f 1",
		`import "os"; func f() { os.Remove("x") }`:                                              "",
		`import "path/filepath"; func f() { filepath.WalkDir("x", func(p string, _ os.DirEntry, _ error) error {
			return os.Remove(p)
		}) }`: "f 1",
		`import "path/filepath"; func f() { names, _ := filepath.Glob("x"); h.remove(names) }`:    "",
		"const help = `playlet rm removes a pod, --rm at its end, and --delete-data its volumes`": "",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for caller, calls := range callersOf(file) {
			got = append(got, fmt.Sprint(caller, " ", calls))
		}
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("in %s the callers are %q, want %q", source, got, want)
		}
	}
}

// shell is the removal of folders by a shell or its programs.
var shell = regexp.MustCompile(`(?m)(^|[^\w-])rm\s+(-\S+\s+)*(-\w*[rR]|--recursive)|^(/\w+)*/?rm$|(^|\s)-delete(\s|$)`)

// callersOf counts the recursive removals in a file by function.
func callersOf(file *ast.File) map[string]int {
	out := map[string]int{}
	for _, decl := range file.Decls {
		name := "package"
		if f, ok := decl.(*ast.FuncDecl); ok {
			name = f.Name.Name
			if f.Recv != nil {
				name = fmt.Sprint(receiver(f.Recv.List[0].Type), ".", name)
			}
		}
		if calls := removalsIn(decl); calls > 0 {
			out[name] += calls
		}
	}
	return out
}

// removalsIn counts the names of removing functions, called or passed as values, and the commands of a shell.
func removalsIn(decl ast.Decl) (calls int) {
	singles, lists := 0, false
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.InterfaceType: // declares, and calls nothing
			return false
		case *ast.CallExpr:
			if removesFile(n) {
				calls-- // its name is counted below
				singles++
			}
		case *ast.Ident:
			switch {
			case declares(decl, n):
			case slices.Contains(recursive, n.Name), n.Name == "Unlinkat":
				calls++
			case slices.Contains(single, n.Name):
				singles++
			case slices.Contains(walks, n.Name):
				lists = true
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				calls += len(shell.FindAllString(strings.Trim(n.Value, "\"`"), -1))
			}
		}
		return true
	})
	if lists {
		calls += singles
	}
	return calls
}

// removesFile reports whether a call is unlinkat(2) without flags, which removes no folder.
func removesFile(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "Unlinkat" || len(call.Args) != 3 {
		return false
	}
	flags, ok := call.Args[2].(*ast.BasicLit)
	return ok && flags.Value == "0"
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

// eachSource parses each Go file of the product and reads its other texts, e.g. scripts. Tests are left out.
func eachSource(t *testing.T, code func(path string, file *ast.File), other func(path, text string)) {
	t.Helper()
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"e2e", ".git", "bin", "testdata"}, d.Name()): // tests, and no text
			return fs.SkipDir
		case d.IsDir() || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".md"):
			return nil
		}
		text, err := fs.ReadFile(root, path)
		if err != nil || !strings.HasSuffix(path, ".go") {
			if utf8.Valid(text) {
				other(path, string(text))
			}
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err == nil {
			code(path, file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
