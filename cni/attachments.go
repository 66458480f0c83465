package cni

import (
	"context"
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

// DefaultCacheDir is where runtimes that use libcni keep what they have attached, unless they say otherwise; containerd does not.
const DefaultCacheDir = "/var/lib/cni"

// ErrInUse says that processes run in the network namespace of an attachment, or in a cgroup that has its container's name: its
// address is theirs, whoever forgot them.
var ErrInUse = errors.New("its processes run")

// Attachments gives back what is attached of containers that their runtime does not know any more. It does so by DEL, with the
// configuration that was in force at ADD, of one container at a time: GC (CNI 1.1) is told what is to stay and takes all else,
// and others than the runtime may use the same networks.
type Attachments struct {
	BinDirs  []string
	CacheDir string // libcni's
	Proc     string // where the machine's processes are seen
	// Networks are those that are in force: by these is given back what libcni keeps nothing of.
	Networks []Network
}

// Of are those of a container; none is no error. Where libcni keeps nothing of it, its ADD was cut off, or what was kept is lost:
// then the addresses count that are reserved for it.
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

// Unrecorded are the containers for which addresses are reserved and of which libcni keeps nothing. A record that cannot be read
// is one, too: libcni names its file by network, container and interface.
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

func (a Attachments) config() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(a.BinDirs, a.CacheDir, &runner{})
}

// delTimeout bounds one DEL.
const delTimeout = 10 * time.Second

// Release has the plugins detach a container from all that it was attached to, and tells of how many networks with addresses that
// was. While its network namespace is in use nothing is done, and the error is ErrInUse. One that failed may be repeated.
func (a Attachments) Release(ctx context.Context, container string) (leases int, err error) {
	list, err := a.Of(container)
	if err != nil {
		return 0, err
	}
	for _, one := range list {
		err := a.unused(one.NetNS)
		if one.NetNS == "" {
			err = a.ended(container)
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

// ended says that no process is in a cgroup that has the container's name, as runtimes call them: of its network namespace
// nothing is known.
func (a Attachments) ended(container string) error {
	return a.noProcess("cgroup", func(file string) (bool, error) {
		text, err := os.ReadFile(file)
		return strings.Contains(string(text), container), err
	})
}

// unused says that no process is in the network namespace at path, or else why not.
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

// noProcess says that there is no process that uses something, by a file of its folder in proc; ErrInUse where there is one.
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
