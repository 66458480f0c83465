package safepath

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/cri/stall"
)

const (
	// maxDepth limits the descriptors that a removal holds, one per level. A pod can nest folders without limit. Deeper folders
	// are first moved up.
	maxDepth = 64
	// batch is the number of names that are read at a time.
	batch = 512
	// barrenRounds limits how often a directory is read again after a round that removed nothing, while another process adds
	// files.
	barrenRounds = 16
)

// MountPointError is the error about a file that was not removed because a file system is mounted on it.
type MountPointError struct{ Path string }

// Error implements error.
func (e *MountPointError) Error() string {
	return e.Path + " is a mount point: nothing is removed across it"
}

// RemoveAllOneFilesystem removes the file at name below the root or, recursively, the directory. It never crosses a mount
// point, including a bind mount of the same file system: it stops there and returns a *MountPointError. Links are removed, not
// followed. A missing name is not an error. After any other error it removes the remaining files, and returns the first error.
// It stops when ctx ends, and returns an error that wraps the cause. Concurrent changes in the folder can prevent it from
// finishing, but cannot redirect it.
func RemoveAllOneFilesystem(ctx context.Context, root *Root, name string) error {
	path := filepath.Join(root.path, name)
	if err := CheckName(name); err != nil || filepath.Clean(name) == "." {
		return &fs.PathError{Op: "remove", Path: path, Err: ErrBadName}
	}
	parent, err := root.open(filepath.Dir(filepath.Clean(name)), unix.O_RDONLY|unix.O_DIRECTORY, 0, unix.RESOLVE_NO_XDEV)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EXDEV):
		return &MountPointError{filepath.Dir(path)}
	case err != nil:
		return &fs.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer closeFD(parent)
	r := &removal{ctx: ctx, top: -1}
	r.freed, _ = ctx.Value(freedKey{}).(*atomic.Int64)
	r.remove(parent, filepath.Base(path), path, 0)
	return r.err
}

type freedKey struct{}

// CountFreed returns a context, and the count in bytes of the disk space that removals with this context free. A file with
// another hard link frees nothing.
func CountFreed(ctx context.Context) (context.Context, *atomic.Int64) {
	freed := new(atomic.Int64)
	return context.WithValue(ctx, freedKey{}, freed), freed
}

// removal is a RemoveAllOneFilesystem in progress.
type removal struct {
	ctx     context.Context
	freed   *atomic.Int64 // nil: not counted
	top     int           // the topmost directory; deep directories are moved here
	hoisted int
	err     error // the first error
	stop    bool  // remove nothing more
}

func (r *removal) fail(op, path string, err error) {
	if r.err == nil {
		r.err = &fs.PathError{Op: op, Path: path, Err: err}
	}
}

func (r *removal) mountPoint(path string) {
	r.err, r.stop = &MountPointError{path}, true
}

// stopped reports whether the removal must stop. It is called before each entry, and records progress so that a removal that
// advances is not interrupted.
func (r *removal) stopped() bool {
	stall.Progress(r.ctx, nil)
	if !r.stop && r.ctx.Err() != nil {
		r.err, r.stop = fmt.Errorf("removing was cut short: %w", context.Cause(r.ctx)), true
	}
	return r.stop
}

// remove removes one entry of the directory at, and reports whether it is gone.
func (r *removal) remove(at int, name, path string, depth int) bool {
	// A folder can be swapped for a file and back between the two calls. Continual swaps end in an error.
	for range attempts {
		if r.stopped() {
			return false
		}
		size := r.size(at, name)
		switch err := unix.Unlinkat(at, name, 0); {
		case err == nil && r.freed != nil:
			r.freed.Add(size)
			return true
		case err == nil, errors.Is(err, unix.ENOENT):
			return true
		case errors.Is(err, unix.EBUSY):
			r.mountPoint(path)
			return false
		case !errors.Is(err, unix.EISDIR):
			r.fail("unlink", path, err)
			return false
		}
		gone, err := r.removeDir(at, name, path, depth)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			continue
		}
		if err != nil {
			r.fail("rmdir", path, err)
		}
		return gone
	}
	r.fail("remove", path, unix.EAGAIN)
	return false
}

// size returns the disk space of a file in bytes, or 0 if freed space is not counted or the file has other links. It never
// waits for the server of a mounted file system.
func (r *removal) size(at int, name string) int64 {
	var st unix.Statx_t
	if r.freed == nil || unix.Statx(at, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC,
		unix.STATX_BLOCKS|unix.STATX_NLINK, &st) != nil || st.Nlink > 1 {
		return 0
	}
	return int64(st.Blocks) * 512 //nolint:gosec // no file has 2^63 blocks
}

// removeDir empties and removes a directory. It returns errors about the directory itself; errors about its entries are
// recorded.
func (r *removal) removeDir(at int, name, path string, depth int) (bool, error) {
	err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	for round := 0; errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST); {
		if depth >= maxDepth {
			return r.hoist(at, name, path)
		}
		fd, openErr := openat2(at, name, &unix.OpenHow{
			Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW,
			Resolve: beneath | unix.RESOLVE_NO_XDEV,
		})
		if openErr != nil {
			err = openErr
			break
		}
		removed := r.empty(fd, path, depth)
		if r.stop {
			return false, nil
		}
		err = unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
		if removed == 0 {
			if round++; round >= barrenRounds || r.err != nil {
				break
			}
		}
	}
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return true, nil
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EBUSY):
		r.mountPoint(path)
		return false, nil
	}
	return false, err
}

// empty removes the entries of the directory fd, closes fd, and returns the number of entries that are gone.
func (r *removal) empty(fd int, path string, depth int) (removed int) {
	dir := os.NewFile(uintptr(fd), path)
	defer func() {
		if err := dir.Close(); err != nil {
			r.fail("close", path, err)
		}
	}()
	if depth == 0 {
		r.top = fd
	}
	for {
		names, err := dir.Readdirnames(batch)
		for _, name := range names {
			if r.stopped() {
				return removed
			}
			if r.remove(fd, name, filepath.Join(path, name), depth+1) {
				removed++
			}
		}
		if errors.Is(err, io.EOF) || len(names) == 0 && err == nil {
			return removed
		}
		if err != nil {
			r.fail("readdir", path, err)
			return removed
		}
	}
}

// hoist moves a deeply nested directory to the top, where a later round removes it. The rename stays on one file system and
// fails for a mount point. The directory then counts as removed from its old place.
func (r *removal) hoist(at int, name, path string) (bool, error) {
	for range attempts {
		r.hoisted++
		err := unix.Renameat2(at, name, r.top, fmt.Sprintf(".removing-%d", r.hoisted), unix.RENAME_NOREPLACE)
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
			return true, nil
		case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EXDEV):
			r.mountPoint(path)
			return false, nil
		case !errors.Is(err, unix.EEXIST):
			return false, err
		}
	}
	return false, unix.EEXIST
}
