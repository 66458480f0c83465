package persistent_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	api "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/csi/csitest"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// A driver hangs in the unmount of one pod's volume. The pod gets the names of the driver and of the volume, and keeps the
// volume; another pod with a volume of the driver starts and ends. Once the driver answers, the volume is unmounted, and no
// byte is lost.
func TestHungUnpublish_HoldsOnlyItsPod(t *testing.T) {
	n := storageNode(t, append(append(bound("c", csiSource("h")), bound("d", csiSource("other"))...), attachRequired(false))...)
	hang := make(chan struct{})
	d := startDriver(t, n, &csitest.Driver{Can: []api.NodeServiceCapability_RPC_Type{csi.Stages}, Hang: hang,
		Hangs: func(call string) bool { return call == "Unpublish h" }})
	n.Tell("a", messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))})
	writeData(t, n.Pod("a", "volumes/kubernetes.io~csi/pv-c/mount/precious"))
	n.Send(messages.PodAddress("a"), messages.UnmountVolumes{UID: "a", Remove: true})
	i := slices.IndexFunc(n.Work, func(w supervisors.Work) bool { return w.Name == "remove volumes a" })
	run := n.Work[i].Run
	n.Work = slices.Delete(n.Work, i, i+1)
	overdue, end := context.WithCancel(t.Context())
	result := make(chan any)
	go func() { result <- run(overdue) }()
	eventually(t, func() bool { return slices.Contains(d.Calls(), "Unpublish h") })
	end() // as at the actor's deadline
	n.Send(messages.Volumes, <-result)
	got := n.Answers("a")
	m, ok := got[len(got)-1].(messages.VolumesUnmounted)
	if !ok || !m.Published || m.Cause.Code != messages.CauseDriverCall || m.Cause.Name != testDriver {
		t.Fatalf("got %+v, want that driver %s has not answered", got, testDriver)
	}
	if want := "CSI driver " + testDriver + " has not answered NodeUnpublishVolume for volume pv-c yet"; m.Left != want {
		t.Errorf("the pod got %q, want %q", m.Left, want)
	}
	n.Tell("b", messages.MountVolumes{UID: "b", Pod: volumestest.APIPodWith("b", claimVolume("data", "d"))})
	if left := n.Unmounted("b"); left.Left != "" {
		t.Errorf("another pod's volume: got %+v, want it unmounted", left)
	}
	if calls := d.Calls(); !slices.Contains(calls, "Unstage other") {
		t.Errorf("got calls %v, want the other volume unstaged", calls)
	}
	close(hang)
	must(t, n.ops.Settle(t.Context(), "volumes/"))
	n.restart(t)
	if left := n.Unmounted("a"); left.Left != "" {
		t.Errorf("after the driver's answer: got %+v, want it unmounted", left)
	}
	if len(n.storage.Calls("a")) > 0 || read(t, filepath.Join(d.Data, "h/precious")) != "data" {
		t.Error("a call is left, or data is lost")
	}
}

// A driver that fails for ever to unmount one volume keeps that pod with its data, and names itself and the volume. Other pods of
// the driver end.
func TestUnpublishThatFails_HoldsOnlyItsPod(t *testing.T) {
	n := storageNode(t, append(append(bound("c", csiSource("h")), bound("d", csiSource("other"))...), attachRequired(false))...)
	d := startDriver(t, n, &csitest.Driver{Refuse: func(call string) error {
		if call == "Unpublish h" {
			return errors.New("the array is away")
		}
		return nil
	}})
	for uid, claim := range map[string]string{"a": "c", "b": "d"} {
		n.Tell(uid, messages.MountVolumes{UID: uid, Pod: volumestest.APIPodWith(uid, claimVolume("data", claim))})
	}
	writeData(t, n.Pod("a", "volumes/kubernetes.io~csi/pv-c/mount/precious"))
	for range 2 { // also by the next agent
		left := n.Unmounted("a")
		if !left.Published || left.Cause.Name != testDriver || !strings.Contains(left.Left, "volume pv-c: CSI driver "+testDriver) {
			t.Errorf("got %+v, want that driver %s keeps volume pv-c", left, testDriver)
		}
		n.restart(t)
	}
	if left := n.Unmounted("b"); left.Left != "" {
		t.Errorf("another pod's volume: got %+v, want it unmounted", left)
	}
	if read(t, filepath.Join(d.Data, "h/precious")) != "data" {
		t.Error("data is lost")
	}
}

// A volume that its driver does not unstage is reported until it is unstaged. It stays in use, and other volumes are unstaged.
func TestUnstageThatFails_IsReported(t *testing.T) {
	n := storageNode(t, append(append(bound("c", csiSource("h")), bound("d", csiSource("other"))...), attachRequired(false))...)
	fails := true
	d := startDriver(t, n, &csitest.Driver{Can: []api.NodeServiceCapability_RPC_Type{csi.Stages}, Refuse: func(call string) error {
		if fails && call == "Unstage h" {
			return errors.New("the array is away")
		}
		return nil
	}})
	for uid, claim := range map[string]string{"a": "c", "b": "d"} {
		n.Tell(uid, messages.MountVolumes{UID: uid, Pod: volumestest.APIPodWith(uid, claimVolume("data", claim))})
		if left := n.Unmounted(uid); left.Left != "" {
			t.Fatalf("got %+v, want it unmounted", left)
		}
	}
	held := func() (out []messages.HeldFolder) {
		n.Send(messages.Pods, messages.PodFoldersWanted{})
		n.Settle(false)
		for _, sent := range n.Take() {
			if m, ok := sent.Msg.(messages.FoldersHeld); ok {
				out = m.Folders
			}
		}
		return out
	}
	if got := held(); len(got) > 0 {
		t.Errorf("after the first failure: got %+v, want none", got)
	}
	n.Advance(kinds.Retry.Max)
	n.Settle(false)
	if got := held(); len(got) != 1 || got[0].Code != messages.HeldStaged || !strings.Contains(got[0].Error, testDriver) {
		t.Errorf("got %+v, want the staged volume and its driver", got)
	} else if unused := n.storage.Unused(t.Context()); len(unused) != 1 || unused[0] != got[0].Path {
		t.Errorf("got unused volumes %v, want %s", unused, got[0].Path)
	}
	if calls := d.Calls(); !slices.Contains(calls, "Unstage other") {
		t.Errorf("got calls %v, want the other volume unstaged", calls)
	}
	fails = false
	n.Advance(kinds.Retry.Max)
	n.Settle(false)
	if got := held(); len(got) > 0 {
		t.Errorf("after the unstage: got %+v, want none", got)
	}
	if unused := n.storage.Unused(t.Context()); len(unused) > 0 {
		t.Errorf("after the unstage: got unused volumes %v, want none", unused)
	}
}
