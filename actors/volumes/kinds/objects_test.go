package kinds

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
)

const hidden = "hunter2"

// objectsOf is a set with a ConfigMap "settings" and a Secret "password".
func objectsOf(color string) *objectset.Set {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ns", Name: name} }
	return &objectset.Set{
		ConfigMaps: map[objectset.Key]*v1.ConfigMap{{Namespace: "ns", Name: "settings"}: {
			ObjectMeta: meta("settings"), Data: map[string]string{"color": color, "size": "9"},
			BinaryData: map[string][]byte{"raw": {0, 1}},
		}},
		Secrets: map[objectset.Key]*v1.Secret{{Namespace: "ns", Name: "password"}: {
			ObjectMeta: meta("password"), Data: map[string][]byte{"word": []byte(hidden)},
		}},
	}
}

func inNamespace(pod *v1.Pod) *v1.Pod {
	pod.Namespace = "ns"
	return pod
}

func configMapVolume(name, object string, items ...v1.KeyToPath) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
		LocalObjectReference: v1.LocalObjectReference{Name: object}, Items: items, DefaultMode: new(int32(0o644)),
	}}}
}

func secretVolume(name, object string, items ...v1.KeyToPath) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{
		SecretName: object, Items: items, DefaultMode: new(int32(0o600)),
	}}}
}

func projectedVolume(name string, sources ...v1.VolumeProjection) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
		Sources: sources, DefaultMode: new(int32(0o644)),
	}}}
}

func TestObjectsAsFiles(t *testing.T) {
	needMounts(t)
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
		wrong  []string // instead: what the failure names
	}{
		{"a ConfigMap", configMapVolume("v", "settings"), map[string]string{"color": "red", "size": "9", "raw": "\x00\x01"}, nil},
		{"some of it", configMapVolume("v", "settings", item("color", "a/b")), map[string]string{"a/b": "red"}, nil},
		{"a Secret", secretVolume("v", "password"), map[string]string{"word": hidden}, nil},
		{"no such ConfigMap", configMapVolume("v", "none"), nil, []string{"ConfigMap ns/none", "does not exist"}},
		{"no such Secret", secretVolume("v", "none"), nil, []string{"Secret ns/none", "does not exist"}},
		{"no such key", configMapVolume("v", "settings", item("taste", "t")), nil, []string{"ConfigMap ns/settings", `"taste"`}},
		{"no such key of a Secret", secretVolume("v", "password", item("taste", "t")), nil, []string{"Secret ns/password", `"taste"`}},
		{"optional ConfigMap", optional(configMapVolume("v", "none")), map[string]string{}, nil},
		{"optional Secret", optional(secretVolume("v", "none", item("a", "b"))), map[string]string{}, nil},
		{"optional key", optional(configMapVolume("v", "settings", item("taste", "t"), item("size", "s"))),
			map[string]string{"s": "9"}, nil},
		{"projected", projectedVolume("v",
			v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: settings,
				Items: []v1.KeyToPath{item("size", "size")}}},
			v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: password,
				Items: []v1.KeyToPath{item("word", "in/word")}}},
			v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: downwardVolume("").DownwardAPI.Items[:1]}},
		), map[string]string{"size": "9", "in/word": hidden, "name": "u"}, nil},
		{"a token",
			projectedVolume("v", v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}), nil,
			[]string{"serviceAccountToken"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDisk(t)
			d.node.Objects = &objectset.Board{}
			pod := inNamespace(podWith("u", c.volume))
			if _, err := d.mount(t, pod); err == nil && c.name != "a token" {
				t.Error("it is there before the objects were read")
			}
			d.node.Objects.Publish(objectsOf("red"))
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
