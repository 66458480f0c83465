package kinds

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/cri/translate"
)

// medium is the storage of an emptyDir. Its kind is a type of file system; empty: the folder itself.
type medium struct {
	kind    string
	options string
	mode    fs.FileMode // of the folder
}

// mediumOf returns the medium that the source requests.
func mediumOf(p Folder, source *v1.EmptyDirVolumeSource) (medium, error) {
	m := medium{mode: 0o777}
	switch {
	case source.Medium == v1.StorageMediumDefault:
	case source.Medium == v1.StorageMediumMemory:
		m = memory(p, source.SizeLimit)
	case strings.HasPrefix(string(source.Medium), string(v1.StorageMediumHugePages)):
		size, err := pageSize(p.Pod, source.Medium)
		if err != nil {
			return m, err
		}
		m.kind, m.options = "hugetlbfs", fmt.Sprintf("pagesize=%d", size)
	default:
		return m, Permanent("emptyDir.medium %q is not known", source.Medium)
	}
	if source.Mode != nil {
		m.mode = fs.FileMode(*source.Mode & 0o777)
		if *source.Mode&unix.S_ISVTX != 0 {
			m.mode |= fs.ModeSticky
		}
	}
	return m, nil
}

// memory returns a tmpfs. It may grow to the smallest of the limit, the pod's own memory limit, and the memory that the node
// has for pods. Its mode is the kernel's mode of a tmpfs.
func memory(p Folder, limit *resource.Quantity) medium {
	m := medium{kind: "tmpfs", mode: 0o777 | fs.ModeSticky}
	size := p.Node.Allocatable.Memory().Value()
	atMost := func(bytes int64) {
		if bytes > 0 && (size == 0 || bytes < size) {
			size = bytes
		}
	}
	if limits := translate.PodLimits(p.Pod); translate.LimitsPod(p.Pod, v1.ResourceMemory) {
		atMost(limits.Memory().Value())
	}
	if limit != nil {
		atMost(limit.Value())
	}
	if size > 0 {
		m.options = fmt.Sprintf("size=%d", size)
	}
	return m
}

// pageSize returns the size of huge pages of a medium: the size in its name, or the only size that the pod requests.
func pageSize(pod *v1.Pod, asked v1.StorageMedium) (int64, error) {
	sizes := map[string]bool{}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for name := range list[i].Resources.Requests {
				if text, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
					sizes[text] = true
				}
			}
		}
	}
	text, named := strings.CutPrefix(string(asked), string(v1.StorageMediumHugePagesPrefix))
	switch {
	case named && !sizes[text]:
		return 0, Permanent("emptyDir.medium %s: no container requests huge pages of this size", asked)
	case named:
	case asked != v1.StorageMediumHugePages:
		return 0, Permanent("emptyDir.medium %q is not known", asked)
	case len(sizes) != 1:
		return 0, Permanent("emptyDir.medium HugePages is for pods that request huge pages of one size; "+
			"this one requests %d sizes", len(sizes))
	default:
		text = slices.Collect(maps.Keys(sizes))[0]
	}
	size, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, Permanent("emptyDir.medium %s: %q is no size", asked, text)
	}
	return size.Value(), nil
}

// mount mounts the medium on the folder.
func (m medium) mount(p Folder, folder string) error {
	if m.kind == "" {
		return nil
	}
	if m.kind != "tmpfs" {
		return p.Mount(folder, m.kind, m.options)
	}
	// Data in memory must not be swapped to the disk. Kernels before 6.3 do not support noswap (KEP-2400).
	err := p.Mount(folder, m.kind, strings.TrimPrefix(m.options+",noswap", ","))
	if errors.Is(err, unix.EINVAL) {
		err = p.Mount(folder, m.kind, m.options)
	}
	return err
}

// spareRoom is the space of a tmpfs in addition to that of its files, in bytes.
const spareRoom = 64 << 10

// makeRoom mounts a tmpfs on the folder with room for the files, or enlarges the mounted one: the files are written beside
// those that they replace. The memory is charged to the agent, so the tmpfs is no larger than needed.
func makeRoom(p Folder, folder string, files map[string]file, mounted bool) error {
	page := int64(os.Getpagesize())
	need := int64(0)
	for _, f := range files {
		need += (int64(len(f.data))+page-1)/page*page + page // the last is for a link with a long name
	}
	size := 2*need + spareRoom
	if !mounted {
		return medium{kind: "tmpfs", options: fmt.Sprintf("size=%d", size)}.mount(p, folder)
	}
	f, err := p.OpenBeneath(folder, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	var stat unix.Statfs_t
	err = unix.Fstatfs(int(f.Fd()), &stat)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	block := int64(stat.Bsize)
	total, used := int64(stat.Blocks)*block, int64(stat.Blocks-stat.Bfree)*block //nolint:gosec // sizes of memory
	if total == 0 || total >= used+need {
		return nil // there is no limit, as a kubelet may have mounted it, or there is room
	}
	options := fmt.Sprintf("size=%d", max(size, used+need+spareRoom))
	err = p.Remount(folder, options)
	if errors.Is(err, unix.EINVAL) { // kernel 6.4 and some later ones require noswap again if it was set
		err = p.Remount(folder, options+",noswap")
	}
	return err
}

// isMemory reports whether the volume's own memory is mounted on its folder, and not a part of another file system of memory.
func isMemory(p Folder, folder string) bool {
	mounted, err := ownMount(p, folder, true)
	return err == nil && mounted
}
