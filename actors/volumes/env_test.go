package volumes

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/cri"
)

var _ Operations = (*cri.Operations)(nil)

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

// podWith is a pod whose one container mounts all the volumes.
func podWith(uid string, volumes ...v1.Volume) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: uid}}
	pod.Spec.Volumes = volumes
	pod.Spec.Containers = []v1.Container{{Name: "c"}}
	for _, v := range volumes {
		mount := v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name}
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, mount)
	}
	return pod
}

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

func memoryVolume(name string) v1.Volume {
	v := emptyDirVolume(name)
	v.EmptyDir.Medium = v1.StorageMediumMemory
	return v
}

func emptyDirVolume(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}
}

func downwardVolume(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
		Items: []v1.DownwardAPIVolumeFile{{Path: "in/name", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
	}}}
}

func hostPathVolume(name, path string, kind v1.HostPathType) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path, Type: &kind}}}
}

// failure is a volume that could not be mounted.
type failure struct {
	volume, message string
	permanent       bool
}

func (o mountOutcome) failures() (out []failure) {
	for _, v := range o.volumes {
		if v.err != nil {
			out = append(out, failure{v.name, v.err.Error(), kinds.IsPermanent(v.err)})
		}
	}
	return out
}

func (o mountOutcome) paths() map[string]string {
	return state{}.after(o, time.Time{}).paths()
}

func newDisk(t testing.TB, list ...kinds.Plugin) disk {
	if list == nil {
		list = plugins(nil)
	}
	quiet := slog.New(slog.DiscardHandler)
	root := t.TempDir()
	t.Cleanup(func() { unmountBelow(t, root) })
	return disk{rootDir: root, plugins: list, ops: cri.NewOperations(), node: kinds.Facts{Log: quiet}, timeouts: defaultTimeouts}
}

func (d disk) pod(elements ...string) string {
	return filepath.Join(append([]string{d.rootDir, "pods"}, elements...)...)
}

// mountFolder mounts a folder of the disk and undoes it when the test ends.
func mountFolder(t *testing.T, target string) {
	t.Helper()
	mountOn(t, target, func() error { return unix.Mount(t.TempDir(), target, "", unix.MS_BIND, "") })
}

// mountMemoryFolder mounts a folder of a file system in memory, and undoes it when the test ends.
func mountMemoryFolder(t *testing.T, target string) {
	t.Helper()
	memory := t.TempDir()
	mountTmpfs(t, memory)
	folder := filepath.Join(memory, "folder")
	must(t, os.Mkdir(folder, 0o755))
	mountOn(t, target, func() error { return unix.Mount(folder, target, "", unix.MS_BIND, "") })
}

// mountTmpfs mounts a small file system and undoes it when the test ends.
func mountTmpfs(t *testing.T, target string) {
	t.Helper()
	mountOn(t, target, func() error { return unix.Mount("tmpfs", target, "tmpfs", 0, "size=64k") })
}

func mountOn(t *testing.T, target string, mount func() error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	if err := mount(); err != nil {
		if errors.Is(err, unix.EPERM) {
			t.Skipf("mounting is not allowed here: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(target, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) &&
			!errors.Is(err, unix.ENOENT) {
			t.Error(err)
		}
	})
}

func unmountNow(target string) error { return unix.Unmount(target, unix.MNT_DETACH) }

// unmountBelow undoes what a test that ended early left mounted.
func unmountBelow(t testing.TB, root string) {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(root))
	must(t, err)
	for _, m := range slices.Backward(mounts) {
		must(t, unmountNow(m.Mountpoint))
	}
}

// needMounts skips a test where the machine does not let it mount.
func needMounts(t *testing.T) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "probe")
	must(t, os.Mkdir(dir, 0o755))
	mountTmpfs(t, dir)
}
