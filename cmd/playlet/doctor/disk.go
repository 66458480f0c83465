package doctor

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"github.com/prometheus/procfs"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/resources"
)

// fileSystem is one file system, with the folders on it that fill it.
type fileSystem struct {
	Disk
	uses, places, signals []string // pods; pods in /var/lib/kubelet; nodefs
}

// checkDisk compares the free space of each file system with the thresholds at which pods are evicted.
func checkDisk(ctx context.Context, m *Machine) []Finding {
	all, found := m.fileSystems(ctx)
	var good []string
	for _, on := range all {
		places := listed(on.places)
		low := m.short(places, on.signals, ".available", on.Free, on.Size, bytesText)
		if on.Inodes > 0 {
			low = append(low, m.short(places, on.signals, ".inodesFree", on.InodesFree, on.Inodes, inodesText)...)
		}
		if len(on.signals) == 0 {
			low = warn("watch it, or keep logs and pods on one file system: like a kubelet, the agent measures that of pods",
				"%s: %s (%d%%) free, and no pod is evicted when it is full", places, bytesText(on.Free),
				percent(on.Free, on.Size))
		}
		found = append(found, low...)
		if len(low) == 0 {
			good = append(good, fmt.Sprintf("%s %s (%d%%)", listed(on.uses), bytesText(on.Free), percent(on.Free, on.Size)))
		}
	}
	if len(good) > 0 {
		found = append(found, ok("free for %s", strings.Join(good, "; for "))...)
	}
	return found
}

// fileSystems are those of pods, logs and images, and the findings of unreadable ones.
func (m *Machine) fileSystems(ctx context.Context) (all []*fileSystem, found []Finding) {
	add := func(use, path, signal string) {
		disk, err := m.System.Disk(existing(path))
		if err != nil {
			found = append(found, warn("check that it is readable", "%s: %v", use, err)...)
			return
		}
		i := slices.IndexFunc(all, func(on *fileSystem) bool { return on.Device == disk.Device })
		if i < 0 {
			i, all = len(all), append(all, &fileSystem{Disk: disk})
		}
		on := all[i]
		on.places = append(on.places, use+" in "+path)
		if !slices.Contains(on.uses, use) {
			on.uses = append(on.uses, use)
		}
		if signal != "" && !slices.Contains(on.signals, signal) {
			on.signals = append(on.signals, signal)
		}
	}
	add("pods", m.Node.RootDir, "nodefs")
	add("logs", m.Node.Kubelet.PodLogsDir, "") // nodefs is the file system of pods
	if facts, err := m.askRuntime(ctx); err == nil {
		for _, at := range facts.images {
			if at != m.Node.RootDir && at != m.Node.Kubelet.PodLogsDir {
				add("images", at, "imagefs")
			}
		}
	}
	return all, found
}

