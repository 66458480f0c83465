package volumes

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

// A change of an object reaches the pods that use it, however it is reported. Pods keep the content of a deleted object.
func TestAChangeOfAnObjectReachesItsVolumes(t *testing.T) {
	n := newNode(t)
	n.disk.node.Objects = &objectset.Board{}
	n.restart(t)
	pod, other := volumestest.InNamespace(volumestest.PodWith("u", volumestest.ConfigMapVolume("v", "settings"))), volumestest.PodWith("o", volumestest.EmptyDirVolume("v"))
	publish := func(s *objectset.Set) messages.ObjectsChanged {
		return messages.ObjectsChanged{Version: n.disk.node.Objects.Publish(s)}
	}
	if got := n.ask("u", messages.MountVolumes{UID: "u", Pod: pod}); len(got) != 1 ||
		!strings.Contains(fmt.Sprint(got), objectset.ErrUnread.Error()) {
		t.Fatalf("before anything was read: %+v", got)
	}
	n.Send(messages.Objects, publish(volumestest.ObjectsOf("red")))
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
	n.Send(messages.Objects, publish(volumestest.ObjectsOf("red")))
	if len(n.Work) > 0 {
		t.Error("the same version has work done")
	}
	n.Send(messages.Objects, publish(volumestest.ObjectsOf("blue")))
	if len(n.Work) != 1 {
		t.Errorf("%d pieces of work, want that of the pod that uses it", len(n.Work))
	}
	later := publish(volumestest.ObjectsOf("green")) // while that change is in progress
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

// The data of a Secret is in no message, no error and no inspection.
func TestSecretsAreNotReported(t *testing.T) {
	volumestest.NeedMounts(t)
	n := newNode(t)
	n.disk.node.Objects = &objectset.Board{}
	n.disk.node.Objects.Publish(volumestest.ObjectsOf("red"))
	n.restart(t)
	pod := volumestest.InNamespace(volumestest.PodWith("u", volumestest.SecretVolume("ok", "password"),
		volumestest.SecretVolume("bad", "password", v1.KeyToPath{Key: "x", Path: "x"})))
	said := fmt.Sprintf("%+v", n.ask("u", messages.MountVolumes{UID: "u", Pod: pod})) +
		fmt.Sprintf("%+v", n.actor.(*actor).Inspect())
	if strings.Contains(said, volumestest.Hidden) || !strings.Contains(said, "Secret ns/password") {
		t.Errorf("it said %s", said)
	}
}
