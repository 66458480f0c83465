package kinds

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
)

func TestMemoryIsATmpfsOfItsSize(t *testing.T) {
	volumestest.NeedMounts(t)
	for _, c := range []struct {
		name                  string
		node, container, size string
		want                  int64
	}{
		{"the node's", "8Mi", "", "", 8 << 20},
		{"the pod's", "8Mi", "4Mi", "", 4 << 20},
		{"its own", "8Mi", "4Mi", "2Mi", 2 << 20},
		{"its own is larger than the pod's", "8Mi", "4Mi", "6Mi", 4 << 20},
		{"its own alone", "", "", "1Mi", 1 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDisk(t)
			pod := volumestest.PodWith("u", volumestest.MemoryVolume("m"))
			if c.node != "" {
				d.node.Allocatable = v1.ResourceList{v1.ResourceMemory: resource.MustParse(c.node)}
			}
			if c.container != "" {
				pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse(c.container)}
			}
			if c.size != "" {
				pod.Spec.Volumes[0].EmptyDir.SizeLimit = new(resource.MustParse(c.size))
			}
			path := mountedAt(t, d, pod)
			var stat unix.Statfs_t
			must(t, unix.Statfs(path, &stat))
			if stat.Type != unix.TMPFS_MAGIC || int64(stat.Blocks)*stat.Bsize != c.want {
				t.Errorf("type %x, %d bytes, want %d", stat.Type, int64(stat.Blocks)*stat.Bsize, c.want)
			}
			if m := mode(t, path); m.Perm() != 0o777 || m&fs.ModeSticky == 0 {
				t.Errorf("mode %s", m)
			}
			write(t, filepath.Join(path, "kept"))
			if mountedAt(t, d, pod); !exists(t, filepath.Join(path, "kept")) {
				t.Error("asked again, it was mounted once more")
			}
			if !d.stillMounted(t, pod) {
				t.Error("it is not found mounted")
			}
			must(t, volumestest.UnmountNow(path)) // as a reboot does
			if d.stillMounted(t, pod) {
				t.Error("it is found mounted and is not")
			}
			mountedAt(t, d, pod)
			d.unmount(t, pod)
		})
	}
}

func TestFSGroupOwnsAnEmptyDir(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing owners needs root")
	}
	d := newDisk(t)
	pod := withGroup(volumestest.PodWith("u", volumestest.EmptyDirVolume("data")), 1234)
	path := mountedAt(t, d, pod)
	if m := mode(t, path); m.Perm() != 0o777 || m&fs.ModeSetgid == 0 || group(t, path) != 1234 {
		t.Errorf("mode %s, group %d", m, group(t, path))
	}
	must(t, os.Chmod(path, 0o700)) // the mode belongs to the containers from now on
	if mountedAt(t, d, pod); mode(t, path).Perm() != 0o700 {
		t.Error("it was given its mode again")
	}
}

func TestModeOfAnEmptyDir(t *testing.T) {
	d := newDisk(t)
	pod := volumestest.PodWith("u", volumestest.EmptyDirVolume("data"))
	pod.Spec.Volumes[0].EmptyDir.Mode = new(int32(0o1750))
	if m := mode(t, mountedAt(t, d, pod)); m.Perm() != 0o750 || m&fs.ModeSticky == 0 {
		t.Errorf("mode %s", m)
	}
}

func downwardVolume(name string) v1.Volume {
	field := func(path, field string) v1.DownwardAPIVolumeFile {
		return v1.DownwardAPIVolumeFile{Path: path, FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: field}}
	}
	res := func(path, resource string) v1.DownwardAPIVolumeFile {
		return v1.DownwardAPIVolumeFile{Path: path, ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "c",
			Resource: resource}}
	}
	secret := field("deep/down/uid", "metadata.uid")
	secret.Mode = new(int32(0o400))
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
		DefaultMode: new(int32(0o644)), Items: []v1.DownwardAPIVolumeFile{
			field("name", "metadata.name"), field("labels", "metadata.labels"),
			field("deep/annotation", "metadata.annotations['a']"),
			secret, res("cpu", "requests.cpu"), res("memory", "limits.memory"),
		},
	}}}
}

func TestDownwardAPI(t *testing.T) {
	volumestest.NeedMounts(t)
	d := newDisk(t)
	d.node.Allocatable = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}
	pod := withGroup(volumestest.PodWith("u", downwardVolume("info")), 55)
	pod.Labels, pod.Annotations = map[string]string{"x": "1", "b": "2"}, map[string]string{"a": "first"}
	pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1500m")}
	path := mountedAt(t, d, pod)
	for name, want := range map[string]string{
		"name": "u", "labels": "b=\"2\"\nx=\"1\"", "deep/annotation": "first", "deep/down/uid": "u", "cpu": "2",
		"memory": fmt.Sprint(64 << 20),
	} {
		if got := read(t, filepath.Join(path, name)); got != want {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
	}
	resolve := func(name string) string {
		real, err := filepath.EvalSymlinks(filepath.Join(path, name))
		must(t, err)
		return real
	}
	if m := mode(t, resolve("deep/down/uid")); m != 0o440 || group(t, resolve("deep/down/uid")) != 55 {
		t.Errorf("mode %s: the group of fsGroup may read what the owner may", m)
	}
	if m := mode(t, resolve("name")); m != 0o644 {
		t.Errorf("mode %s", m)
	}
	before := resolve("..data")
	if mountedAt(t, d, pod); resolve("..data") != before {
		t.Error("nothing changed, and it was written again")
	}
	changed := pod.DeepCopy()
	changed.Annotations["a"] = "second"
	if SameVolumes(pod, changed) {
		t.Error("the change goes unseen")
	}
	mountedAt(t, d, changed)
	if got := read(t, filepath.Join(path, "deep/annotation")); got != "second" || exists(t, before) {
		t.Errorf("after a change it holds %q", got)
	}
	d.unmount(t, pod)
}

