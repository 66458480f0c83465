package kinds

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func exists(t testing.TB, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func write(t testing.TB, path string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, nil, 0o644))
}

func mode(t testing.TB, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	must(t, err)
	return info.Mode()
}

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

func withGroup(pod *v1.Pod, gid int64) *v1.Pod {
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid}
	return pod
}

func group(t testing.TB, path string) uint32 {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Sys().(*syscall.Stat_t).Gid
}

// disk is a folder of pods, with the facts of the machine.
type disk struct {
	rootDir string
	node    Facts
}

func newDisk(t testing.TB) disk {
	root := t.TempDir()
	t.Cleanup(func() { volumestest.UnmountBelow(t, root) })
	return disk{root, Facts{Log: slog.New(slog.DiscardHandler)}}
}

func (d disk) pod(below string) string { return filepath.Join(d.rootDir, "pods", below) }

// with calls do with a pod's only volume.
func (d disk) with(t testing.TB, pod *v1.Pod, do func(Plugin, Folder, *v1.Volume) error) error {
	t.Helper()
	pods, err := OpenPods(d.rootDir)
	must(t, err)
	p, err := MakePod(pods, string(pod.UID), pod)
	must(t, errors.Join(err, pods.Close()))
	defer func() { must(t, p.Close()) }()
	p.Node, p.RenewAt = d.node, func(time.Time) {}
	v := &pod.Spec.Volumes[0]
	kind, err := PluginFor(All(), v)
	must(t, err)
	return do(kind, p, v)
}

func (d disk) mount(t testing.TB, pod *v1.Pod) (path string, err error) {
	t.Helper()
	err = d.with(t, pod, func(kind Plugin, p Folder, v *v1.Volume) (err error) {
		path, err = kind.Mount(t.Context(), p, v)
		return err
	})
	return path, err
}

// mountedAt mounts a pod's only volume and returns its path.
func mountedAt(t testing.TB, d disk, pod *v1.Pod) string {
	t.Helper()
	path, err := d.mount(t, pod)
	must(t, err)
	return path
}

func (d disk) stillMounted(t testing.TB, pod *v1.Pod) (is bool) {
	t.Helper()
	must(t, d.with(t, pod, func(kind Plugin, p Folder, v *v1.Volume) error { is = kind.Mounted(p, v); return nil }))
	return is
}

// unmount unmounts a pod's only volume, and checks that nothing of it remains.
func (d disk) unmount(t testing.TB, pod *v1.Pod) {
	t.Helper()
	must(t, d.with(t, pod, func(kind Plugin, p Folder, v *v1.Volume) error {
		err := kind.Unmount(t.Context(), p, v.Name)
		mounts, mountsErr := MountsIn(p)
		if found, foundErr := FoundVolumes(p); errors.Join(err, mountsErr, foundErr) == nil && len(found)+len(mounts) > 0 {
			t.Errorf("left are %v and %v", found, mounts)
		}
		return err
	}))
}
