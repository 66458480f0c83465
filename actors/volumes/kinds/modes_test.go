package kinds

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
)

// Each file of each kind has the mode of its item or of its volume. A changed mode is applied to the existing files.
func TestModesOfFiles(t *testing.T) {
	volumestest.NeedMounts(t)
	keys := func(key string) []v1.KeyToPath {
		return []v1.KeyToPath{{Key: key, Path: "own", Mode: new(int32(0o400))}, {Key: key, Path: "in/default"}}
	}
	names := []v1.DownwardAPIVolumeFile{
		{Path: "own", Mode: new(int32(0o400)), FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}},
		{Path: "in/default", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}},
	}
	settings, password := v1.LocalObjectReference{Name: "settings"}, v1.LocalObjectReference{Name: "password"}
	of := func(mode *int32) map[string]v1.VolumeSource {
		project := func(p v1.VolumeProjection) v1.VolumeSource {
			return v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{DefaultMode: mode, Sources: []v1.VolumeProjection{p}}}
		}
		return map[string]v1.VolumeSource{
			"configMap": {ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: settings, Items: keys("color"),
				DefaultMode: mode}},
			"secret": {Secret: &v1.SecretVolumeSource{SecretName: "password", Items: keys("word"),
				DefaultMode: mode}},
			"downwardAPI":         {DownwardAPI: &v1.DownwardAPIVolumeSource{Items: names, DefaultMode: mode}},
			"projected configMap": project(v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: settings, Items: keys("color")}}),
			"projected secret": project(v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: password,
				Items: keys("word")}}),
			"projected downwardAPI": project(v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: names}}),
		}
	}
	for kind := range of(nil) {
		t.Run(kind, func(t *testing.T) {
			d := newDisk(t)
			d.node.Objects = &objectset.Board{}
			d.node.Objects.Publish(volumestest.ObjectsOf("red"))
			var pod *v1.Pod
			for _, want := range []fs.FileMode{0o644, 0o640, 0o604} {
				mode := new(int32(want))
				if want == 0o644 {
					mode = nil // the API's default
				}
				pod = volumestest.InNamespace(volumestest.PodWith("u", v1.Volume{Name: "v", VolumeSource: of(mode)[kind]}))
				path := mountedAt(t, d, pod)
				for file, want := range map[string]fs.FileMode{"own": 0o400, "in/default": want} {
					if got := realMode(t, filepath.Join(path, file)); got != want {
						t.Errorf("%s has the mode %o, want %o", file, got, want)
					}
				}
			}
			d.unmount(t, pod)
		})
	}
}

// The folders of content have the kubelet's modes: a tmpfs has its sticky bit, and the group may only read folders that
// containers only read.
func TestModesOfFolders(t *testing.T) {
	volumestest.NeedMounts(t)
	item := []v1.KeyToPath{{Key: "color", Path: "in/color"}}
	configMap := volumestest.ConfigMapVolume("v", "settings", item...)
	secret := volumestest.SecretVolume("v", "password", v1.KeyToPath{Key: "word", Path: "in/word"})
	const group = int64(2000)
	for _, c := range []struct {
		name        string
		volume      v1.Volume
		group       bool
		top, folder fs.FileMode
	}{
		{"configMap", configMap, false, 0o777, 0o755},
		{"configMap of a group", configMap, true, 0o777 | fs.ModeSetgid, 0o755 | fs.ModeSetgid},
		{"secret", secret, false, 0o777 | fs.ModeSticky, 0o755},
		{"secret of a group", secret, true, 0o777 | fs.ModeSticky | fs.ModeSetgid, 0o755 | fs.ModeSetgid},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDisk(t)
			d.node.Objects = &objectset.Board{}
			d.node.Objects.Publish(volumestest.ObjectsOf("red"))
			pod := volumestest.InNamespace(volumestest.PodWith("u", c.volume))
			if c.group {
				withGroup(pod, group)
			}
			path := mountedAt(t, d, pod)
			for at, want := range map[string]fs.FileMode{".": c.top, dataLink: c.folder, "in": c.folder} {
				if got := realMode(t, filepath.Join(path, at)); got != want|fs.ModeDir {
					t.Errorf("%s has the mode %s, want %s", at, got, want|fs.ModeDir)
				}
			}
			d.unmount(t, pod)
		})
	}
}

// A key that was absent when a container mounted it has an empty folder in its place. The volume is still written.
func TestAbsentKeyThatWasMounted(t *testing.T) {
	volumestest.NeedMounts(t)
	d := newDisk(t)
	d.node.Objects = &objectset.Board{}
	d.node.Objects.Publish(&objectset.Set{})
	optional := volumestest.ConfigMapVolume("v", "settings")
	optional.ConfigMap.Optional = new(true)
	pod := volumestest.InNamespace(volumestest.PodWith("u", optional))
	path := mountedAt(t, d, pod)
	must(t, os.Mkdir(filepath.Join(path, "color"), 0o777)) // as for a subPath
	d.node.Objects.Publish(volumestest.ObjectsOf("red"))
	for range 2 {
		if mountedAt(t, d, pod); !mode(t, filepath.Join(path, "color")).IsDir() || read(t, filepath.Join(path, "size")) == "" ||
			read(t, filepath.Join(path, dataLink, "color")) != "red" {
			t.Error("the volume does not hold the ConfigMap")
		}
	}
	d.unmount(t, pod)
}

func realMode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	at, err := filepath.EvalSymlinks(path)
	must(t, err)
	return mode(t, at)
}
