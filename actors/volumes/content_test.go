package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
)

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

func group(t testing.TB, path string) uint32 {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Sys().(*syscall.Stat_t).Gid
}

// mountedAt mounts a pod's only volume and gives its path.
func mountedAt(t testing.TB, d disk, pod *v1.Pod) string {
	t.Helper()
	out := d.mountPod(t.Context(), string(pod.UID), pod)
	if len(out.failures()) > 0 {
		t.Fatalf("it failed: %+v", out.failures())
	}
	return out.paths()[pod.Spec.Volumes[0].Name]
}

func memoryVolume(name string) v1.Volume {
	v := emptyDirVolume(name)
	v.EmptyDir.Medium = v1.StorageMediumMemory
	return v
}

func withGroup(pod *v1.Pod, gid int64) *v1.Pod {
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid}
	return pod
}

func TestMemoryIsATmpfsOfItsSize(t *testing.T) {
	needMounts(t)
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
			pod := podWith("u", memoryVolume("m"))
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
			if !d.stillMounted("u", pod) {
				t.Error("it is not found mounted")
			}
			must(t, unmountNow(path)) // as a reboot does
			if d.stillMounted("u", pod) {
				t.Error("it is found mounted and is not")
			}
			mountedAt(t, d, pod)
			if err := d.unmountPod(t.Context(), "u", true); err != nil || exists(t, d.pod("u")) {
				t.Errorf("left %v", err)
			}
		})
	}
}

func TestPageSize(t *testing.T) {
	for _, c := range []struct {
		medium   v1.StorageMedium
		requests []string
		want     int64
	}{
		{"HugePages", []string{"2Mi"}, 2 << 20},
		{"HugePages", []string{"2Mi", "1Gi"}, 0},
		{"HugePages", nil, 0},
		{"HugePages-1Gi", []string{"2Mi", "1Gi"}, 1 << 30},
		{"HugePages-1Gi", []string{"2Mi"}, 0},
		{"HugePagesX", []string{"2Mi"}, 0},
	} {
		pod := podWith("u")
		pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{}
		for _, r := range c.requests {
			pod.Spec.Containers[0].Resources.Requests[v1.ResourceName(v1.ResourceHugePagesPrefix+r)] = resource.MustParse(r)
		}
		got, err := pageSize(pod, c.medium)
		if got != c.want || (err == nil) != (c.want > 0) || (err != nil && !isPermanent(err)) {
			t.Errorf("%s of %v: %d, %v", c.medium, c.requests, got, err)
		}
	}
}

func TestFSGroupOwnsAnEmptyDir(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing owners needs root")
	}
	d := newDisk(t)
	pod := withGroup(podWith("u", emptyDirVolume("data")), 1234)
	path := mountedAt(t, d, pod)
	if m := mode(t, path); m.Perm() != 0o777 || m&fs.ModeSetgid == 0 || group(t, path) != 1234 {
		t.Errorf("mode %s, group %d", m, group(t, path))
	}
	must(t, os.Chmod(path, 0o700)) // the containers' business from now on
	if mountedAt(t, d, pod); mode(t, path).Perm() != 0o700 {
		t.Error("it was given its mode again")
	}
}

func TestModeOfAnEmptyDir(t *testing.T) {
	d := newDisk(t)
	pod := podWith("u", emptyDirVolume("data"))
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
	needMounts(t)
	d := newDisk(t)
	d.node.Allocatable = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}
	pod := withGroup(podWith("u", downwardVolume("info")), 55)
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
	if sameVolumes(pod, changed) {
		t.Error("the change goes unseen")
	}
	mountedAt(t, d, changed)
	if got := read(t, filepath.Join(path, "deep/annotation")); got != "second" || exists(t, before) {
		t.Errorf("after a change it holds %q", got)
	}
	if err := d.unmountPod(t.Context(), "u", true); err != nil || exists(t, d.pod("u")) {
		t.Errorf("left %v", err)
	}
}

// seen is what a container sees of a volume: the names in it, and what is in the files.
func seen(t testing.TB, path string) map[string]string {
	out := map[string]string{}
	must(t, filepath.WalkDir(filepath.Join(path, dataLink)+"/", func(at string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		out[strings.TrimPrefix(at, filepath.Join(path, dataLink)+"/")] = read(t, at)
		return nil
	}))
	return out
}

