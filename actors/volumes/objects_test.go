package volumes

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/messages"
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

// A change of an object reaches the pods that use it, whichever way it is heard of; what is gone leaves them what they had.
func TestAChangeOfAnObjectReachesItsVolumes(t *testing.T) {
	n := newNode(t)
	n.disk.node.Objects = &objectset.Board{}
	n.restart(t)
	pod, other := inNamespace(podWith("u", configMapVolume("v", "settings"))), podWith("o", emptyDirVolume("v"))
	publish := func(s *objectset.Set) messages.ObjectsChanged {
		return messages.ObjectsChanged{Version: n.disk.node.Objects.Publish(s)}
	}
	if got := n.ask("u", messages.MountVolumes{UID: "u", Pod: pod}); len(got) != 1 ||
		!strings.Contains(fmt.Sprint(got), objectset.ErrUnread.Error()) {
		t.Fatalf("before anything was read: %+v", got)
	}
	n.Send(messages.Objects, publish(objectsOf("red")))
	n.RunWork()
	got := n.sent("u")
	if len(got) != 1 {
		t.Fatalf("got %+v", got)
	}
	path := got[0].(messages.VolumesMounted).Paths["v"]
	n.ask("o", messages.MountVolumes{UID: "o", Pod: other})
	if text := read(t, filepath.Join(path, "color")); text != "red" {
		t.Errorf("it holds %q", text)
	}
	n.Send(messages.Objects, publish(objectsOf("red")))
	if len(n.Work) > 0 {
		t.Error("the same version has work done")
	}
	n.Send(messages.Objects, publish(objectsOf("blue")))
	if len(n.Work) != 1 {
		t.Errorf("%d pieces of work, want that of the pod that uses it", len(n.Work))
	}
	later := publish(objectsOf("green")) // while that is under way
	n.Send(messages.Objects, later)
	n.RunWork()
	n.sent("u")
	if text := read(t, filepath.Join(path, "color")); text != "green" {
		t.Errorf("after the change it holds %q", text)
	}
	n.Send(messages.Objects, publish(&objectset.Set{}))
	n.RunWork()
	if got := n.sent("u"); len(got) != 1 || got[0].(messages.VolumesFailed).Reason.Permanent {
		t.Errorf("when it is gone: %+v", got)
	}
	if text := read(t, filepath.Join(path, "color")); text != "green" {
		t.Errorf("when it is gone it holds %q", text)
	}
}

// What a Secret holds is in no message, no failure and no inspection.
func TestSecretsAreNotTold(t *testing.T) {
	needMounts(t)
	n := newNode(t)
	n.disk.node.Objects = &objectset.Board{}
	n.disk.node.Objects.Publish(objectsOf("red"))
	n.restart(t)
	pod := inNamespace(podWith("u", secretVolume("ok", "password"),
		secretVolume("bad", "password", v1.KeyToPath{Key: "x", Path: "x"})))
	said := fmt.Sprintf("%+v", n.ask("u", messages.MountVolumes{UID: "u", Pod: pod})) +
		fmt.Sprintf("%+v", n.actor.(*actor).Inspect())
	if strings.Contains(said, hidden) || !strings.Contains(said, "Secret ns/password") {
		t.Errorf("it said %s", said)
	}
}
