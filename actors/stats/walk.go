package stats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
)

const (
	// walkDepth bounds the descriptors that a walk holds, one a level. A pod can nest folders without end.
	walkDepth = 128
	// walkBatch is how many names are read at a time: a folder may have any number.
	walkBatch = 512
	// walkLinks bounds how many files with several names are remembered. Beyond it each name counts.
	walkLinks = 1 << 16
)

// errDeep says that a walk left something out.
var errDeep = fmt.Errorf("folders that are nested deeper than %d are not counted", walkDepth)

// walk adds up what the files below a folder occupy on its file system. It follows no link and goes to no other file system; a
// file with several names counts once. It reads no file, and ends with ctx.
type walk struct {
	ctx    context.Context
	device uint64
	links  map[uint64]bool // inodes of files with several names
	sum    space
	err    error // the first that left something out
}

// used is what is in the folder of this name. Nothing there is nothing used.
func used(ctx context.Context, root *safepath.Root, name string) (space, error) {
	f, err := root.OpenBeneath(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return space{at: time.Now()}, nil
	case err != nil:
		return space{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return space{}, errors.Join(err, f.Close())
	}
	w := &walk{ctx: ctx, device: st.Dev, links: map[uint64]bool{}}
	w.count(&st)
	w.folder(f, 0)
	w.sum.at = time.Now()
	return w.sum, w.err
}

func (w *walk) count(st *unix.Stat_t) {
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if w.links[st.Ino] {
			return
		}
		if len(w.links) < walkLinks {
			w.links[st.Ino] = true
		}
	}
	w.sum.used += uint64(st.Blocks) * 512 //nolint:gosec // stat(2) counts in blocks of 512 bytes, never less than none
	w.sum.inodesUsed++
}

func (w *walk) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// folder counts what is in an open folder, and closes it. What goes while it is counted counts for nothing.
func (w *walk) folder(f *os.File, depth int) {
	defer func() { _ = f.Close() }() // it was only read
	at := int(f.Fd())
	for {
		if err := w.ctx.Err(); err != nil {
			w.fail(err)
			return
		}
		names, err := f.Readdirnames(walkBatch)
		for _, name := range names {
			w.entry(at, name, depth)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				w.fail(err)
			}
			return
		}
	}
}

func (w *walk) entry(at int, name string, depth int) {
	var st unix.Stat_t
	if unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT) != nil || st.Dev != w.device {
		return
	}
	w.count(&st)
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || w.ctx.Err() != nil {
		return
	}
	if depth == walkDepth {
		w.fail(errDeep)
		return
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	w.folder(os.NewFile(uintptr(fd), name), depth+1)
}

// usedByVolume is what a volume's folder uses: all of a file system that is mounted there, and otherwise the files in it, on a
// file system that it shares.
func usedByVolume(ctx context.Context, root *safepath.Root, name string) (space, error) {
	f, err := root.OpenBeneath(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return space{}, err
	}
	var st unix.Statfs_t
	err = unix.Fstatfs(int(f.Fd()), &st)
	if err = errors.Join(err, f.Close()); err != nil {
		return space{}, fmt.Errorf("the file system of %s: %w", filepath.Base(name), err)
	}
	all := spaceFrom(&st)
	if mounted, err := root.IsMountPoint(name); err == nil && mounted {
		return all, nil
	}
	sum, err := used(ctx, root, name)
	all.at, all.used, all.inodesUsed = sum.at, sum.used, sum.inodesUsed
	return all, err
}
