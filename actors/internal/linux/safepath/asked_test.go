package safepath

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// asking are the calls that may reach the server of a file system, or cross mounts on a path.
var asking = map[string]bool{
	"os.Stat": true, "os.Lstat": true, "os.Open": true, "os.OpenFile": true, "os.OpenRoot": true, "os.ReadDir": true,
	"os.ReadFile": true, "os.MkdirAll": true, "os.RemoveAll": true, "os.Chown": true, "os.Chmod": true,
	"filepath.EvalSymlinks": true, "filepath.Walk": true, "filepath.WalkDir": true, "filepath.Glob": true,
	"unix.Stat": true, "unix.Lstat": true, "unix.Statx": true, "unix.Statfs": true, "unix.Fstat": true, "unix.Fstatat": true,
	"unix.Fstatfs": true, "unix.Open": true, "unix.Openat": true, "unix.Openat2": true,
}

const (
	own         = "of the agent's own folders"
	ofOpenISCSI = "of the host's open-iscsi"
)

// asked lists the calls outside Bounded in the rooms that handle volumes, with the reason why each reaches no server of others,
// or blocks only its own pod.
var asked = map[string]string{
	"actors/container/mounts.go os.Chmod":                           own,
	"actors/container/mounts.go os.MkdirAll":                        own,
	"actors/container/mounts.go os.Open":                            own,
	"actors/container/mounts.go os.OpenFile":                        own,
	"actors/container/poststart.go os.MkdirAll":                     own,
	"actors/internal/linux/safepath/empty.go unix.Statx":            "with AT_STATX_DONT_SYNC",
	"actors/internal/pluginwatch/watcher.go filepath.WalkDir":       own,
	"actors/internal/pluginwatch/watcher.go os.MkdirAll":            own,
	"actors/internal/pluginwatch/watcher.go unix.Lstat":             own,
	"actors/volumes/leftover/leftover.go filepath.EvalSymlinks":     own,
	"actors/volumes/leftover/leftover.go os.Lstat":                  "a device that a kubelet bound, of no file server",
	"actors/internal/linux/safepath/follow.go os.OpenFile":          "a descriptor that crossed no mount",
	"actors/internal/linux/safepath/mount.go unix.Fstatfs":          "FileSystem, for mounts of the agent",
	"actors/internal/linux/safepath/remove.go unix.Statx":           "with AT_STATX_DONT_SYNC",
	"actors/internal/linux/safepath/root.go unix.Fstat":             "a folder that was made just now",
	"actors/internal/linux/safepath/root.go unix.Openat2":           "the callers of this package are listed by room",
	"actors/volumes/persistent/csi.go os.MkdirAll":                  own,
	"actors/volumes/persistent/filesystem.go os.MkdirAll":           own,
	"actors/volumes/persistent/filesystem.go os.Open":               "a device, in an operation of its own volume that others do not wait for",
	"actors/volumes/csi/drivers.go os.Lstat":                        own,
	"actors/volumes/persistent/block.go os.Lstat":                   own,
	"actors/volumes/kinds/fsgroup.go os.OpenRoot":                   "within the walk that OwnVolume bounds",
	"actors/volumes/kinds/layout.go os.MkdirAll":                    own,
	"actors/volumes/kinds/memory.go unix.Fstatfs":                   "a tmpfs",
	"actors/volumes/kinds/mounts.go filepath.EvalSymlinks":          own,
	"actors/volumes/persistent/lost.go filepath.EvalSymlinks":       own,
	"actors/volumes/served.go filepath.EvalSymlinks":                own,
	"actors/volumes/persistent/references.go filepath.EvalSymlinks": own,
	"actors/volumes/persistent/references.go os.ReadFile":           "a file of /proc",
	"actors/volumes/blockmap/loop.go filepath.Glob":                 "folders of /sys",
	"actors/volumes/blockmap/loop.go os.ReadFile":                   "a file of /sys",
	"actors/volumes/blockmap/loop.go filepath.EvalSymlinks":         own,
	"actors/volumes/blockmap/loop.go os.OpenFile":                   "a device in /dev, or one in a folder of the agent",
	"actors/volumes/blockmap/map.go os.ReadFile":                    "a file of /sys",
	"actors/volumes/blockmap/map.go os.Stat":                        "a folder of /sys",
	"actors/volumes/blockmap/map.go unix.Statx":                     "with AT_STATX_DONT_SYNC",
	"actors/volumes/blockmap/map.go os.OpenFile":                    "O_PATH, of a device",
	"actors/volumes/blockmap/users.go os.ReadDir":                   "a folder of /proc or /sys",
	"actors/volumes/blockmap/users.go os.ReadFile":                  "a file of /proc or /sys",
	"actors/volumes/csi/devices.go os.MkdirAll":                     own,
	"actors/volumes/iscsi/chap.go os.OpenFile":                      ofOpenISCSI,
	"actors/volumes/iscsi/chap.go os.ReadDir":                       ofOpenISCSI,
	"actors/volumes/iscsi/chap.go os.ReadFile":                      ofOpenISCSI,
	"actors/volumes/iscsi/record.go os.ReadDir":                     own + ", without the mounts there",
	"actors/volumes/iscsi/record.go os.Lstat":                       own + ", without the mounts there",
	"actors/volumes/iscsi/record.go os.OpenFile":                    own + ", without the mounts there",
	"actors/volumes/iscsi/sysfs.go filepath.EvalSymlinks":           "links of /sys",
	"actors/volumes/iscsi/sysfs.go filepath.Glob":                   "folders of /sys",
	"actors/volumes/iscsi/sysfs.go os.OpenFile":                     "a file of /sys",
	"actors/volumes/iscsi/sysfs.go os.ReadDir":                      "a folder of /sys",
	"actors/volumes/iscsi/sysfs.go os.ReadFile":                     "a file of /sys",
	"actors/volumes/persistent/iscsi.go os.MkdirAll":                own,
}

// Calls that may reach a server of others must be bounded, since a hung server may block only its own pod. The test reads the
// source tree.
func TestCallsOnForeignMounts_AreBounded(t *testing.T) {
	root, seen := filepath.Join("..", "..", "..", ".."), 0
	for _, room := range []string{
		"actors/volumes", "actors/container", "actors/internal/linux/safepath", "actors/internal/linux/subpath",
		"actors/internal/pluginwatch",
	} {
		err := filepath.WalkDir(filepath.Join(root, room), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.HasSuffix(filepath.Dir(path), "test") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, is := n.(*ast.CallExpr)
				if !is {
					return true
				}
				name := called(call.Fun)
				if name == "Bounded" || strings.HasSuffix(name, ".Bounded") {
					seen++
					do, is := call.Args[len(call.Args)-1].(*ast.FuncLit)
					if !is { // the parameter of Bounded itself
						return false
					}
					if _, owns := do.Type.Results.List[0].Type.(*ast.StarExpr); owns {
						t.Errorf("a bounded call in %s returns a pointer, which its callers share: return a plain value", path)
					}
					return false
				}
				if !asking[name] {
					return true
				}
				at, _ := filepath.Rel(root, path)
				if key := filepath.ToSlash(at) + " " + name; asked[key] == "" {
					t.Errorf("%s may ask a server that hangs: make the call by safepath.Bounded, or list it with the reason", key)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 7 {
		t.Errorf("only %d bounded calls were found: the test reads the wrong tree", seen)
	}
}

// called returns the name of a function as it is written, without type arguments.
func called(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		if x, is := e.X.(*ast.Ident); is {
			return x.Name + "." + e.Sel.Name
		}
	case *ast.IndexExpr:
		return called(e.X)
	}
	return ""
}