// Paths that files of a volume cannot have are refused permanently, before anything is made. Paths from the keys of an object
// are not refused permanently, because the keys may change.
func TestPathsThatCannotBe(t *testing.T) {
	secret := func(paths ...string) v1.Volume {
		v := volumestest.SecretVolume("v", "password")
		for _, path := range paths {
			v.Secret.Items = append(v.Secret.Items, v1.KeyToPath{Key: "word", Path: path})
		}
		return v
	}
	info := func(path string) v1.VolumeProjection {
		return v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{
			Items: []v1.DownwardAPIVolumeFile{{Path: path, FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		}}
	}
	whole := v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}}
	token := v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token/x"}}
	for _, c := range []struct {
		volume    v1.Volume
		says      string
		permanent bool
	}{
		{secret("..x"), `"..x"`, true},
		{secret("../x"), `"../x"`, true},
		{secret("/x"), `"/x"`, true},
		{secret("a/../b"), `"a/../b"`, true},
		{secret(""), `""`, true},
		{secret("."), `"."`, true},
		{secret(strings.Repeat("a/", 2048) + "a"), "4097 bytes", true},
		{secret("x", "x-", "x/y"), `"x" is a file of the volume, and "x/y" needs a folder`, true},
		{secret("x/y/z", "x"), `"x" is a file`, true},
		{secret("x/y", "x//y"), "the same file", true},
		{volumestest.ConfigMapVolume("v", "settings", v1.KeyToPath{Key: "color", Path: "a"}, v1.KeyToPath{Key: "size", Path: "a/b"}), `"a" is a file`, true},
		{volumestest.ProjectedVolume("v", info("a"), info("a/b")), `"a" is a file`, true},
		{volumestest.ProjectedVolume("v", info("token"), token), `"token" is a file`, true},
		{volumestest.ProjectedVolume("v", whole, info("color/x")), `"color" is a file`, false},
	} {
		d := newDisk(t)
		d.node.Objects = &objectset.Board{}
		d.node.Objects.Publish(volumestest.ObjectsOf("red"))
		_, err := d.mount(t, volumestest.InNamespace(volumestest.PodWith("u", c.volume)))
		if err == nil || IsPermanent(err) != c.permanent || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.says, err)
		}
		if names, err := os.ReadDir(d.pod("u/volumes")); err != nil || len(names) > 0 {
			t.Errorf("%s: there are %v, %v", c.says, names, err)
		}
	}
}

// A tmpfs has the room that its files need, and grows with them, even if a kubelet mounted it.
func TestASecretsTmpfsIsSizedToIt(t *testing.T) {
	volumestest.NeedMounts(t)
	d := newDisk(t)
	d.node.Allocatable = v1.ResourceList{v1.ResourceMemory: resource.MustParse("8Gi")}
	d.node.Objects = &objectset.Board{}
	pod := volumestest.InNamespace(volumestest.PodWith("u", volumestest.SecretVolume("v", "password")))
	publish := func(size int) {
		set := volumestest.ObjectsOf("red")
		for _, s := range set.Secrets {
			s.Data = map[string][]byte{"word": []byte(strings.Repeat("x", size)), strings.Repeat("n", 253): nil}
		}
		d.node.Objects.Publish(set)
	}
	total := func(path string) int64 {
		var stat unix.Statfs_t
		must(t, unix.Statfs(path, &stat))
		return int64(stat.Blocks) * stat.Bsize
	}
	publish(100 << 10)
	path := mountedAt(t, d, pod)
	if got := total(path); got < 2*100<<10 || got > 300<<10 {
		t.Errorf("for 100 KiB there is room for %d bytes", got)
	}
	for _, size := range []int{900 << 10, 1 << 10, 1 << 20} {
		publish(size)
		mountedAt(t, d, pod)
		if got := len(read(t, filepath.Join(path, "word"))); got != size {
			t.Errorf("it holds %d bytes, want %d", got, size)
		}
	}
	if got := total(path); got > 3<<20 {
		t.Errorf("there is room for %d bytes", got)
	}
	must(t, volumestest.UnmountNow(path))
	must(t, unix.Mount("tmpfs", path, "tmpfs", 0, "size=64k"))
	publish(1 << 20)
	if mountedAt(t, d, pod); len(read(t, filepath.Join(path, "word"))) != 1<<20 {
		t.Error("what an earlier agent has mounted does not grow")
	}
	d.unmount(t, pod)
}
