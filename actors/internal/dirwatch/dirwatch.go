// Package dirwatch reports changes of names in folders. It uses inotify directly, because fsnotify has no event for the end
// of a writer.
package dirwatch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// IN_MODIFY is not included: only IN_CLOSE_WRITE shows that a writer is done.
const (
	events = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ATTRIB | unix.IN_CLOSE_WRITE |
		ofTheFolder | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
	ofTheFolder = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_UNMOUNT
)

// Places are folders, without links, and the names in them that matter.
type Places map[string]map[string]bool

// all stands for all names of a folder.
const all = ""

func (p Places) add(dir, name string) {
	if p[dir] == nil {
		p[dir] = map[string]bool{}
	}
	p[dir][name] = true
}

// Folder has all names in a folder matter.
func (p Places) Folder(dir string) { p.add(dir, all) }

// Way has each name on the way to a path matter. Those below a link have to be added by the path that it leads to.
func (p Places) Way(path string) {
	for dir := filepath.Dir(path); dir != path; path, dir = dir, filepath.Dir(dir) {
		p.add(dir, filepath.Base(path))
	}
}

// linksAtMost is how many links the kernel follows on one way (path_resolution(7)).
const linksAtMost = 40

// Follow resolves an absolute path like the kernel, and returns the path without links. It adds each name on the way,
// including those of intermediate links and of absent files.
func (p Places) Follow(path string) string {
	at := "/"
	for links := 0; path != ""; {
		name, rest, _ := strings.Cut(path, "/")
		path = rest
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		p.add(at, name) // the folders above it were on the way
		to, err := os.Readlink(next)
		switch {
		case err != nil:
			at = next
			continue
		case links == linksAtMost:
			return next // the kernel goes no further
		}
		links++
		if path = to + "/" + rest; filepath.IsAbs(to) {
			at = "/"
		}
	}
	return at
}

// Changes are the changes since the last call of Collect or Await.
type Changes struct {
	Seen    bool            // something happened to a name that matters
	Written map[string]bool // names in whole folders; true: a writer has closed the file
	// Deleted are names in whole folders that were deleted, even if created again since; or created again after their file was
	// moved to another folder.
	Deleted map[string]bool
	Lost    bool // events were lost: nothing that is known can be relied on
	Late    bool // Wake(true) was called
	Check   bool // Wake(false) was called
}

// None reports whether there are no changes.
func (c *Changes) None() bool { return !c.Seen && !c.Lost && !c.Late && !c.Check }

// Watch is one inotify instance. Without one, as where the kernel's limit of them is reached, it still waits and wakes. Safe for
// concurrent use.
type Watch struct {
	woken chan struct{}

	mu          sync.Mutex
	file        *os.File // nil: there is no instance
	fd          int      // of file
	closed      bool
	late, check bool
	places      map[int32]map[string]bool // by watch descriptor
	moved       map[place]uint32          // cookies of the moves away, until the name is back
	buf         [64 << 10]byte
}

// place is a name in the folder of a watch descriptor.
type place struct {
	wd   int32
	name string
}

// New watches nothing yet.
func New() *Watch { return &Watch{woken: make(chan struct{}, 1), moved: map[place]uint32{}} }

// Open makes the inotify instance, where there is none and the watch is not closed.
func (w *Watch) Open() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file != nil || w.closed {
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("inotify is not available, so changes are only found by the regular check: %w", err)
	}
	w.file, w.fd = os.NewFile(uintptr(fd), "inotify"), fd
	raw, err := w.file.SyscallConn()
	if err != nil {
		return err
	}
	// The runtime calls this whenever there is more to read, until the file is closed, which is its error.
	go func() {
		_ = raw.Read(func(uintptr) bool {
			w.signal()
			return false
		})
	}()
	return nil
}

// Close frees the instance. The watch is of no use afterwards.
func (w *Watch) Close() {
	w.mu.Lock()
	file := w.file
	w.file, w.closed = nil, true
	w.mu.Unlock()
	_ = file.Close() // it blocks until Cover ends; an error, as for nil, loses nothing
}

// Cover watches exactly these places. fresh is true if some are new: their earlier changes were not observed. Absent folders
// are skipped. problems are the places that cannot be watched. Calls must not overlap. Cover holds no lock while a file
// system does not answer, because actors call Wake.
func (w *Watch) Cover(places Places) (fresh bool, problems []error) {
	w.mu.Lock()
	file, before := w.file, w.places
	w.mu.Unlock()
	if file == nil {
		return false, nil
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return false, nil // it was closed
	}
	next := map[int32]map[string]bool{}
	// Within Control the descriptor stays open, whoever closes the file. It fails where the file is closed already.
	_ = raw.Control(func(fd uintptr) { fresh, problems = watch(int(fd), places, before, next) })
	w.mu.Lock()
	w.places = next
	maps.DeleteFunc(w.moved, func(at place, _ uint32) bool { return next[at.wd] == nil })
	w.mu.Unlock()
	return fresh, problems
}

