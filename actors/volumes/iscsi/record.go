package iscsi

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
)

const (
	// RecordFile is the kubelet's name of a record, in the folder on which the volume is mounted.
	RecordFile = "iscsi.json"
	// foundPrefix begins the names of files in the top folder: one for each session that others logged in.
	foundPrefix = "found-"
	// DevicesFolder has the records of a kubelet's block volumes.
	DevicesFolder = "volumeDevices"
	maxRecord     = 64 << 10 // bytes
)

// Top returns the kubelet's folder of iSCSI volumes.
func Top(rootDir string) string { return filepath.Join(rootDir, "plugins", PluginName) }

// Record describes a volume that is logged in, or about to be. Its fields are the kubelet's.
type Record struct {
	VolName       string
	Portals       []string
	Iqn           string
	Lun           string
	InitIface     string
	Iface         string
	InitiatorName string
}

// record returns the record of a source.
func (s Source) record() Record {
	return Record{VolName: s.Volume, Portals: s.portals(), Iqn: s.Target, Lun: strconv.Itoa(int(s.LUN)),
		InitIface: s.Interface, Iface: s.iface(), InitiatorName: s.Initiator}
}

// UniqueName returns the name of the volume on the Node, as a kubelet rebuilds it after its restart.
func (r Record) UniqueName() string {
	return fmt.Sprintf("%s/%s:%s:%s", PluginName, r.Portals[0], r.Iqn, r.Lun)
}

// check returns an error if a record was damaged.
func (r Record) check() error {
	ok := len(r.Portals) > 0 && names.MatchString(r.Iqn) && isWord(r.Iface) &&
		!slices.ContainsFunc(r.Portals, func(p string) bool { return !isPortal(p) })
	if _, err := strconv.ParseUint(r.Lun, 10, 16); err != nil || !ok {
		return errors.New("the record of an iSCSI volume is damaged")
	}
	return nil
}

// sessions returns the sessions of the volume, one for each portal.
func (r Record) sessions() (out []sessionKey) {
	for _, p := range r.Portals {
		out = append(out, sessionKey{r.Iqn, p, r.Iface})
	}
	return out
}

func (r Record) has(key sessionKey) bool { return slices.ContainsFunc(r.sessions(), key.isSame) }

// Records reads the records in the kubelet's folder of iSCSI volumes, by their folders below it, also those of a kubelet's block
// volumes. It reads no volume: a record is under the mount of its volume. A record that is lost, or damaged, is replaced by the
// one that the folder's name describes. Folders of other names are omitted.
func Records(rootDir string) (map[string]Record, error) {
	under, err := unmounted(Top(rootDir))
	if err != nil || under == nil {
		return nil, err
	}
	defer under.Close() //nolint:errcheck // read only
	out := map[string]Record{}
	for _, top := range []string{"", DevicesFolder} {
		ifaces, listErr := folders(under, top, "iface-")
		err = errors.Join(err, listErr)
		for _, iface := range ifaces {
			volumes, listErr := folders(under, iface, "")
			err = errors.Join(err, listErr)
			for _, folder := range volumes {
				r, is, readErr := readRecord(filepath.Join(descriptor(under), folder))
				if err = errors.Join(err, readErr); readErr != nil {
					continue
				}
				if !is {
					r, is = parse(folder)
				}
				if is {
					out[folder] = r
				}
			}
		}
	}
	return out, err
}

// folders lists the folders in a folder whose names have a prefix, as paths below under. An absent folder has none.
func folders(under *os.File, folder, prefix string) (out []string, err error) {
	entries, err := os.ReadDir(filepath.Join(descriptor(under), folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), prefix) {
			out = append(out, filepath.Join(folder, e.Name()))
		}
	}
	return out, err
}

// readRecord reads the record in a folder, and reports whether there is a valid one. The error is of the disk or the process.
func readRecord(folder string) (r Record, is bool, err error) {
	f, err := os.OpenFile(filepath.Join(folder, RecordFile), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return r, false, nil
	}
	if err != nil {
		return r, false, err
	}
	defer f.Close() //nolint:errcheck // read only
	text, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if errors.Is(err, unix.EISDIR) {
		return r, false, nil
	}
	return r, err == nil && json.Unmarshal(text, &r) == nil && r.check() == nil, err
}

// parse returns the record that the name of a folder describes: iface-<interface>/<portal>-<target>-lun-<n>.
func parse(folder string) (Record, bool) {
	iface, name := filepath.Split(strings.TrimPrefix(folder, DevicesFolder+"/"))
	iface = strings.TrimSuffix(strings.TrimPrefix(iface, "iface-"), "/")
	rest := strings.LastIndex(name, "-lun-")
	if rest < 0 {
		return Record{}, false
	}
	for _, kind := range []string{"-iqn.", "-eui.", "-naa."} {
		if at := strings.Index(name[:rest], kind); at > 0 {
			r := Record{Portals: []string{name[:at]}, Iqn: name[at+1 : rest], Lun: name[rest+len("-lun-"):],
				InitIface: iface, Iface: iface}
			return r, r.check() == nil
		}
	}
	return Record{}, false
}

// unmounted opens a copy of the mount with a folder, without the mounts on and below the folder; nil: there is no such folder.
func unmounted(path string) (*os.File, error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil // also without the privilege to copy mounts
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return nil, &os.PathError{Op: "open_tree", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	// Since Linux 6.15 later mounts would appear in the copy, and with them the files of volumes.
	private := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &private); err != nil && !errors.Is(err, unix.ENOSYS) {
		return nil, errors.Join(&os.PathError{Op: "mount_setattr", Path: path, Err: err}, f.Close())
	}
	return f, nil
}

func descriptor(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// Write writes the record of a source into its folder, which must not be a mount point.
func (s Source) Write(top *safepath.Root) error {
	text, err := json.Marshal(s.record())
	if err != nil {
		return err
	}
	const part = RecordFile + ".new"
	f, err := top.OpenBeneath(filepath.Join(s.Folder(), part), unix.O_CREAT|unix.O_TRUNC|unix.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return top.Rename(filepath.Join(s.Folder(), part), filepath.Join(s.Folder(), RecordFile))
}

// marker returns the name of the file that marks a session of others.
func (k sessionKey) marker() string {
	host, port := split(k.portal)
	sum := sha256.Sum256([]byte(strings.Join([]string{k.target, host, port, k.iface}, "\n")))
	return fmt.Sprintf("%s%x", foundPrefix, sum[:16])
}
