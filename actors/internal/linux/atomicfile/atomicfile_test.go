package atomicfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestWriteFile(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	path := filepath.Join(t.TempDir(), "file")
	must(t, WriteFile(path, []byte("one"), 0o644))
	must(t, WriteFile(path, []byte("two"), 0o640))
	if got := content(t, path); got != "two" {
		t.Errorf("content %q", got)
	}
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode() != 0o640 {
		t.Errorf("mode %v, want 0640", info.Mode())
	}
	if got := names(t, filepath.Dir(path)); len(got) != 1 {
		t.Errorf("beside it: %q", got)
	}
}

func TestWriteFile_ReplacesLinkAndLeavesTarget(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "target"), []byte("target"), 0o644))
	path := filepath.Join(dir, "file")
	must(t, os.Symlink("target", path))
	must(t, os.Symlink("target", filepath.Join(filepath.Dir(path), ".file.tmp"))) // left by another process
	must(t, WriteFile(path, []byte("new"), 0o644))
	if content(t, filepath.Join(dir, "target")) != "target" {
		t.Error("the target of the link was written")
	}
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%v, %v", info, err)
	}
}

// ReadFile reads only regular files within the limit, and does not block. An error names the file and the limit.
func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	must(t, os.WriteFile(path, []byte("four"), 0o600))
	must(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	if got, err := ReadFile(path, 4); err != nil || string(got) != "four" {
		t.Errorf("%q, %v", got, err)
	}
	for name, want := range map[string]string{
		"file": "larger than 3 bytes", "pipe": "not a regular file", "../" + filepath.Base(dir): "not a regular file",
		"none": "no such file",
	} {
		path := filepath.Join(dir, name)
		if got, err := ReadFile(path, 3); got != nil || err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// The next write overwrites the temporary file that a crash has left. It is never mistaken for the file itself.
func TestWriteFileAfterACrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	must(t, WriteFile(path, []byte("old"), 0o644))
	must(t, os.WriteFile(filepath.Join(filepath.Dir(path), ".file.tmp"), []byte("ha"), 0o600))
	if content(t, path) != "old" {
		t.Error("the old content is gone")
	}
	must(t, WriteFile(path, []byte("new"), 0o644))
	if got := names(t, filepath.Dir(path)); len(got) != 1 || content(t, path) != "new" {
		t.Errorf("got %q", got)
	}
}

func TestWriteFileFails(t *testing.T) {
	dir := t.TempDir()
	if err := WriteFile(filepath.Join(dir, "absent/file"), nil, 0o644); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a folder: %v", err)
	}
	must(t, os.MkdirAll(filepath.Join(dir, "folder/x"), 0o755))
	if err := WriteFile(filepath.Join(dir, "folder"), nil, 0o644); err == nil {
		t.Error("wrote over a folder")
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("left %q", got)
	}
}

// Readers see one complete content, regardless of concurrent writers.
func TestConcurrentWritersAndReaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	must(t, WriteFile(path, bytes.Repeat([]byte("0"), 9000), 0o644))
	var wg sync.WaitGroup
	for _, digit := range []string{"1", "2", "3"} {
		wg.Go(func() {
			for range 20 {
				if err := WriteFile(path, bytes.Repeat([]byte(digit), 9000), 0o644); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 200 {
		if got := content(t, path); len(got) != 9000 || strings.Count(got, got[:1]) != 9000 {
			t.Fatalf("a mixture of %d bytes", len(got))
		}
	}
	wg.Wait()
}

// tiny returns a folder on a file system of 64 KiB.
func tiny(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("a full disk is shown on a small tmpfs; mounting needs root: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// If only the sync of the folder fails, the new content is in place. The error must not claim that the old content remains.
func TestAFolderThatCannotBeSynced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	must(t, WriteFile(path, []byte("old"), 0o600))
	plain := syncDir
	defer func() { syncDir = plain }()
	syncDir = func(string) error { return unix.ENOSPC }
	err := WriteFile(path, []byte("new"), 0o600)
	if !errors.Is(err, unix.ENOSPC) || errors.Is(err, ErrNoSpace) || content(t, path) != "new" ||
		!strings.Contains(err.Error(), "is there") {
		t.Errorf("%q, %v", content(t, path), err)
	}
}

func TestFullDiskKeepsTheOldContent(t *testing.T) {
	path := filepath.Join(tiny(t), "file")
	must(t, Save(path, 1, "old"))
	err := Save(path, 1, strings.Repeat("new", 100_000))
	if !errors.Is(err, ErrNoSpace) || !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
	var got string
	if err := Load(path, 1, &got); err != nil || got != "old" {
		t.Errorf("loaded %q, %v", got, err)
	}
	if left := names(t, filepath.Dir(path)); len(left) != 1 {
		t.Errorf("left %q", left)
	}
	must(t, Save(path, 1, "small again"))
}
