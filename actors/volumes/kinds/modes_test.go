package kinds

import (
	"io/fs"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
)

// Each file of each kind has the mode of its item, or its volume's; a mode that changes is given to the files that are there.
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

func realMode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	at, err := filepath.EvalSymlinks(path)
	must(t, err)
	return mode(t, at)
}