// listed joins words: "a", "a and b", "a, b and c".
func listed(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// nearly is how close to a threshold is worth saying: this much of the whole above it, in percent.
const nearly = 5

// short returns a finding if the free amount is below a hard eviction threshold, or hardly above. Of several signals, it reports
// the one that evicts first.
func (m *Machine) short(what string, signals []string, suffix string, free, size uint64, text func(uint64) string) []Finding {
	var limit uint64
	signal := ""
	for _, s := range signals {
		if l, set := threshold(m.Node.Kubelet.EvictionHard[s+suffix], size); set && (signal == "" || l > limit) {
			limit, signal = l, s+suffix
		}
	}
	if signal == "" {
		return nil
	}
	seen := fmt.Sprintf("%s: %s (%d%%) free, and pods are evicted below %s (%s)", what, text(free), percent(free, size),
		text(limit), signal)
	switch {
	case free < limit:
		return fail("free some space, or lower evictionHard", "%s", seen)
	case free < limit+size/100*nearly:
		return warn("free some space before that happens", "%s", seen)
	}
	return nil
}

// threshold reads one of evictionHard: a quantity, or a part of the whole; 0% and 100% turn it off.
func threshold(text string, whole uint64) (limit uint64, set bool) {
	if part, isPart := strings.CutSuffix(text, "%"); isPart {
		f, err := strconv.ParseFloat(part, 64)
		if err != nil || f <= 0 || f >= 100 {
			return 0, false
		}
		return uint64(float64(whole) * f / 100), true
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 {
		return 0, false
	}
	return uint64(q.Value()), true //nolint:gosec // positive
}

func percent(part, whole uint64) uint64 {
	if whole == 0 {
		return 0
	}
	return uint64(float64(part) / float64(whole) * 100)
}

// bytesText is a size for people.
func bytesText(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/1024, 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	return fmt.Sprintf("%.1f %ciB", f, units[i])
}

func inodesText(n uint64) string { return fmt.Sprintf("%d inodes", n) }

// checkMemory compares the memory there is with the eviction threshold, and looks for swap.
func checkMemory(_ context.Context, m *Machine) []Finding {
	total, available, err := m.memory()
	if err != nil {
		return skip("%v", err)
	}
	found := m.short("memory", []string{"memory"}, ".available", available, total, bytesText)
	if len(found) > 0 {
		found[0].Do = "stop what is not needed, or add memory"
	}
	swaps, err := resources.Swaps(m.Proc)
	if err != nil {
		return append(found, skip("%v", err)...)
	}
	if err := m.Node.CheckSwap(swaps); err != nil {
		found = append(found, fail("swapoff -a and remove it from /etc/fstab, or set failSwapOn: false and choose "+
			"memorySwap.swapBehavior; otherwise the agent does not start", "%v", err)...)
	}
	text := "no swap"
	if len(swaps) > 0 {
		text = "swap for pods: " + cmp.Or(m.Node.Kubelet.MemorySwap.SwapBehavior, "NoSwap")
	}
	return or(found, ok("%s of %s available, %s", bytesText(available), bytesText(total), text))
}

// memory returns the machine's total and available memory, in bytes.
func (m *Machine) memory() (total, available uint64, err error) {
	proc, err := procfs.NewFS(m.Proc)
	if err != nil {
		return 0, 0, err
	}
	info, err := proc.Meminfo()
	total, available = ptr.Deref(info.MemTotalBytes, 0), ptr.Deref(info.MemAvailableBytes, 0)
	if err == nil && total == 0 {
		err = fmt.Errorf("%s does not tell", filepath.Join(m.Proc, "meminfo"))
	}
	return total, available, err
}

// unfit are file systems on which pods' folders do not work as they should.
var unfit = map[string]string{
	"nfs": "locks and ownership belong to another machine", "nfs4": "locks and ownership belong to another machine",
	"cifs": "it has no ownership", "vfat": "it has no ownership", "9p": "it has no inotify",
}

// checkMounts examines the mount of the root folder.
func checkMounts(_ context.Context, m *Machine) []Finding {
	root, err := filepath.EvalSymlinks(existing(m.Node.RootDir))
	if err != nil {
		return fail("check that the folders above --root-dir are readable", "%v", err)
	}
	all, err := m.mounts(m.RunningPID)
	if err != nil {
		return fail("mount /proc", "%v", err)
	}
	at := mountOf(all, root)
	if at == nil {
		return skip("the mount that %s is on cannot be found", root)
	}
	var found []Finding
	options := strings.Split(at.Options, ",")
	if slices.Contains(options, "ro") {
		found = append(found, fail("mount it read-write, or choose another --root-dir",
			"%s is on %s, which is mounted read-only", m.Node.RootDir, at.Mountpoint)...)
	} else if err := m.System.Writable(root); err != nil {
		found = append(found, fail("run as root, or choose another --root-dir", "%v", err)...)
	}
	if why, bad := unfit[at.FSType]; bad {
		found = append(found, warn("choose a --root-dir on a disk of this machine", "%s is on %s: %s", m.Node.RootDir, at.FSType,
			why)...)
	}
	for option, what := range map[string]string{"noexec": "programs in volumes cannot be run",
		"nosuid": "set-user-ID programs in volumes run without"} {
		if slices.Contains(options, option) {
			found = append(found, warn("mount -o remount,"+strings.TrimPrefix(option,
				"no")+" "+at.Mountpoint+", unless this is intended", "%s is mounted %s: %s", at.Mountpoint, option, what)...)
		}
	}
	shared := slices.ContainsFunc(strings.Fields(at.Optional), func(o string) bool { return strings.HasPrefix(o, "shared:") })
	if !shared {
		found = append(found, warn("mount --make-rshared "+at.Mountpoint+" before the runtime starts; systemd does it for /",
			"%s is not mounted shared: pods with mountPropagation do not see later mounts, and the runtime may "+
				"refuse them", at.Mountpoint)...)
	}
	return or(found, ok("%s is on %s (%s), shared", m.Node.RootDir, at.Mountpoint, at.FSType))
}

// mountOf is the mount that a path without links is on: the longest that holds it, the last of several at one place.
func mountOf(all []*mountinfo.Info, path string) *mountinfo.Info {
	var best *mountinfo.Info
	for _, at := range all {
		inside := at.Mountpoint == path || at.Mountpoint == "/" || strings.HasPrefix(path, at.Mountpoint+"/")
		if inside && (best == nil || len(at.Mountpoint) >= len(best.Mountpoint)) {
			best = at
		}
	}
	return best
}
