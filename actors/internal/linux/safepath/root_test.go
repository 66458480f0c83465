package safepath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func openTemp(t *testing.T) *Root {
	t.Helper()
	r, err := OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

func TestOpenBeneath(t *testing.T) {
	r := openTemp(t)
	outside := t.TempDir()
	write(t, filepath.Join(outside, "secret"), "outside")
	write(t, filepath.Join(r.Path(), "dir/file"), "inside")
	must(t, os.Symlink(outside, filepath.Join(r.Path(), "out")))
	must(t, os.Symlink("dir", filepath.Join(r.Path(), "in")))
	must(t, os.Symlink("file", filepath.Join(r.Path(), "dir/link")))

	for _, c := range []struct {
		name string
		want error
	}{
		{"dir/file", nil},
		{"./dir//file", nil},
		{".", nil},
		{"dir/absent", fs.ErrNotExist},
		{"out/secret", unix.ELOOP},
		{"out", unix.ELOOP},
		{"in/file", unix.ELOOP},
		{"dir/link", unix.ELOOP},
		{"../" + filepath.Base(outside), ErrBadName},
		{"dir/../../x", ErrBadName},
		{filepath.Join(r.Path(), "dir/file"), ErrBadName},
		{"", ErrBadName},
		{"a\x00b", ErrBadName},
	} {
		t.Run(strings.ReplaceAll(c.name, "/", "|"), func(t *testing.T) {
			f, err := r.OpenBeneath(c.name, unix.O_RDONLY, 0)
			if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
				t.Fatalf("OpenBeneath(%q) = %v, want %v", c.name, err, c.want)
			}
			if f != nil {
				must(t, f.Close())
			}
		})
	}
}

func TestOpenBeneathCreates(t *testing.T) {
	r := openTemp(t)
	f, err := r.OpenBeneath("new", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o600)
	must(t, err)
	must(t, f.Close())
	info, err := r.Lstat("new")
	must(t, err)
	if info.Mode() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode())
	}
	must(t, os.Symlink("/tmp/nowhere-at-all", filepath.Join(r.Path(), "link")))
	if _, err := r.OpenBeneath("link", unix.O_CREAT|unix.O_WRONLY, 0o600); !errors.Is(err, unix.ELOOP) {
		t.Errorf("creating through a link gave %v, want ELOOP", err)
	}
}

func TestLstatTypes(t *testing.T) {
	r := openTemp(t)
	write(t, filepath.Join(r.Path(), "file"), "")
	must(t, os.Mkdir(filepath.Join(r.Path(), "dir"), 0o755))
	must(t, os.Symlink("file", filepath.Join(r.Path(), "link")))
	must(t, unix.Mkfifo(filepath.Join(r.Path(), "fifo"), 0o600))
	for name, want := range map[string]fs.FileMode{
		"file": 0, "dir": fs.ModeDir, "link": fs.ModeSymlink, "fifo": fs.ModeNamedPipe, ".": fs.ModeDir,
	} {
		info, err := r.Lstat(name)
		must(t, err)
		if info.Mode().Type() != want {
			t.Errorf("%s is %v, want %v", name, info.Mode().Type(), want)
		}
	}
	if _, err := r.Sub("file"); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("Sub of a file gave %v, want ENOTDIR", err)
	}
}

func TestMkdirAll_SetsModesAndKeepsContent(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	r := openTemp(t)
	must(t, os.Mkdir(filepath.Join(r.Path(), "a"), 0o700))
	must(t, r.MkdirAll("a/b/c", 0o777))
	must(t, r.MkdirAll("a/b/c", 0o750))
	for name, want := range map[string]fs.FileMode{"a": 0o700, "a/b": 0o777, "a/b/c": 0o777} {
		info, err := r.Lstat(name)
		must(t, err)
		if info.Mode().Perm() != want || !info.IsDir() {
			t.Errorf("%s has %v, want a directory of mode %o", name, info.Mode(), want)
		}
	}
	must(t, r.Chmod("a", 0o751))
	if info, err := r.Lstat("a"); err != nil || info.Mode().Perm() != 0o751 {
		t.Errorf("after Chmod: %v, %v", info, err)
	}
}

func TestMkdirAllRefuses(t *testing.T) {
	r := openTemp(t)
	outside := t.TempDir()
	must(t, os.Symlink(outside, filepath.Join(r.Path(), "out")))
	write(t, filepath.Join(r.Path(), "file"), "")
	for name, want := range map[string]error{
		"out/x": unix.ENOTDIR, "out": unix.ENOTDIR, "file/x": unix.ENOTDIR, "file": unix.ENOTDIR,
		"../x": ErrBadName, "": ErrBadName, "/x": ErrBadName,
	} {
		if err := r.MkdirAll(name, 0o755); !errors.Is(err, want) && !errors.Is(err, unix.ELOOP) {
			t.Errorf("MkdirAll(%q) = %v, want %v", name, err, want)
		}
	}
	if names, err := os.ReadDir(outside); err != nil || len(names) > 0 {
		t.Errorf("outside has %v, %v", names, err)
	}
}

func TestNames(t *testing.T) {
	r := openTemp(t)
	write(t, filepath.Join(r.Path(), "d/x"), "")
	write(t, filepath.Join(r.Path(), "d/y"), "")
	names, err := r.Names("d")
	must(t, err)
	if len(names) != 2 {
		t.Errorf("got %q", names)
	}
	if names, err := r.Names("."); err != nil || len(names) != 1 || names[0] != "d" {
		t.Errorf("got %q, %v", names, err)
	}
}

func TestCheckElement(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "0b-1": true, "...": true, "": false, ".": false, "..": false, "a/b": false, "/": false, "a\x00": false,
	} {
		if err := CheckElement(name); (err == nil) != ok {
			t.Errorf("CheckElement(%q) = %v", name, err)
		}
	}
}
