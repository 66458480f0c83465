package safepath

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The error of an unmount in a process of its own is that of the system call.
func TestUnmountApart_Errors(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "plain"), 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close() //nolint:errcheck // a test
	if err := root.UnmountApart(t.Context(), "none", false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing folder: %v", err)
	}
	if err := root.UnmountApart(t.Context(), "plain", true); !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) {
		t.Errorf("a folder without a mount: %v", err)
	}
}

// A process that panics has undone nothing. Its exit code is the number of ENOENT, which callers take as undone.
func TestUnmountApart_ThatPanics(t *testing.T) {
	end := exec.Command("/bin/sh", "-c", "exit 2").Run()
	if err := resultApart(nil, end); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after exit code 2 without a result: %v", err)
	}
	if err := resultApart([]byte("2"), exec.Command("/bin/sh", "-c", "exit 1").Run()); !errors.Is(err, unix.ENOENT) {
		t.Errorf("after ENOENT: %v", err)
	}
	if err := resultApart(nil, nil); err != nil {
		t.Error(err)
	}
}