func TestWriteFilesAfterACrashAnywhere(t *testing.T) {
	d := newDisk(t)
	pods, err := openPods(d.rootDir)
	must(t, err)
	defer d.close(pods)
	p, err := makePod(pods, "u", podWith("u"))
	must(t, err)
	defer d.close(p.Root)
	must(t, p.MkdirAll("volumes/v", 0o755))
	path := filepath.Join(p.Path(), "volumes/v")
	content := func(pairs ...string) map[string]file {
		out := map[string]file{}
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = file{data: []byte(pairs[i+1]), mode: 0o644}
		}
		return out
	}
	must(t, writeFiles(p, "volumes/v", content("a", "1", "dir/b", "2", "old", "3")))
	// What a crash can leave: a folder half-written, a link not renamed, names not made.
	must(t, os.Mkdir(filepath.Join(path, "..2000_01_01_00_00_00.half"), 0o755))
	write(t, filepath.Join(path, "..2000_01_01_00_00_00.half/a"))
	must(t, os.Symlink("..2000_01_01_00_00_00.half", filepath.Join(path, newDataLink)))
	must(t, os.Remove(filepath.Join(path, "a")))
	for _, want := range []map[string]string{
		{"a": "1", "dir/b": "2", "old": "3"}, {"a": "9", "dir/c": "2"}, {"a": "9", "dir/c": "3", "dir2/x": ""}, {},
	} {
		pairs := []string{}
		for k, v := range want {
			pairs = append(pairs, k, v)
		}
		must(t, writeFiles(p, "volumes/v", content(pairs...)))
		if got := seen(t, path); !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		names, err := os.ReadDir(path)
		must(t, err)
		var visible []string
		for _, n := range names {
			if !strings.HasPrefix(n.Name(), "..") {
				visible = append(visible, n.Name())
			}
		}
		tops := map[string]bool{}
		for k := range want {
			tops[top(k)] = true
		}
		if !slices.Equal(visible, slices.Sorted(maps.Keys(tops))) || len(names) != len(visible)+2 {
			t.Errorf("the folder has %v", names)
		}
	}
}

// What cannot be written leaves nothing, at whatever retry, and what a crash has left takes no room from the next one.
func TestAWriteThatFailsLeavesNothing(t *testing.T) {
	d := newDisk(t)
	pods, err := openPods(d.rootDir)
	must(t, err)
	defer d.close(pods)
	p, err := makePod(pods, "u", podWith("u"))
	must(t, err)
	defer d.close(p.Root)
	must(t, p.MkdirAll("volumes/v", 0o755))
	path := filepath.Join(p.Path(), "volumes/v")
	mountTmpfs(t, path) // of 64 KiB
	content := func(size int) map[string]file {
		return map[string]file{"a": {data: []byte("small")}, "b": {data: make([]byte, size)}}
	}
	must(t, writeFiles(p, "volumes/v", content(1)))
	want, err := p.Names("volumes/v")
	must(t, err)
	for range 3 {
		if err := writeFiles(p, "volumes/v", content(100<<10)); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("written without room: %v", err)
		}
		if got, err := p.Names("volumes/v"); err != nil || len(got) != len(want) {
			t.Errorf("there are %v, %v, want %v", got, err, want)
		}
	}
	if got := seen(t, path); got["a"] != "small" || len(got["b"]) != 1 {
		t.Errorf("the volume holds %q", got)
	}
	must(t, os.Mkdir(filepath.Join(path, "..2000_01_01_00_00_00.half"), 0o755))
	must(t, os.WriteFile(filepath.Join(path, "..2000_01_01_00_00_00.half/b"), make([]byte, 40<<10), 0o644))
	must(t, writeFiles(p, "volumes/v", content(30<<10)))
}

// Paths that cannot be those of files in one volume are refused for good before anything is made; where they come from an object's keys,
// which may change, not for good.
func TestPathsThatCannotBe(t *testing.T) {
	secret := func(paths ...string) v1.Volume {
		v := secretVolume("v", "password")
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
		{configMapVolume("v", "settings", v1.KeyToPath{Key: "color", Path: "a"}, v1.KeyToPath{Key: "size", Path: "a/b"}), `"a" is a file`, true},
		{projectedVolume("v", info("a"), info("a/b")), `"a" is a file`, true},
		{projectedVolume("v", info("token"), token), `"token" is a file`, true},
		{projectedVolume("v", whole, info("color/x")), `"color" is a file`, false},
	} {
		d := newDisk(t)
		d.node.Objects = &objectset.Board{}
		d.node.Objects.Publish(objectsOf("red"))
		out := d.mountPod(t.Context(), "u", inNamespace(podWith("u", c.volume)))
		if len(out.failures()) != 1 || out.failures()[0].permanent != c.permanent ||
			!strings.Contains(out.failures()[0].message, c.says) {
			t.Errorf("%s: %+v", c.says, out)
		}
		if names, err := os.ReadDir(d.pod("u/volumes")); err != nil || len(names) > 0 {
			t.Errorf("%s: there are %v, %v", c.says, names, err)
		}
	}
	if err := checkPaths([]string{"x", "y/x", "y/z", "x"}); err != nil {
		t.Errorf("the later of two counts: %v", err)
	}
}

// A tmpfs has the room that its files need, and grows with them: one that a kubelet has mounted, too.
func TestASecretsTmpfsIsSizedToIt(t *testing.T) {
	needMounts(t)
	d := newDisk(t)
	d.node.Allocatable = v1.ResourceList{v1.ResourceMemory: resource.MustParse("8Gi")}
	d.node.Objects = &objectset.Board{}
	pod := inNamespace(podWith("u", secretVolume("v", "password")))
	publish := func(size int) {
		set := objectsOf("red")
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
	must(t, unmountNow(path))
	must(t, unix.Mount("tmpfs", path, "tmpfs", 0, "size=64k"))
	publish(1 << 20)
	if mountedAt(t, d, pod); len(read(t, filepath.Join(path, "word"))) != 1<<20 {
		t.Error("what an earlier agent has mounted does not grow")
	}
	if err := d.unmountPod(t.Context(), "u", true); err != nil || exists(t, d.pod("u")) {
		t.Errorf("left %v", err)
	}
}
