// Package atomicfile writes files so that a crash, a full disk or a second writer leaves the old content or the new
// one and never a mixture, keeps versioned checkpoints on top of that, and reads files without trusting their size.
//
// google/renameio does not serve: it leaves a temporary file of another name at each crash, does not sync the folder, so that a
// power cut may bring the old content back, and syncs each file, also those whose loss in a power cut is accepted (SaveVolatile).
package atomicfile

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrNoSpace is wrapped by the error of a write that found the disk, or the quota, full.
var ErrNoSpace = errors.New("no space left on the disk")

// writers hold off each other for one path within the process, so that the temporary file of a path can have a fixed
// name and what a crash leaves of it is overwritten by the next write, not gathered.
var writers [64]sync.Mutex

func writerOf(path string) *sync.Mutex {
	h := fnv.New32a()
	_, _ = h.Write([]byte(filepath.Clean(path))) // a hash's Write never fails
	return &writers[h.Sum32()%uint32(len(writers))]
}

// WriteFile puts data at path, with exactly mode, by way of a temporary file beside it: written, synced, renamed, and
// the folder synced. When it returns nil the content survives a power cut. When it fails, what was at path before is
// untouched, but for one case, which the error names: the new content is there, and may not survive a power cut. A full disk
// that left the old content is an error that wraps ErrNoSpace. The folder must exist. A link at path is replaced, not
// followed. Safe for concurrent use in one process; one process at a time may write a path.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	return writeFile(path, data, mode, true)
}

func writeFile(path string, data []byte, mode fs.FileMode, durable bool) error {
	lock := writerOf(path)
	lock.Lock()
	defer lock.Unlock()
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	if err := place(temporary, path, data, mode, durable); err != nil {
		// What there is of the temporary file is of no use; when even removing it fails, the next write will.
		_ = os.Remove(temporary)
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			return fmt.Errorf("writing %s: %w; its former content stays: %w", path, ErrNoSpace, err)
		}
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if !durable {
		return nil
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("writing %s: the new content is there, and may not survive a power cut: %w", path, err)
	}
	return nil
}

// place writes the temporary file, syncs it where it is to be durable, and gives it its name.
func place(temporary, path string, data []byte, mode fs.FileMode, durable bool) error {
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = f.Chmod(mode)
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil && durable {
		err = syncFile(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// errUnfit is what is no regular file, or too large a one: a later reading finds the same.
var errUnfit = errors.New("is not read")

// ReadFile reads a regular file of that many bytes at most. An error names the file, and the bound where it is larger.
func ReadFile(path string, most int64) (data []byte, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe would be waited for
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s %w: it is not a regular file", path, errUnfit)
	}
	if data, err = io.ReadAll(io.LimitReader(f, most+1)); int64(len(data)) > most {
		return nil, fmt.Errorf("%s %w: it is larger than %d bytes", path, errUnfit, most)
	}
	return data, err
}

// syncFile makes the content of a file survive a power cut. A variable: tests count.
var syncFile = (*os.File).Sync

// syncDir makes what was done in a folder survive a power cut. A variable: no disk fails on demand.
var syncDir = func(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

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
