package file

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// changes are what happened since the last look.
type changes struct {
	structure bool            // a name on the way to the manifests, or a folder itself: everything has to be found anew
	names     map[string]bool // names in the manifest folder; true when a writer was heard to be done
	deleted   map[string]bool // those of them that were deleted, whatever came after
	lost      bool            // events were lost: nothing that is known can be relied on
	late      bool            // a time that was waited for has come
	check     bool            // the regular check is due
}

func (c *changes) none() bool {
	return !c.structure && !c.lost && !c.late && !c.check && len(c.names) == 0
}

func (c *changes) name(n string, done bool) {
	if c.names == nil {
		c.names, c.deleted = map[string]bool{}, map[string]bool{}
	}
	c.names[n] = c.names[n] || done
}

// decode reads struct inotify_event (inotify(7)): wd, mask, cookie, length of name, name padded with NULs.
func (w *watch) decode(buf []byte, c *changes) {
	for len(buf) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(buf)) //nolint:gosec // it is an int32 there
		mask := binary.NativeEndian.Uint32(buf[4:])
		length := int(binary.NativeEndian.Uint32(buf[12:]))
		buf = buf[unix.SizeofInotifyEvent:]
		if length > len(buf) {
			c.lost = true
			return
		}
		w.note(wd, mask, unix.ByteSliceToString(buf[:length]), c)
		buf = buf[length:]
	}
}

// note adds one event to the changes, if anything depends on it.
func (w *watch) note(wd int32, mask uint32, name string, c *changes) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		c.lost = true
		return
	}
	in := w.interests[wd]
	switch {
	case in == nil:
	case name == "":
		c.structure = c.structure || mask&ofTheFolder != 0 || in.manifests
	case in.names[name]:
		c.structure = true
		fallthrough
	case in.manifests:
		if in.manifests && !ignored(name) {
			c.name(name, mask&(unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO) != 0)
			if mask&unix.IN_DELETE != 0 {
				c.deleted[name] = true
			}
		}
	}
}
