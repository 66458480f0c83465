package volumes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

var colorRef = objectset.Ref{Kind: objectset.ConfigMap, Namespace: "ns", Name: "settings"}

func colored(color string) *v1.ConfigMap {
	return volumestest.ObjectsOf(color).ConfigMaps[objectset.Key{Namespace: "ns", Name: "settings"}]
}

// A mount waits for an object that is being read, so that no pod receives a failure that passes by itself.
func TestMount_WaitsForAnUnreadObject(t *testing.T) {
	n := newNode(t)
	n.disk.node.Objects = objectset.NewBoard(false)
	n.restart(t)
	began := make(chan struct{})
	go func() {
		<-began
		n.disk.node.Objects.Put(colorRef, colored("red"))
	}()
	n.Send("pods/u", messages.MountVolumes{UID: "u", Pod: volumestest.APIPodWith("u", volumestest.ConfigMapVolume("v", "settings"))})
	work := n.Work[0]
	n.Work = nil
	time.AfterFunc(0, func() { close(began) })
	n.RunOne(work)
	got := n.sent("u")
	if len(got) != 1 {
		t.Fatalf("told %+v", got)
	}
	if text := read(t, filepath.Join(got[0].(messages.VolumesMounted).Paths["v"], "color")); text != "red" {
		t.Errorf("it holds %q", text)
	}
}

// After a change of an object only the volumes that refer to it are written again.
func TestAPIServer_ChangeOfOneObject(t *testing.T) {
	n := newNode(t)
	board := objectset.NewBoard(false)
	n.disk.node.Objects = board
	n.restart(t)
	other := objectset.Ref{Kind: objectset.ConfigMap, Namespace: "ns", Name: "other"}
	board.Put(colorRef, colored("red"))
	board.Put(other, colored("other"))
	n.ask("u", messages.MountVolumes{UID: "u", Pod: volumestest.APIPodWith("u", volumestest.ConfigMapVolume("v", "settings"))})
	n.ask("o", messages.MountVolumes{UID: "o", Pod: volumestest.APIPodWith("o", volumestest.ConfigMapVolume("v", "other"))})
	n.Send(messages.Objects, messages.ObjectsChanged{Version: board.Version()})
	if len(n.Work) > 0 {
		t.Errorf("%d pieces of work for what is known", len(n.Work))
	}
	board.Put(colorRef, colored("blue"))
	n.Send(messages.Objects, messages.ObjectsChanged{Version: board.Version()})
	if len(n.Work) != 1 || n.Work[0].Name != "ensure volumes u" {
		t.Errorf("work %+v", n.Work)
	}
}

// An agent that starts while the API server is away keeps the volumes that it finds, and updates them when the server is back.
// A missing volume waits, with the reason.
func TestFoundVolumes_StayWithoutTheAPIServer(t *testing.T) {
	n := newNode(t)
	n.disk.node.Objects = objectset.NewBoard(false)
	n.disk.node.Objects.Put(colorRef, colored("red"))
	n.restart(t)
	pod := volumestest.APIPodWith("u", volumestest.ConfigMapVolume("v", "settings"))
	n.ask("u", messages.MountVolumes{UID: "u", Pod: pod})

	board := objectset.NewBoard(false) // the board of another agent
	n.disk.node.Objects = board
	n.restart(t)
	got := n.ask("u", messages.MountVolumes{UID: "u", Pod: pod})
	if len(got) != 1 {
		t.Fatalf("told %+v", got)
	}
	path := got[0].(messages.VolumesMounted).Paths["v"]
	if text := read(t, filepath.Join(path, "color")); text != "red" {
		t.Errorf("it holds %q", text)
	}
	board.Fail(colorRef, os.ErrDeadlineExceeded)
	failed := n.ask("new", messages.MountVolumes{UID: "new", Pod: volumestest.APIPodWith("new", volumestest.ConfigMapVolume("v", "settings"))})
	if len(failed) != 1 {
		t.Fatalf("told %+v", failed)
	}
	if r := failed[0].(messages.VolumesFailed).Reason; !strings.Contains(r.Message,
		"ConfigMap ns/settings: it has not been read from the API server yet: i/o timeout") || r.Permanent {
		t.Errorf("it waits for %+v", r)
	}
	board.Put(colorRef, colored("blue"))
	n.Send(messages.Objects, messages.ObjectsChanged{Version: board.Version()})
	n.RunWork()
	if text := read(t, filepath.Join(path, "color")); text != "blue" {
		t.Errorf("afterwards it holds %q", text)
	}
	if said := fmt.Sprintf("%+v", n.Take()); strings.Count(said, "UID:new Paths:") != 1 ||
		strings.Count(said, "UID:u Paths:") != 1 {
		t.Errorf("told %s", said)
	}
}
