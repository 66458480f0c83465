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
	// maxDepth bounds the descriptors that one removal holds, one a level. A pod can nest folders without end; what
	// lies deeper is first moved up.
	maxDepth = 64
	// batch is how many names are read at a time.
	batch = 512
	// barrenRounds is how often a directory is read again although the last reading removed nothing of it, while
	// someone else adds to it.
	barrenRounds = 16
)

// MountPointError says that something was not removed because a file system is mounted on it.
type MountPointError struct{ Path string }

// Error implements error.
func (e *MountPointError) Error() string {
	return e.Path + " is a mount point: nothing is removed across it"
}

// RemoveAllOneFilesystem removes what is at name below the root, with all that is in it, but never crosses a mount
// point, a bind mount of the same file system included: it stops there, and the error is a *MountPointError. Links are
// removed, not followed. Nothing at name is success. Any other error does not keep it from removing the rest; the
// first is returned. It ends early with the error of ctx. What else goes on in the folder meanwhile can keep it from
// finishing, but cannot lead it elsewhere.
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

// CountFreed has removals under the context count what files that they remove occupied, in bytes. One that goes by another name,
// too, frees nothing.
func CountFreed(ctx context.Context) (context.Context, *atomic.Int64) {
	freed := new(atomic.Int64)
	return context.WithValue(ctx, freedKey{}, freed), freed
}

// removal is one RemoveAllOneFilesystem under way.
type removal struct {
	ctx     context.Context
	freed   *atomic.Int64 // nil: nobody counts
	top     int           // the topmost directory, into which deep ones are moved
	hoisted int
	err     error // the first
	stop    bool  // nothing more is to be touched
}

func (r *removal) fail(op, path string, err error) {
	if r.err == nil {
		r.err = &fs.PathError{Op: op, Path: path, Err: err}
	}
}

func (r *removal) mountPoint(path string) {
	r.err, r.stop = &MountPointError{path}, true
}

// stopped is asked before each thing that is removed, so that a removal that goes on is not cut short.
func (r *removal) stopped() bool {
	stall.Progress(r.ctx, nil)
	if !r.stop && r.ctx.Err() != nil {
		r.err, r.stop = fmt.Errorf("removing was cut short: %w", context.Cause(r.ctx)), true
	}
	return r.stop
}

// remove removes one entry of the directory at, and says whether it is gone.
func (r *removal) remove(at int, name, path string, depth int) bool {
	// A folder can be swapped for a file and back between the two calls; who does so for ever gets an error.
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

// size returns the disk space of a file in bytes, or 0 if freed space is not counted or the file has other links. It never waits
// for the server of a mounted file system.
func (r *removal) size(at int, name string) int64 {
	var st unix.Statx_t
	if r.freed == nil || unix.Statx(at, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC,
		unix.STATX_BLOCKS|unix.STATX_NLINK, &st) != nil || st.Nlink > 1 {
		return 0
	}
	return int64(st.Blocks) * 512 //nolint:gosec // no file has 2^63 blocks
}

// removeDir empties and removes a directory. Its error is about this entry itself.
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

// empty removes what is in the directory fd, which it closes, and counts what is gone.
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

// hoist moves a directory that lies too deep to the top, where a later round meets it. The rename is of one file
// system and refused for a mount point. Its place is empty then: it counts as gone from there.
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