// watch replaces the watched places of an inotify instance. It adds the names for each new watch descriptor to next.
func watch(inotify int, places Places, before, next map[int32]map[string]bool) (fresh bool, problems []error) {
	for dir, names := range places {
		n, err := unix.InotifyAddWatch(inotify, dir, events)
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR): // the next reading reports it
			continue
		case err != nil:
			problems = append(problems,
				fmt.Errorf("%s cannot be watched, so changes there are noticed at the regular check only: %w", dir, err))
			continue
		}
		wd := int32(n) //nolint:gosec // the kernel's watch descriptors are ints that fit
		if next[wd] == nil {
			next[wd] = map[string]bool{}
		}
		for name := range names {
			next[wd][name] = true
			fresh = fresh || !before[wd][name] && !before[wd][all]
		}
	}
	for wd := range before {
		if next[wd] == nil {
			_, _ = unix.InotifyRmWatch(inotify, uint32(wd)) //nolint:gosec // never negative; it fails where the folder is gone
		}
	}
	return fresh, problems
}

// Wake ends an Await, or the next one.
func (w *Watch) Wake(late bool) {
	w.mu.Lock()
	w.late, w.check = w.late || late, w.check || !late
	w.mu.Unlock()
	w.signal()
}

func (w *Watch) signal() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// Await blocks until there are changes, and returns them. It returns none when ctx ends.
func (w *Watch) Await(ctx context.Context) Changes {
	for ctx.Err() == nil {
		if c := w.Collect(); !c.None() {
			return c
		}
		select {
		case <-w.woken:
		case <-ctx.Done():
		}
	}
	return Changes{}
}

// Collect returns the changes until now. It does not block.
func (w *Watch) Collect() Changes {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := Changes{Late: w.late, Check: w.check, Written: map[string]bool{}, Deleted: map[string]bool{}}
	w.late, w.check = false, false
	for w.file != nil {
		n, err := unix.Read(w.fd, w.buf[:])
		if n <= 0 && !errors.Is(err, unix.EINTR) {
			break
		}
		w.decode(w.buf[:max(n, 0)], &c)
	}
	return c
}

// decode reads struct inotify_event (inotify(7)): wd, mask, cookie, length of name, name padded with NULs.
func (w *Watch) decode(buf []byte, c *Changes) {
	for len(buf) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(buf)) //nolint:gosec // it is an int32 there
		mask, cookie := binary.NativeEndian.Uint32(buf[4:]), binary.NativeEndian.Uint32(buf[8:])
		length := int(binary.NativeEndian.Uint32(buf[12:]))
		buf = buf[unix.SizeofInotifyEvent:]
		if length > len(buf) {
			c.Lost = true
			return
		}
		name := unix.ByteSliceToString(buf[:length])
		w.note(wd, mask, name, c)
		if w.places[wd][all] && name != "" && w.returned(place{wd, name}, mask, cookie) {
			c.Deleted[name] = true
		}
		buf = buf[length:]
	}
}

// note adds one event to the changes, if it matters.
func (w *Watch) note(wd int32, mask uint32, name string, c *Changes) {
	names := w.places[wd]
	switch {
	case mask&unix.IN_Q_OVERFLOW != 0:
		c.Lost = true
		clear(w.moved)
	case name == "":
		c.Seen = c.Seen || names != nil && mask&ofTheFolder != 0 || names[all]
	case names[all]:
		c.Seen = true
		c.Written[name] = c.Written[name] || mask&(unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO) != 0
		if mask&unix.IN_DELETE != 0 {
			c.Deleted[name] = true
		}
	default:
		c.Seen = c.Seen || names[name]
	}
}

// maxMoved limits the names that were moved to another folder and have not come back.
const maxMoved = 1000

// returned reports whether the event creates a name with a file that was moved to another folder before. A move within the
// folder is two events with one cookie; editors make backups so.
func (w *Watch) returned(at place, mask, cookie uint32) bool {
	switch {
	case mask&unix.IN_MOVED_FROM != 0:
		if len(w.moved) < maxMoved { // one more is taken for an editor's
			w.moved[at] = cookie
		}
		return false
	case mask&unix.IN_MOVED_TO != 0:
		maps.DeleteFunc(w.moved, func(from place, c uint32) bool { return from.wd == at.wd && c == cookie })
	case mask&(unix.IN_CREATE|unix.IN_DELETE) == 0:
		return false
	}
	_, left := w.moved[at]
	delete(w.moved, at)
	return left
}
