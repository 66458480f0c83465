package locks

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Another user that can open a lock file can hold it. Such a file is not locked, and the agent's own is closed to others.
func TestLockFile_OtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it gives a file to another user, and needs root")
	}
	dir := t.TempDir()
	theirs, ours, link := filepath.Join(dir, "theirs"), filepath.Join(dir, "ours"), filepath.Join(dir, "link")
	for _, path := range []string{theirs, ours} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(theirs, 12345, -1); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(ours, link); err != nil {
		t.Fatal(err)
	}
	hold := func(path string) error {
		lock, err := Hold(t.Context(), path, false, slog.New(slog.DiscardHandler))
		if err == nil {
			err = lock.Release()
		}
		return err
	}
	if err := hold(theirs); err == nil || !strings.Contains(err.Error(), theirs+" belongs to the user 12345") {
		t.Errorf("a file of another user: %v", err)
	}
	if err := hold(link); err == nil {
		t.Error("a link was followed")
	}
	if err := hold(ours); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(ours); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the agent's own file is open to others: %v, %v", info.Mode(), err)
	}
	if lock, err := lockAlone(theirs, "x"); err == nil || !strings.Contains(err.Error(), "belongs to the user 12345") {
		t.Errorf("the lock of a runtime: %v, %v", lock, err)
	}
}
