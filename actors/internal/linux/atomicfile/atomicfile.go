// Package atomicfile replaces files so that a crash, a full disk or a second writer leaves either the old or the new content,
// never a mixture. It also keeps versioned checkpoints, and reads files without trusting their size.
//
// google/renameio does not suffice. Each crash leaves a temporary file with a different name. It does not sync the folder, so a
// power cut may restore the old content. It syncs every file, even if the file may be lost in a power cut (SaveVolatile).
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

// ErrNoSpace is wrapped by errors of writes that failed because the disk or the quota was full.
var ErrNoSpace = errors.New("no space left on the disk")

// writers serialize the writes to one path within the process. The temporary file of a path therefore has a fixed name, and the
// next write replaces a file that a crash has left.
var writers [64]sync.Mutex

func writerOf(path string) *sync.Mutex {
	h := fnv.New32a()
	_, _ = h.Write([]byte(filepath.Clean(path))) // Write of a hash never fails
	return &writers[h.Sum32()%uint32(len(writers))]
}

// WriteFile writes data to path with exactly this mode. It writes and syncs a temporary file beside path, renames it, and syncs
// the folder. After success the content survives a power cut. After an error the old content is unchanged, with one exception
// that the error names: the new content is in place, but may not survive a power cut. If the disk was full and the old content
// remains, the error wraps ErrNoSpace. The folder must exist. A link at path is replaced, not followed. WriteFile is safe for
// concurrent use within a process. Only one process at a time may write a path.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	return writeFile(path, data, mode, true)
}

func writeFile(path string, data []byte, mode fs.FileMode, durable bool) error {
	lock := writerOf(path)
	lock.Lock()
	defer lock.Unlock()
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	if err := place(temporary, path, data, mode, durable); err != nil {
		// The temporary file is useless. If it cannot be removed, the next write removes it.
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

// place writes the temporary file, syncs it if durable is set, and renames it to path.
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

// errUnfit is the error about a file that is not regular or is too large. Reading it again returns the same error.
var errUnfit = errors.New("is not read")

// ReadFile reads a regular file that is no larger than most bytes. The error names the file and, if the file is too large, the
// limit.
func ReadFile(path string, most int64) (data []byte, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // do not wait for the writer of a pipe
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

// syncFile makes the content of a file survive a power cut. It is a variable so that tests can count its calls.
var syncFile = (*os.File).Sync

// syncDir makes changes in a folder survive a power cut. It is a variable so that tests can make it fail.
var syncDir = func(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Remove removes the file at path, and the removal survives a power cut. A missing file is not an error. Remove is safe for
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

// MakeDir creates one folder, with mode 0700, so that it survives a power cut. A path that exists is not an error. The parent
// folder must exist. If the disk is full, the error wraps ErrNoSpace.
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
