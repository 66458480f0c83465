package locks

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A PID is shown only in the PID namespace where it is valid.
func TestTheHolderOfALock(t *testing.T) {
	const text = "PID 7, playlet dev node /x, y\npid:[1]\n"
	for _, c := range []struct{ text, namespace, want string }{
		{text, "pid:[1]", "PID 7, playlet dev node /x, y"},
		{text, "pid:[2]", "PID 7 of the PID namespace pid:[1], and not of this one, playlet dev node /x, y"},
		{"PID 7, playlet\n", "pid:[2]", "PID 7, playlet"}, // of an earlier agent
		{"", "pid:[2]", ""}, // not written yet
	} {
		if got := holderIn(c.text, c.namespace); got != c.want {
			t.Errorf("%q, %s: %q, want %q", c.text, c.namespace, got, c.want)
		}
	}
}

// Pods with the mark of another root folder are left alone while that folder exists. This is logged once.
func TestWhatAnotherAgentRunsIsForeign(t *testing.T) {
	dir := t.TempDir()
	for _, root := range []string{"ours", "theirs"} {
		if err := os.MkdirAll(filepath.Join(dir, root, "playlet"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(rootLock(filepath.Join(dir, root)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	moved := filepath.Join(dir, "moved") // where our folder was when it wrote the mark
	if err := os.Symlink(filepath.Join(dir, "ours"), moved); err != nil {
		t.Fatal(err)
	}
	log := &bytes.Buffer{}
	is := Foreign(filepath.Join(dir, "ours"), slog.New(slog.NewTextHandler(log, nil)))
	for root, want := range map[string]bool{"ours": false, "moved": false, "gone": false, "theirs": true} {
		if got := is(filepath.Join(dir, root)); got != want {
			t.Errorf("%s: %v", root, got)
		}
	}
	is(filepath.Join(dir, "theirs"))
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), filepath.Join(dir, "theirs")) {
		t.Errorf("the log says: %s", log)
	}
}

// An unwritable root folder is named, with a remedy. E2e tests cover the mounts themselves.
func TestARootFolderThatCannotBeWritten(t *testing.T) {
	made := func(path string, err error) error {
		return fmt.Errorf("making a folder of the agent: %w", &fs.PathError{Op: "mkdir", Path: path, Err: err})
	}
	const help = "; make room there, have it mounted writable, or name another (--root-dir)"
	other := errors.New("another playlet runs")
	for _, c := range []struct {
		err  error
		want string
	}{
		{made("/r", unix.EROFS), "the root folder /r cannot be written: read-only file system" + help},
		{made("/r/pods", unix.ENOSPC), "the root folder /r cannot be written: no space left on device" + help},
		{made("/r/pods", unix.EDQUOT), "the root folder /r cannot be written: disk quota exceeded" + help},
		{made("/run/logs", unix.EROFS), "/run/logs cannot be written: read-only file system"},
		{made("/r", unix.EACCES), "making a folder of the agent: mkdir /r: permission denied"},
		{other, other.Error()},
	} {
		if got := unwritable("/r", c.err); got.Error() != c.want {
			t.Errorf("%v, want %s", got, c.want)
		}
	}
}
