package stats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
)

const (
	// walkDepth limits the descriptors that a walk holds, one per level. A pod can nest folders without end: a folder below that
	// depth is read to its end before the next one is opened, and is reached again through "..". There can be many long walks,
	// which hold their descriptors while others have their turn.
	walkDepth = 16
	// walkBatch is the number of names read at a time: a folder may have any number.
	walkBatch = 512
	// walkLinks limits the remembered files with several names. Beyond it, each name counts for its share of the file.
	walkLinks = 1 << 16
	// walkPending limits the remembered names of folders below walkDepth, in addition to walkFew of each folder. A folder with
	// more is read again from its beginning for the next ones.
	walkPending, walkFew = 1 << 16, 8
	// walkPlaces limits the depth below walkDepth up to which a walk finds back to a folder after another one was moved.
	walkPlaces = 1 << 16
	// walkUp is the number of steps up that fit into one path (PATH_MAX).
	walkUp = 1000
)

var errMoved = errors.New("a folder was moved while it was measured")

// errDisturbed marks the sum of a walk during which entries vanished: they were removed, or renamed and not counted.
var errDisturbed = errors.New("entries vanished while they were measured")

// walk adds up the space that files below a folder occupy on its file system. It follows no link and enters no other file system;
// a file with several names counts once. It reads no file, and ends with ctx. A partial sum is a lower bound.
type walk struct {
	ctx     context.Context
	count   func(space) // called with the sum so far, after each batch; nil: not called
	device  uint64
	links   map[uint64]bool // inodes of files with several names
	sum     space
	deep    []deepFolder // folders below walkDepth with subfolders to be visited, the deepest last
	pending int          // names in deep
	most    int          // of pending
	err     error        // the first error that omitted a part
	// disturbed reports that an entry vanished between its listing and its measurement.
	disturbed bool
}

// deepFolder is a folder that is not held open, with the names of subfolders to be visited. more reports that there are others,
// after so many entries.
type deepFolder struct {
	*folderPath
	names   []string
	more    bool
	entries int
}

// folderPath is the path of a folder below the one at walkDepth.
type folderPath struct {
	depth  int
	inode  uint64
	parent *folderPath // nil for the folder at walkDepth, or if it is too deep
	name   string
}

// used returns the space used below the folder of this name. A folder that does not exist uses none. With an error comes a lower
// bound. The error is errDisturbed if nothing else failed and entries vanished meanwhile.
func used(ctx context.Context, root *safepath.Root, name string) (space, error) {
	return usedSoFar(ctx, root, name, nil)
}

// usedSoFar is used, and calls count with the sum so far after each batch of names.
func usedSoFar(ctx context.Context, root *safepath.Root, name string, count func(space)) (space, error) {
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
	w := &walk{ctx: ctx, count: count, device: st.Dev, links: map[uint64]bool{}, most: walkPending}
	w.add(uint64(st.Blocks), uint64(st.Nlink), st.Ino, st.Mode) //nolint:gosec,unconvert // never negative; 32 bits elsewhere
	w.folder(f, 0)
	w.sum.at = time.Now()
	if w.err == nil && w.disturbed {
		return w.sum, errDisturbed
	}
	return w.sum, w.err
}

// add counts a file, given in the blocks of 512 bytes of stat(2).
func (w *walk) add(blocks, links, inode uint64, mode uint32) {
	bytes := blocks * 512
	if links > 1 && mode&unix.S_IFMT != unix.S_IFDIR {
		if w.links[inode] {
			return
		}
		if len(w.links) == walkLinks {
			w.sum.used += bytes / links
			return
		}
		w.links[inode] = true
	}
	w.sum.used += bytes
	w.sum.inodesUsed++
}

func (w *walk) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// each calls visit with each name in an open folder, until it returns false.
func (w *walk) each(f *os.File, visit func(name string) bool) {
	for {
		if err := w.ctx.Err(); err != nil {
			w.fail(err)
			return
		}
		names, err := f.Readdirnames(walkBatch)
		stopped := slices.ContainsFunc(names, func(name string) bool { return !visit(name) })
		if w.count != nil {
			w.count(w.sum)
		}
		switch {
		case stopped, errors.Is(err, io.EOF):
			return
		case err != nil:
			w.fail(err)
			return
		}
	}
}

// folder counts the files in an open folder, and closes it. A file that is removed meanwhile counts for nothing.
func (w *walk) folder(f *os.File, depth int) {
	defer func() { _ = f.Close() }() // it was only read
	at := int(f.Fd())
	w.each(f, func(name string) bool {
		if !w.entry(at, name) || w.ctx.Err() != nil {
			return true
		}
		sub, err := w.open(at, name)
		switch {
		case err != nil: // removed or renamed
			w.disturbed = true
		case depth+1 < walkDepth:
			w.folder(sub, depth+1)
		default:
			w.below(sub)
		}
		return true
	})
}

