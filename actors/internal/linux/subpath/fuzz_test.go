package subpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/cri/translate"
)

// FuzzSubPath checks that manifests, environments and links in a volume cannot make a part lie outside the volume.
func FuzzSubPath(f *testing.F) {
	for _, seed := range [][3]string{
		{"$(A)", "dir/sub", "dir"}, {"$(A)/x", "..", "dir"}, {"$(A)$(A)", "link/new", "../outside"}, {"a/$(A)", "/etc", "/"},
		{"link/$(A)/y", ".", "../../.."}, {"$$(A)", "x", "sub/../.."}, {"dir/link", "", "dir/../../outside"},
		{"dir/sub/../$(A)", "x\x00y", "link"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	base := f.TempDir()
	f.Fuzz(func(t *testing.T, expr, value, link string) {
		path, err := translate.ExpandSubPath(expr, []translate.EnvVar{{Name: "A", Value: value}})
		if err != nil {
			if value != "" && strings.Count(expr, "$(") == strings.Count(expr, "$(A)") {
				t.Errorf("%q with %q: %v", expr, value, err)
			}
			return
		}
		dir, err := os.MkdirTemp(base, "")
		must(t, err)
		defer os.RemoveAll(dir) //nolint:errcheck // the base goes at the end
		p := Part{From: filepath.Join(dir, "volume"), Path: path}
		must(t, os.MkdirAll(filepath.Join(p.From, "dir/sub"), 0o755))
		must(t, os.Mkdir(filepath.Join(dir, "outside"), 0o755))
		for _, at := range []string{"link", "dir/link"} {
			if err := os.Symlink(link, filepath.Join(p.From, at)); err != nil {
				return // not a valid target of a link
			}
		}
		if opened, err := p.open(); err == nil {
			at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", opened.Fd()))
			if err = errors.Join(err, opened.Close()); err != nil || at != p.From && !strings.HasPrefix(at, p.From+"/") {
				t.Errorf("%q with links to %q is %q, %v", path, link, at, err)
			}
		} else if errors.Is(err, unix.EBADF) || errors.Is(err, unix.EFAULT) {
			t.Errorf("%q: %v", path, err)
		}
		var outside []string
		must(t, filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
			if at == p.From {
				return filepath.SkipDir
			}
			outside = append(outside, at)
			return err
		}))
		if len(outside) != 2 {
			t.Errorf("%q with links to %q: beside the volume there are %q", path, link, outside)
		}
	})
}
