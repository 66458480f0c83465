package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Remove removes the file at path so that it stays removed after a power cut. That there is none is no error. Safe for
// concurrent use with WriteFile.
func Remove(path string) error {
	lock := writerOf(path)
	lock.Lock()
	defer lock.Unlock()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a file: %w", err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return nil
}

// MakeDir makes one folder, mode 0700, so that it survives a power cut. That it is there is no error; the folder that it
// lies in must be. A full disk is an error that wraps ErrNoSpace.
func MakeDir(path string) error {
	err := os.Mkdir(path, 0o700)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("making a folder: %w: %w", ErrNoSpace, err)
	case err != nil:
		return fmt.Errorf("making a folder: %w", err)
	}
	return syncDir(filepath.Dir(path))
}
