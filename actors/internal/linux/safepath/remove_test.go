package safepath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func TestRemoveAll(t *testing.T) {
	r := openTemp(t)
	outside := t.TempDir()
	write(t, filepath.Join(outside, "keep"), "")
	write(t, filepath.Join(r.Path(), "pod/a/b/c"), "")
	write(t, filepath.Join(r.Path(), "other"), "")
	must(t, os.Symlink(outside, filepath.Join(r.Path(), "pod/link")))
	must(t, os.Symlink(filepath.Join(outside, "keep"), filepath.Join(r.Path(), "pod/a/link")))
	must(t, unix.Mkfifo(filepath.Join(r.Path(), "pod/fifo"), 0o600))
	for i := range 3 * batch {
		write(t, filepath.Join(r.Path(), fmt.Sprintf("pod/many/%d", i)), "")
	}
	must(t, RemoveAllOneFilesystem(t.Context(), r, "pod"))
	if exists(t, filepath.Join(r.Path(), "pod")) {
		t.Error("it is still there")
	}
	if !exists(t, filepath.Join(outside, "keep")) || !exists(t, filepath.Join(r.Path(), "other")) {
		t.Error("more was removed than asked for")
	}
	must(t, RemoveAllOneFilesystem(t.Context(), r, "pod"))
	must(t, RemoveAllOneFilesystem(t.Context(), r, "absent/below"))
	must(t, RemoveAllOneFilesystem(t.Context(), r, "other"))
}

// CountFreed counts the disk space of removed files in all folders. It does not count remaining files, or files with a hard
// link outside.
func TestRemoveAllCountsWhatItFrees(t *testing.T) {
	r := openTemp(t)
	text := strings.Repeat("x", 64<<10)
	for _, name := range []string{"pod/a", "pod/b/c", "pod/linked", "other"} {
		write(t, filepath.Join(r.Path(), name), text)
	}
	must(t, os.Link(filepath.Join(r.Path(), "pod/linked"), filepath.Join(r.Path(), "stays")))
	want := int64(0)
	for _, name := range []string{"pod/a", "pod/b/c", "other"} {
		var st unix.Stat_t
		must(t, unix.Stat(filepath.Join(r.Path(), name), &st))
		want += st.Blocks * 512
	}
	ctx, freed := CountFreed(t.Context())
	must(t, RemoveAllOneFilesystem(ctx, r, "pod"))
	must(t, RemoveAllOneFilesystem(ctx, r, "other"))
	if got := freed.Load(); got != want || got == 0 {
		t.Errorf("%d bytes were freed, of %d", got, want)
	}
}

func TestRemoveAllRefusesNames(t *testing.T) {
	r := openTemp(t)
	outside := t.TempDir()
	write(t, filepath.Join(outside, "keep"), "")
	must(t, os.Symlink(outside, filepath.Join(r.Path(), "out")))
	for _, name := range []string{"", ".", "./", "..", "../x", "a/..", "/", filepath.Join(outside, "keep")} {
		if err := RemoveAllOneFilesystem(t.Context(), r, name); !errors.Is(err, ErrBadName) {
			t.Errorf("%q: %v, want ErrBadName", name, err)
		}
	}
	if err := RemoveAllOneFilesystem(t.Context(), r, "out/keep"); !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("through a link: %v", err)
	}
	if !exists(t, filepath.Join(outside, "keep")) {
		t.Error("removed what is outside")
	}
}

func TestRemoveAllEndsWithItsContext(t *testing.T) {
	r := openTemp(t)
	write(t, filepath.Join(r.Path(), "pod/file"), "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := RemoveAllOneFilesystem(ctx, r, "pod"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if !exists(t, filepath.Join(r.Path(), "pod/file")) {
		t.Error("removed something after its context had ended")
	}
}

// The depth of a folder may exceed the limits on descriptors and on the length of a path.
func TestRemoveAllOfADeepTree(t *testing.T) {
	r := openTemp(t)
	nest(t, r, "pod", 1500)
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	few := old
	few.Cur = 3 * maxDepth
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	err := RemoveAllOneFilesystem(t.Context(), r, "pod")
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	must(t, err)
	if names, err := r.Names("."); err != nil || len(names) != 0 {
		t.Errorf("left: %q, %v", names, err)
	}
}

func nest(t *testing.T, r *Root, name string, depth int) {
	t.Helper()
	must(t, r.MkdirAll(name, 0o755))
	at, err := r.Sub(name)
	must(t, err)
	for range depth {
		must(t, at.MkdirAll("d", 0o755))
		f, err := at.OpenBeneath("file", unix.O_CREAT|unix.O_WRONLY, 0o644)
		must(t, err)
		must(t, f.Close())
		next, err := at.Sub("d")
		must(t, err)
		must(t, at.Close())
		at = next
	}
	must(t, at.Close())
}

// The error names an entry that cannot be removed. The other entries are removed.
func TestRemoveAllGoesOnAfterAnError(t *testing.T) {
	r := openTemp(t)
	for _, name := range []string{"a", "b", "stuck/file", "z"} {
		write(t, filepath.Join(r.Path(), "pod", name), "")
	}
	stuck := filepath.Join(r.Path(), "pod/stuck/file")
	setImmutable(t, stuck, true)
	t.Cleanup(func() { setImmutable(t, stuck, false) })
	err := RemoveAllOneFilesystem(t.Context(), r, "pod")
	var where *os.PathError
	if !errors.As(err, &where) || where.Path != stuck || !errors.Is(err, unix.EPERM) {
		t.Errorf("got %v, want EPERM about %s", err, stuck)
	}
	names, err := r.Names("pod")
	must(t, err)
	if len(names) != 1 || names[0] != "stuck" {
		t.Errorf("left: %q", names)
	}
}

func setImmutable(t *testing.T, path string, on bool) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	flags := 0
	if on {
		flags = unix.STATX_ATTR_IMMUTABLE // the same bit as FS_IMMUTABLE_FL
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags); err != nil {
		t.Skipf("cannot make a file immutable here (needs root and a file system that can): %v", err)
	}
}

// The removal ends even if another process keeps adding files.
func TestRemoveAllWhileSomeoneAdds(t *testing.T) {
	r := openTemp(t)
	must(t, r.MkdirAll("pod/d", 0o755))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			_ = os.WriteFile(filepath.Join(r.Path(), fmt.Sprintf("pod/d/%d", i%100)), nil, 0o644) // fails after the removal
		}
	})
	for range 50 {
		if err := RemoveAllOneFilesystem(t.Context(), r, "pod"); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
			t.Errorf("got %v", err)
		}
		must(t, r.MkdirAll("pod/d", 0o755))
	}
	cancel()
	wg.Wait()
	must(t, RemoveAllOneFilesystem(t.Context(), r, "pod"))
}
