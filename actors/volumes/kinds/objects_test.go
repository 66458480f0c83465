package kinds

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
)

func TestObjectsAsFiles(t *testing.T) {
	volumestest.NeedMounts(t)
	optional := func(v v1.Volume) v1.Volume {
		if v.ConfigMap != nil {
			v.ConfigMap.Optional = new(true)
		} else {
			v.Secret.Optional = new(true)
		}
		return v
	}
	item := func(key, path string) v1.KeyToPath { return v1.KeyToPath{Key: key, Path: path} }
	settings, password := v1.LocalObjectReference{Name: "settings"}, v1.LocalObjectReference{Name: "password"}
	for _, c := range []struct {
		name   string
		volume v1.Volume
		want   map[string]string
		wrong  []string // instead: parts of the error
	}{
		{"a ConfigMap", volumestest.ConfigMapVolume("v", "settings"), map[string]string{"color": "red", "size": "9", "raw": "\x00\x01"}, nil},
		{"some of it", volumestest.ConfigMapVolume("v", "settings", item("color", "a/b")), map[string]string{"a/b": "red"}, nil},
		{"a Secret", volumestest.SecretVolume("v", "password"), map[string]string{"word": volumestest.Hidden}, nil},
		{"no such ConfigMap", volumestest.ConfigMapVolume("v", "none"), nil, []string{"ConfigMap ns/none", "does not exist"}},
		{"no such Secret", volumestest.SecretVolume("v", "none"), nil, []string{"Secret ns/none", "does not exist"}},
		{"no such key", volumestest.ConfigMapVolume("v", "settings", item("taste", "t")), nil, []string{"ConfigMap ns/settings", `"taste"`}},
		{"no such key of a Secret", volumestest.SecretVolume("v", "password", item("taste", "t")), nil, []string{"Secret ns/password", `"taste"`}},
		{"optional ConfigMap", optional(volumestest.ConfigMapVolume("v", "none")), map[string]string{}, nil},
		{"optional Secret", optional(volumestest.SecretVolume("v", "none", item("a", "b"))), map[string]string{}, nil},
		{"optional key", optional(volumestest.ConfigMapVolume("v", "settings", item("taste", "t"), item("size", "s"))),
			map[string]string{"s": "9"}, nil},
		{"projected", volumestest.ProjectedVolume("v",
			v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: settings,
				Items: []v1.KeyToPath{item("size", "size")}}},
			v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: password,
				Items: []v1.KeyToPath{item("word", "in/word")}}},
			v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: downwardVolume("").DownwardAPI.Items[:1]}},
		), map[string]string{"size": "9", "in/word": volumestest.Hidden, "name": "u"}, nil},
		{"a token",
			volumestest.ProjectedVolume("v", v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}), nil,
			[]string{"serviceAccountToken"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDisk(t)
			d.node.Objects = &objectset.Board{}
			pod := volumestest.InNamespace(volumestest.PodWith("u", c.volume))
			if _, err := d.mount(t, pod); err == nil && c.name != "a token" {
				t.Error("it is there before the objects were read")
			}
			d.node.Objects.Publish(volumestest.ObjectsOf("red"))
			path, err := d.mount(t, pod)
			if c.wrong != nil {
				for _, word := range c.wrong {
					if err == nil || !strings.Contains(err.Error(), word) {
						t.Errorf("got %v, want a failure with %s", err, word)
					}
				}
				if IsPermanent(err) != (c.name == "a token") {
					t.Errorf("permanent: %v", IsPermanent(err))
				}
				return
			}
			must(t, err)
			if got := seen(t, path); !maps.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if !d.stillMounted(t, pod) {
				t.Error("it is not found")
			}
			if c.volume.Secret != nil && len(c.want) > 0 {
				real, err := filepath.EvalSymlinks(filepath.Join(path, "word"))
				must(t, err)
				if m := mode(t, real); m != 0o600 {
					t.Errorf("mode %s", m)
				}
			}
			d.unmount(t, pod)
		})
	}
}

// A volume that an earlier agent wrote keeps the content of an object that may exist, also of an optional one. It is emptied once
// the object is known to be gone. A volume that has not been written waits for none.
func TestObjects_Uncertain(t *testing.T) {
	volumestest.NeedMounts(t)
	for _, volume := range []v1.Volume{volumestest.ConfigMapVolume("v", "settings"), volumestest.SecretVolume("v", "password")} {
		written := func(d disk, pod *v1.Pod) int {
			t.Helper()
			path, err := d.mount(t, pod)
			must(t, err)
			return len(seen(t, path))
		}
		required := volumestest.InNamespace(volumestest.PodWith("u", volume))
		optional := required.DeepCopy()
		if s := &optional.Spec.Volumes[0]; s.ConfigMap != nil {
			s.ConfigMap.Optional = new(true)
		} else {
			s.Secret.Optional = new(true)
		}
		d := newDisk(t)
		d.node.Objects = &objectset.Board{}
		d.node.Objects.Publish(volumestest.ObjectsOf("red"))
		if written(d, optional) == 0 {
			t.Fatal("no file was written")
		}
		d.node.Objects = &objectset.Board{} // of the next agent
		version := d.node.Objects.Publish(&objectset.Set{Uncertain: true})
		for _, pod := range []*v1.Pod{required, optional} {
			if written(d, pod) == 0 {
				t.Errorf("the %s was emptied while its object may exist", volume.Name)
			}
		}
		fresh := optional.DeepCopy()
		fresh.UID = "w"
		if n := written(d, fresh); n != 0 {
			t.Errorf("%d files of an absent object", n)
		}
		d.node.Objects.Publish(&objectset.Set{})
		if d.node.Objects.VersionOf(optional) == version {
			t.Error("the pod is not mounted again once its object is known to be gone")
		}
		if n := written(d, optional); n != 0 {
			t.Errorf("%d files of an object that is known to be gone", n)
		}
		d.unmount(t, optional)
		d.unmount(t, fresh)
	}
}
