package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"
)

// DefaultCacheDir is libcni's default folder for records of attachments. containerd uses it.
const DefaultCacheDir = "/var/lib/cni"

// ErrInUse is returned when processes run in the network namespace of an attachment, or in a cgroup with its container's
// name. They still use its address.
var ErrInUse = errors.New("its processes run")

// Attachments releases the network attachments of containers that their runtime has forgotten. It uses DEL, container by
// container, with the configuration in force at ADD. GC (CNI 1.1) would remove everything except a given list, and other
// users may share the networks.
type Attachments struct {
	BinDirs  []string
	CacheDir string // libcni's
	Proc     string // where the machine's processes are seen
	// Networks are the networks in force. They release attachments without a record of libcni.
	Networks []Network
}

// Of returns the attachments of a container; none is no error. Without a record of libcni, an ADD was interrupted or the
// record is lost: Of then returns one for each interface with a reserved address.
func (a Attachments) Of(container string) ([]*libcni.NetworkAttachment, error) {
	if container == "" {
		return nil, errors.New("the container has no ID: libcni would give the attachments of all") // to libcni
	}
	list, err := a.config().GetCachedAttachments(container)
	if err != nil || len(list) > 0 {
		return list, err
	}
	for i := range a.Networks {
		n := &a.Networks[i]
		reserved := map[string]bool{} // by interface: one may have several addresses
		for _, l := range n.leases() {
			if l.container != container || reserved[l.ifname] {
				continue
			}
			reserved[l.ifname] = true
			config, err := n.inlined()
			if err != nil {
				return nil, err
			}
			list = append(list, &libcni.NetworkAttachment{ContainerID: container, Network: n.Name, IfName: l.ifname,
				Config: config})
		}
	}
	return list, nil
}

// Unrecorded returns the containers with reserved addresses and no record of libcni. An unreadable record counts: its file
// name contains network, container and interface.
func (a Attachments) Unrecorded() ([]string, error) {
	ids := map[string]bool{}
	for i := range a.Networks {
		for _, l := range a.Networks[i].leases() {
			ids[l.container] = l.container != ""
		}
	}
	records, err := os.ReadDir(filepath.Join(a.CacheDir, "results")) // after the addresses: an ADD may end meanwhile
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	maps.DeleteFunc(ids, func(id string, reserved bool) bool {
		recorded := func(f fs.DirEntry) bool { return strings.Contains(f.Name(), "-"+id+"-") }
		return !reserved || slices.ContainsFunc(records, recorded)
	})
	return slices.Sorted(maps.Keys(ids)), nil
}

// maxRecord is the maximum size in bytes of a record that is examined. Theirs is a few kilobytes.
const maxRecord = 1 << 20

// DropDamaged removes the records of these containers that are no JSON, as a power cut leaves them, and returns their names.
// libcni before 1.2, which containerd 1.6 and 1.7 have, cannot release an attachment with such a record, so that the runtime
// could never stop the sandbox (k3s-io/k3s#6185). Later versions remove it, too. No ADD of a container may be in progress,
// since it writes the record in place.
func (a Attachments) DropDamaged(containers []string) (dropped []string, err error) {
	dir := filepath.Join(a.CacheDir, "results")
	records, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	for _, f := range records {
		is := func(id string) bool { return id != "" && strings.Contains(f.Name(), "-"+id+"-") }
		info, infoErr := f.Info()
		if !slices.ContainsFunc(containers, is) || infoErr != nil || !info.Mode().IsRegular() || info.Size() > maxRecord {
			continue
		}
		path := filepath.Join(dir, f.Name())
		text, readErr := os.ReadFile(path)
		if readErr != nil || json.Valid(text) {
			continue
		}
		if removeErr := os.Remove(path); removeErr != nil {
			err = errors.Join(err, removeErr)
			continue
		}
		dropped = append(dropped, f.Name())
	}
	return dropped, err
}

func (a Attachments) config() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(a.BinDirs, a.CacheDir, &runner{})
}

// delTimeout bounds one DEL.
const delTimeout = 10 * time.Second

// Release calls DEL for all attachments of a container, and returns the number of released networks with IPAM. It returns
// ErrInUse, and does nothing, while the network namespace is in use. It may be repeated after a failure.
func (a Attachments) Release(ctx context.Context, container string) (leases int, err error) {
	list, err := a.Of(container)
	if err != nil {
		return 0, err
	}
	for _, one := range list {
		err := a.unused(one.NetNS)
		if one.NetNS == "" {
			err = a.inUse(container)
		}
		if err != nil {
			return 0, err
		}
	}
	var errs []error
	for _, one := range slices.Backward(list) {
		conf, err := libcni.NetworkConfFromBytes(one.Config)
		if err == nil {
			err = a.del(ctx, conf, one)
		}
		if err != nil {
			errs = append(errs, &StepError{Del, one.Network, err})
			continue
		}
		n := newNetwork("", one.IfName, conf)
		if slices.ContainsFunc(n.Plugins, func(p Plugin) bool { return p.IPAM != "" }) {
			leases++
		}
	}
	return leases, errors.Join(errs...)
}

func (a Attachments) del(ctx context.Context, conf *libcni.NetworkConfigList, one *libcni.NetworkAttachment) error {
	ctx, cancel := context.WithTimeout(ctx, delTimeout)
	defer cancel()
	rt := &libcni.RuntimeConf{
		ContainerID: one.ContainerID, IfName: one.IfName, Args: one.CniArgs, CapabilityArgs: one.CapabilityArgs, NetNS: one.NetNS,
	}
	var at unix.Statfs_t
	if err := unix.Statfs(one.NetNS, &at); err != nil || at.Type != unix.NSFS_MAGIC {
		rt.NetNS = "" // it is gone; a file may be left that was mounted on
	}
	return a.config().DelNetworkList(ctx, conf, rt)
}

// inUse returns ErrInUse if a process is in a cgroup with the container's name. It serves attachments whose network namespace
// is unknown.
func (a Attachments) inUse(container string) error {
	return a.noProcess("cgroup", func(file string) (bool, error) {
		text, err := os.ReadFile(file)
		return strings.Contains(string(text), container), err
	})
}

// unused returns ErrInUse if a process is in the network namespace at path.
func (a Attachments) unused(path string) error {
	var at unix.Stat_t
	if err := unix.Stat(path, &at); errors.Is(err, fs.ErrNotExist) || path == "" {
		return nil
	} else if err != nil {
		return err
	}
	return a.noProcess("ns/net", func(file string) (bool, error) {
		if file == filepath.Join(a.Proc, "1/ns/net") {
			return false, nil // the machine's own, which not every root may look at
		}
		space, err := os.Readlink(file)
		return space == fmt.Sprintf("net:[%d]", at.Ino), err
	})
}

// noProcess returns ErrInUse if uses is true for the file of this name of any process.
func (a Attachments) noProcess(name string, uses func(file string) (bool, error)) error {
	files, err := filepath.Glob(filepath.Join(a.Proc, "[0-9]*", name))
	if err == nil && len(files) == 0 {
		err = errors.New("/proc shows no processes")
	}
	for _, file := range files {
		used, gone := uses(file)
		if used {
			return ErrInUse
		}
		if gone != nil && !errors.Is(gone, fs.ErrNotExist) && !errors.Is(gone, unix.ESRCH) {
			return gone
		}
	}
	return err
}
