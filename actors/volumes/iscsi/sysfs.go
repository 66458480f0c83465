package iscsi

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/playlet-dev/playlet/actors/volumes/blockmap"
)

// sessionKey identifies a session: the initiator's interface, and a portal of a target.
type sessionKey struct{ target, portal, iface string }

func (k sessionKey) isSame(o sessionKey) bool {
	return k.target == o.target && k.iface == o.iface && isSame(k.portal, o.portal)
}

// String returns the session for messages.
func (k sessionKey) String() string { return fmt.Sprintf("target %s at portal %s", k.target, k.portal) }

// session is a session of the kernel.
type session struct {
	key   sessionKey
	id    string // its number
	state string // e.g. LOGGED_IN
	path  string // the folder of its devices
	host  string // the name of its SCSI host, e.g. host3
}

// sysfs is the kernel's view of sessions and disks: the path of sysfs.
type sysfs string

// value returns the content of a file; empty: it is not there.
func value(elements ...string) string {
	text, _ := os.ReadFile(filepath.Join(elements...)) // the session or the disk may be gone
	return strings.TrimSpace(string(text))
}

// sessions lists the sessions.
func (f sysfs) sessions() (out []session, err error) {
	folder := filepath.Join(string(f), "class/iscsi_session")
	entries, err := os.ReadDir(folder)
	if os.IsNotExist(err) { // the kernel's module is not loaded
		return nil, nil
	}
	for _, e := range entries {
		id := strings.TrimPrefix(e.Name(), "session")
		path, linkErr := filepath.EvalSymlinks(filepath.Join(folder, e.Name(), "device"))
		if linkErr != nil {
			continue // it has ended
		}
		connection := filepath.Join(string(f), "class/iscsi_connection", "connection"+id+":0")
		host, port := value(connection, "persistent_address"), value(connection, "persistent_port")
		if strings.Contains(host, ":") {
			host = "[" + strings.Trim(host, "[]") + "]"
		}
		out = append(out, session{
			id: id, path: path, state: value(folder, e.Name(), "state"), host: filepath.Base(filepath.Dir(path)),
			key: sessionKey{value(folder, e.Name(), "targetname"), host + ":" + port, value(folder, e.Name(), "ifacename")},
		})
	}
	return out, err
}

// find returns the session with a key; nil: there is none.
func (f sysfs) find(key sessionKey) (*session, error) {
	all, err := f.sessions()
	if i := slices.IndexFunc(all, func(s session) bool { return s.key.isSame(key) }); i >= 0 {
		return &all[i], nil
	}
	return nil, err
}

// disk is a disk of a session.
type disk struct {
	path string // its folder
	lun  string
}

func (d disk) name() string { return filepath.Base(d.path) }

// disks lists the disks of a session. iSCSI has one channel and one target in a host.
func (s session) disks() (out []disk) {
	found, _ := filepath.Glob(filepath.Join(s.path, "target*", "*:0:0:*", "block", "*")) // the pattern is a valid one
	for _, path := range found {
		address := filepath.Base(filepath.Dir(filepath.Dir(path)))
		out = append(out, disk{path: path, lun: address[strings.LastIndex(address, ":")+1:]})
	}
	return out
}

// disk returns the session's disk with a logical unit.
func (s session) disk(lun string) (disk, bool) {
	all := s.disks()
	i := slices.IndexFunc(all, func(d disk) bool { return d.lun == lun })
	if i < 0 {
		return disk{}, false
	}
	return all[i], true
}

// partitions returns the names of the disk and of its partitions.
func (d disk) partitions() []string {
	out := []string{d.name()}
	found, _ := filepath.Glob(filepath.Join(d.path, "*", "partition")) // the pattern is a valid one
	for _, path := range found {
		out = append(out, filepath.Base(filepath.Dir(path)))
	}
	return out
}

// multipath returns the name of the multipath device over the disk; empty: there is none.
func (f sysfs) multipath(d disk) string {
	holders, _ := os.ReadDir(filepath.Join(d.path, "holders")) // the disk may be gone
	for _, h := range holders {
		if strings.HasPrefix(value(string(f), "class/block", h.Name(), "dm/uuid"), "mpath-") {
			return h.Name()
		}
	}
	return ""
}

// node returns the path of the node of a disk.
func node(name string) string { return filepath.Join("/dev", name) }

// checkNode returns an error if the node of a disk is absent or is the node of another device.
func (f sysfs) checkNode(name string) error {
	number := value(string(f), "class/block", name, "dev")
	at, err := blockmap.At(node(name))
	if err == nil && fmt.Sprintf("%d:%d", at.Major, at.Minor) != number {
		err = fmt.Errorf("it is not the device %s", number)
	}
	if err != nil {
		return fmt.Errorf("the disk %s: %w", node(name), err)
	}
	return nil
}

// scan requests the kernel to look for one logical unit of a session. It blocks until the target answers.
func (f sysfs) scan(s session, lun string) error {
	return write("0 0 "+lun, string(f), "class/scsi_host", s.host, "scan")
}

// remove removes a disk from the kernel, which forgets its size and content. The target keeps both.
func (d disk) remove() error { return write("1", d.path, "device", "delete") }

func write(text string, elements ...string) error {
	f, err := os.OpenFile(filepath.Join(elements...), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