// entry counts one entry, and reports whether it is a folder of this file system. The server of another that is mounted there,
// which may hang, is not asked.
func (w *walk) entry(at int, name string) bool {
	var st unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
	err := unix.Statx(at, name, flags, unix.STATX_BASIC_STATS, &st)
	w.disturbed = w.disturbed || errors.Is(err, unix.ENOENT)
	if err != nil || unix.Mkdev(st.Dev_major, st.Dev_minor) != w.device {
		return false
	}
	w.add(st.Blocks, uint64(st.Nlink), st.Ino, uint32(st.Mode))
	return st.Mode&unix.S_IFMT == unix.S_IFDIR
}

func (w *walk) open(at int, name string) (*os.File, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// below counts the files in a folder at walkDepth, and closes it. It holds three descriptors at the most, however deep the tree
// is.
func (w *walk) below(top *os.File) {
	f, at := top, &folderPath{}
	move := func(to *os.File, where *folderPath) {
		if f != top && f != to {
			_ = f.Close() // it was only read
		}
		f, at = to, where
	}
	defer func() {
		move(top, nil)
		_ = top.Close() // it was only read
		w.deep, w.pending = nil, 0
	}()
	w.deepFolder(f, at, 0)
	for len(w.deep) > 0 && w.ctx.Err() == nil {
		d := &w.deep[len(w.deep)-1]
		to, err := w.up(f, at.depth-d.depth, d.inode)
		if err != nil {
			w.fail(err)
			if to, err = w.find(top, d.folderPath); err != nil { // it is in the folder that was moved
				w.pending -= len(d.names)
				w.deep = w.deep[:len(w.deep)-1]
				continue
			}
		}
		move(to, d.folderPath)
		if len(d.names) == 0 { // there are more
			entries := d.entries
			w.deep = w.deep[:len(w.deep)-1]
			if again, err := w.open(int(f.Fd()), "."); err == nil {
				move(again, at)
				w.deepFolder(f, at, entries)
			}
			continue
		}
		name := d.names[len(d.names)-1]
		d.names = d.names[:len(d.names)-1]
		w.pending--
		if len(d.names) == 0 && !d.more {
			w.deep = w.deep[:len(w.deep)-1]
		}
		sub, err := w.open(int(f.Fd()), name)
		if err != nil { // removed or renamed
			w.disturbed = true
			continue
		}
		below := &folderPath{depth: at.depth + 1, name: name}
		if at.depth < walkPlaces {
			below.parent = at
		}
		move(sub, below)
		w.deepFolder(f, at, 0)
	}
}

// deepFolder counts the files in an open folder after so many entries, and remembers its subfolders.
func (w *walk) deepFolder(f *os.File, at *folderPath, after int) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Dev != w.device {
		return // another file system is mounted there by now
	}
	at.inode = st.Ino
	d := deepFolder{folderPath: at}
	w.each(f, func(name string) bool {
		if d.more = w.pending >= w.most && len(d.names) >= walkFew; d.more {
			return false
		}
		if d.entries++; d.entries > after && w.entry(int(f.Fd()), name) {
			d.names = append(d.names, name)
			w.pending++
		}
		return true
	})
	if len(d.names) > 0 {
		w.deep = append(w.deep, d)
	}
}

// find opens a folder by its path below top. Its inodes show that no folder was moved.
func (w *walk) find(top *os.File, at *folderPath) (*os.File, error) {
	var path []*folderPath
	for ; at.parent != nil; at = at.parent {
		path = append(path, at)
	}
	if at.depth != 0 {
		return nil, errMoved // its path is not remembered
	}
	f, err := w.open(int(top.Fd()), ".")
	if err != nil {
		return nil, err
	}
	for _, next := range slices.Backward(path) {
		sub, err := w.open(int(f.Fd()), next.name)
		_ = f.Close() // it was only read
		if err != nil {
			return nil, err
		}
		f = sub
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Ino != next.inode || st.Dev != w.device {
			return nil, errors.Join(errMoved, err, f.Close())
		}
	}
	return f, nil
}

// up opens the folder so many levels above f, which stays open. Its inode shows that no folder between them was moved.
func (w *walk) up(f *os.File, levels int, inode uint64) (*os.File, error) {
	above, err := w.open(int(f.Fd()), ".")
	for err == nil && levels > 0 {
		steps := min(levels, walkUp)
		from := above
		above, err = w.open(int(from.Fd()), strings.Repeat("../", steps))
		_ = from.Close() // it was only read
		levels -= steps
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(above.Fd()), &st); err != nil || st.Ino != inode || st.Dev != w.device {
		return nil, errors.Join(errMoved, err, above.Close())
	}
	return above, nil
}

// usedByVolume returns the space used by a volume's folder: all of a file system that is mounted there, and otherwise the files
// in it, on a file system that it shares. count is called with the sum so far.
func usedByVolume(ctx context.Context, root *safepath.Root, name string, count func(space)) (space, error) {
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
	on := func(sum space) space {
		all.at, all.used, all.inodesUsed = time.Now(), sum.used, sum.inodesUsed
		return all
	}
	sum, err := usedSoFar(ctx, root, name, func(sum space) { count(on(sum)) })
	return on(sum), err
}
