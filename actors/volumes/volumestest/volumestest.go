// Package volumestest has helpers for tests of volumes and of their kinds: pods with volumes, objects, and mounts that are
// undone.
package volumestest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
)

// Hidden is the value in the Secret of [ObjectsOf].
const Hidden = "hunter2"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// PodWith returns a pod with one container that mounts all the volumes.
func PodWith(uid string, volumes ...v1.Volume) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: uid}}
	pod.Spec.Volumes = volumes
	pod.Spec.Containers = []v1.Container{{Name: "c"}}
	for _, v := range volumes {
		mount := v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name}
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, mount)
	}
	return pod
}

// MemoryVolume returns an emptyDir in memory.
func MemoryVolume(name string) v1.Volume {
	v := EmptyDirVolume(name)
	v.EmptyDir.Medium = v1.StorageMediumMemory
	return v
}

// EmptyDirVolume returns an emptyDir on the disk.
func EmptyDirVolume(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}
}

// HostPathVolume returns a path of the machine as a volume.
func HostPathVolume(name, path string, kind v1.HostPathType) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path, Type: &kind}}}
}

// MountTmpfs mounts a small file system and undoes it when the test ends.
func MountTmpfs(t *testing.T, target string) {
	t.Helper()
	MountOn(t, target, func() error { return unix.Mount("tmpfs", target, "tmpfs", 0, "size=64k") })
}

// MountOn mounts something on a target, and unmounts it when the test ends, unless the test has done so.
func MountOn(t *testing.T, target string, mount func() error) {
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

// UnmountNow undoes the topmost mount on a target.
func UnmountNow(target string) error { return unix.Unmount(target, unix.MNT_DETACH) }

// UnmountBelow undoes mounts that a test left when it ended early.
func UnmountBelow(t testing.TB, root string) {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(root))
	must(t, err)
	for _, m := range slices.Backward(mounts) {
		must(t, UnmountNow(m.Mountpoint))
	}
}

// NeedMounts skips a test if the machine does not allow mounts.
func NeedMounts(t *testing.T) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "probe")
	must(t, os.Mkdir(dir, 0o755))
	MountTmpfs(t, dir)
}

// ObjectsOf returns a set with a ConfigMap "settings" and a Secret "password".
func ObjectsOf(color string) *objectset.Set {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ns", Name: name} }
	return &objectset.Set{
		ConfigMaps: map[objectset.Key]*v1.ConfigMap{{Namespace: "ns", Name: "settings"}: {
			ObjectMeta: meta("settings"), Data: map[string]string{"color": color, "size": "9"},
			BinaryData: map[string][]byte{"raw": {0, 1}},
		}},
		Secrets: map[objectset.Key]*v1.Secret{{Namespace: "ns", Name: "password"}: {
			ObjectMeta: meta("password"), Data: map[string][]byte{"word": []byte(Hidden)},
		}},
	}
}

// InNamespace puts a pod into the namespace of [ObjectsOf].
func InNamespace(pod *v1.Pod) *v1.Pod {
	pod.Namespace = "ns"
	return pod
}

// ConfigMapVolume returns a volume with the keys of a ConfigMap.
func ConfigMapVolume(name, object string, items ...v1.KeyToPath) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
		LocalObjectReference: v1.LocalObjectReference{Name: object}, Items: items, DefaultMode: new(int32(0o644)),
	}}}
}

// SecretVolume returns a volume with the keys of a Secret.
func SecretVolume(name, object string, items ...v1.KeyToPath) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{
		SecretName: object, Items: items, DefaultMode: new(int32(0o600)),
	}}}
}

// ProjectedVolume returns a volume with several sources.
func ProjectedVolume(name string, sources ...v1.VolumeProjection) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
		Sources: sources, DefaultMode: new(int32(0o644)),
	}}}
}

// MountFolder mounts a folder of the disk and undoes it when the test ends.
func MountFolder(t *testing.T, target string) {
	t.Helper()
	MountOn(t, target, func() error { return unix.Mount(t.TempDir(), target, "", unix.MS_BIND, "") })
}

// MountMemoryFolder mounts a folder of a file system in memory, and undoes it when the test ends.
func MountMemoryFolder(t *testing.T, target string) {
	t.Helper()
	memory := t.TempDir()
	MountTmpfs(t, memory)
	folder := filepath.Join(memory, "folder")
	must(t, os.Mkdir(folder, 0o755))
	MountOn(t, target, func() error { return unix.Mount(folder, target, "", unix.MS_BIND, "") })
}
