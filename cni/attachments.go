package cni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"
)

// DefaultCacheDir is where runtimes that use libcni keep what they have attached, unless they say otherwise; containerd does not.
const DefaultCacheDir = "/var/lib/cni"

// ErrInUse says that processes run in the network namespace of an attachment: its address is theirs, whoever forgot them.
var ErrInUse = errors.New("processes run in its network namespace")

// Attachments gives back what is attached of containers that their runtime does not know any more. It does so by DEL, with the
// configuration that was in force at ADD, of one container at a time: GC (CNI 1.1) is told what is to stay and takes all else,
// and others than the runtime may use the same networks.
type Attachments struct {
	BinDirs  []string
	CacheDir string // libcni's
	Proc     string // where the machine's processes are seen
}

// Of are those of a container; none is no error.
func (a Attachments) Of(container string) ([]*libcni.NetworkAttachment, error) {
	if container == "" {
		return nil, errors.New("a container without an ID stands for all") // to libcni
	}
	return a.config().GetCachedAttachments(container)
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
		if err := a.unused(one.NetNS); err != nil {
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

// unused says that no process is in the network namespace at path, or else why not.
func (a Attachments) unused(path string) error {
	var at unix.Stat_t
	if err := unix.Stat(path, &at); errors.Is(err, fs.ErrNotExist) || path == "" {
		return nil
	} else if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(a.Proc, "[0-9]*/ns/net"))
	if err == nil && len(files) == 0 {
		err = errors.New("no processes are seen at all")
	}
	for _, file := range files {
		if file == filepath.Join(a.Proc, "1/ns/net") {
			continue // the machine's own, which not every root may look at
		}
		space, gone := os.Readlink(file)
		if gone == nil && space == fmt.Sprintf("net:[%d]", at.Ino) {
			return ErrInUse
		}
		if gone != nil && !errors.Is(gone, fs.ErrNotExist) && !errors.Is(gone, unix.ESRCH) {
			return gone
		}
	}
	return err
}
