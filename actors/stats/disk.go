package stats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/cadvisor/lib/fs"
	_ "github.com/google/cadvisor/lib/fs/btrfs/install"   // kinds of file systems to report
	_ "github.com/google/cadvisor/lib/fs/nfs/install"     // "
	_ "github.com/google/cadvisor/lib/fs/overlay/install" // "
	_ "github.com/google/cadvisor/lib/fs/tmpfs/install"   // "
	_ "github.com/google/cadvisor/lib/fs/vfs/install"     // "
	"github.com/google/cadvisor/lib/machine"
	"github.com/google/cadvisor/lib/model"
	"github.com/google/cadvisor/lib/utils/sysfs"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// space is the size and usage of a file system, or the usage of a part of it, in bytes and inodes.
type space struct {
	at                             time.Time
	capacity, available, used      uint64
	inodes, inodesFree, inodesUsed uint64
}

// spaceOf returns the space of the path's file system.
func spaceOf(path string) (space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return space{}, fmt.Errorf("the file system of %s: %w", path, err)
	}
	return spaceFrom(&st), nil
}

func spaceFrom(st *unix.Statfs_t) space {
	size := uint64(st.Frsize) //nolint:gosec // the kernel's sizes are not negative
	return space{
		at: time.Now(), capacity: st.Blocks * size, available: st.Bavail * size, used: (st.Blocks - st.Bfree) * size,
		inodes: st.Files, inodesFree: st.Ffree, inodesUsed: st.Files - st.Ffree,
	}
}

// imageSpace has the file systems of images and of containers' writable layers. They are equal if the runtime reports only one.
type imageSpace struct{ images, containers space }

// readImages reads usage and location of images from the runtime, and the free space from the kernel.
func (c *Collector) readImages() (imageSpace, error) {
	info, err := withTimeout(func(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
		return c.opts.CRI.ImageFsInfo(ctx)
	})
	if err != nil {
		return imageSpace{}, err
	}
	images, err := usedIn(info.GetImageFilesystems())
	if err != nil {
		return imageSpace{}, err
	}
	if len(info.GetContainerFilesystems()) == 0 {
		return imageSpace{images, images}, nil
	}
	containers, err := usedIn(info.GetContainerFilesystems())
	return imageSpace{images, containers}, err
}

func usedIn(list []*runtimeapi.FilesystemUsage) (space, error) {
	if len(list) == 0 {
		return space{}, errors.New("the runtime does not report the place of images")
	}
	out, err := spaceOf(list[0].GetFsId().GetMountpoint())
	out.used, out.inodesUsed = list[0].GetUsedBytes().GetValue(), list[0].GetInodesUsed().GetValue()
	return out, err
}

// readMachine reads the machine's properties.
func readMachine() (*model.MachineInfo, error) {
	disks, err := fs.NewFsInfo(fs.Context{})
	if err != nil {
		return nil, err
	}
	return machine.Info(sysfs.NewRealSysFs(), disks, true)
}

// ofAPod reports whether a mount is a container's root, a sandbox's /dev/shm or a volume. It comes and goes with its pod, and
// would count the node's disk or memory twice; three hundred of them were a quarter of an answer. The kubelet only has those
// mounted at its start.
func ofAPod(device, at, rootDir string) bool {
	return strings.HasPrefix(device, "overlay") && at != "/" || path.Base(at) == "shm" && at != "/dev/shm" ||
		strings.HasPrefix(at, path.Join(rootDir, "pods")+"/")
}

// readMounted reads the mounted file systems of the node, except the pods'.
func readMounted(rootDir string) ([]model.FsStats, error) {
	disks, err := fs.NewFsInfo(fs.Context{})
	if err != nil {
		return nil, err
	}
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return ofAPod(m.Source, m.Mountpoint, rootDir), false
	})
	if err != nil {
		return nil, err
	}
	at := map[string]struct{}{} // no file system of a pod is asked: its server may hang
	for _, m := range mounts {
		at[m.Mountpoint] = struct{}{}
	}
	list, err := disks.GetFsInfoForPath(at)
	out := make([]model.FsStats, 0, len(list))
	for _, d := range list {
		if at, _ := disks.GetMountpointForDevice(d.Device); ofAPod(d.Device, at, rootDir) { // one mounted in the meantime
			continue
		}
		s := model.FsStats{
			Device: d.Device, Type: d.Type.String(), Limit: d.Capacity, Usage: d.Capacity - d.Free, Available: d.Available,
			ReadsCompleted: d.DiskStats.ReadsCompleted, ReadsMerged: d.DiskStats.ReadsMerged,
			SectorsRead: d.DiskStats.SectorsRead, ReadTime: d.DiskStats.ReadTime,
			WritesCompleted: d.DiskStats.WritesCompleted, WritesMerged: d.DiskStats.WritesMerged,
			SectorsWritten: d.DiskStats.SectorsWritten, WriteTime: d.DiskStats.WriteTime,
			IoInProgress: d.DiskStats.IoInProgress, IoTime: d.DiskStats.IoTime, WeightedIoTime: d.DiskStats.WeightedIoTime,
		}
		if d.Inodes != nil && d.InodesFree != nil {
			s.HasInodes, s.Inodes, s.InodesFree = true, *d.Inodes, *d.InodesFree
		}
		out = append(out, s)
	}
	return out, err
}

// bootTime returns the time at which the machine started.
func bootTime() time.Time {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(info.Uptime) * time.Second).Truncate(time.Second)
}

// processes returns the number of tasks, and its limit.
func processes() (running, most int64, err error) {
	text, err := os.ReadFile("/proc/loadavg") // 0.20 0.18 0.12 1/80 11206; proc_loadavg(5)
	if err != nil {
		return 0, 0, err
	}
	words := strings.Fields(string(text))
	if len(words) < 4 {
		return 0, 0, errors.New("/proc/loadavg has no number of tasks")
	}
	_, tasks, _ := strings.Cut(words[3], "/")
	if running, err = strconv.ParseInt(tasks, 10, 64); err != nil {
		return 0, 0, err
	}
	for _, file := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, 0, err
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return 0, 0, err
		}
		if most == 0 || n < most {
			most = n
		}
	}
	return running, most, nil
}

// values returns a map's values, sorted.
func values(m map[string]string) []string { return slices.Sorted(maps.Values(m)) }
