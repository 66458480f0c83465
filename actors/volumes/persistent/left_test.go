package persistent_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	api "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/linux/fusetest"
	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/csi/csitest"
	"github.com/playlet-dev/playlet/actors/volumes/persistent"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

// A driver that mounts in its own namespace, or a mount that was undone by hand, leaves a plain folder that the pod writes to.
// That data is the user's. The driver is still released, and the folder is removed once it is empty.
func TestPlainFolders(t *testing.T) {
	for name, c := range map[string]struct {
		driver *csitest.Driver
		before func(t *testing.T, target string)
	}{
		"hidden": {&csitest.Driver{Hidden: true}, nil},
		"staged": {&csitest.Driver{Hidden: true, Can: []api.NodeServiceCapability_RPC_Type{csi.Stages}}, nil},
		"by hand": {&csitest.Driver{}, func(t *testing.T, target string) {
			must(t, unix.Unmount(target, unix.MNT_DETACH))
		}},
		"lost": {&csitest.Driver{Hidden: true}, func(t *testing.T, target string) {
			must(t, os.Remove(filepath.Join(filepath.Dir(target), csi.RecordFile)))
		}},
		"unreadable": {&csitest.Driver{Hidden: true}, func(t *testing.T, target string) {
			must(t, os.WriteFile(filepath.Join(filepath.Dir(target), csi.RecordFile), []byte("{"), 0o600))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := storageNode(t, append(bound("c", csiSource("h")), attachRequired(false))...)
			startDriver(t, n, c.driver)
			n.Tell("a", messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))})
			target := n.Pod("a", "volumes/kubernetes.io~csi/pv-c/mount")
			if c.before != nil {
				c.before(t, target)
			}
			data := filepath.Join(target, "folder/precious")
			writeData(t, data)
			for range 2 { // also by the next agent
				left := n.Unmounted("a")
				if !strings.Contains(left.Left, target+" holds data") || left.Published != (name == "unreadable") {
					t.Errorf("got %+v, want that %s holds data", left, target)
				}
				if read(t, data) != "data" {
					t.Error("the data was changed")
				}
				n.restart(t)
			}
			must(t, os.RemoveAll(filepath.Dir(data)))
			if left := n.Unmounted("a"); left.Left != "" || exists(t, n.Pod("a")) {
				t.Errorf("got %+v once the data had been moved away", left)
			}
		})
	}
}

// The same holds for the folder in which a driver stages a volume for all its pods.
func TestPlainStagingFolder(t *testing.T) {
	n := storageNode(t, append(bound("c", csiSource("h")), attachRequired(false))...)
	d := startDriver(t, n, &csitest.Driver{Hidden: true, Can: []api.NodeServiceCapability_RPC_Type{csi.Stages}})
	n.Tell("a", messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))})
	key := persistent.StagedKey(csi.Record{Driver: testDriver, Handle: "h"})
	folder := filepath.Join(n.storage.CSIFolder(), key)
	data := filepath.Join(folder, csi.GlobalMount, "precious")
	writeData(t, data)
	if left := n.Unmounted("a"); left.Left != "" {
		t.Fatalf("got %+v", left)
	}
	eventually(t, func() bool { n.Answers(""); return strings.Contains(strings.Join(d.Calls(), " "), "Unstage h") })
	var kept *safepath.NotEmptyError
	staged := persistent.StagedDriver{Storage: n.storage}
	if err := staged.Remove(t.Context(), key); !errors.As(err, &kept) || read(t, data) != "data" {
		t.Errorf("got %v, want an error about the data", err)
	}
	if use, err := n.storage.InUse(t.Context()); err != nil || len(use) > 0 {
		t.Errorf("in use is %v, %v after the driver has unstaged it", use, err)
	}
	must(t, os.Remove(data))
	if err := staged.Remove(t.Context(), key); err != nil || exists(t, folder) {
		t.Errorf("got %v once the data had been moved away", err)
	}
}

// An agent that is killed before it has written the record of a volume leaves a folder without data. The next one removes it, and
// keeps those with data and those of a kubelet.
func TestStagingFolderWithoutARecord(t *testing.T) {
	n := storageNode(t)
	in := func(elements ...string) string {
		return filepath.Join(append([]string{n.storage.CSIFolder()}, elements...)...)
	}
	for _, dir := range []string{in(testDriver, "begun"), in(testDriver, "writing", csi.GlobalMount), in(testDriver, "data", csi.GlobalMount),
		in(testDriver, "other", "x"), in("volumeDevices", "publish")} {
		must(t, os.MkdirAll(dir, 0o750))
	}
	must(t, os.WriteFile(in(testDriver, "writing", csi.NewRecordFile), []byte("{"), 0o600))
	must(t, os.WriteFile(in(testDriver, "data", csi.GlobalMount, "precious"), []byte("data"), 0o600))
	n.restart(t)
	n.Send(messages.Pods, messages.PodFoldersWanted{UIDs: map[string]bool{}})
	eventually(t, func() bool {
		n.Answers("")
		return !exists(t, in(testDriver, "begun")) && !exists(t, in(testDriver, "writing"))
	})
	for _, kept := range []string{in(testDriver, "data", csi.GlobalMount, "precious"), in(testDriver, "other", "x"), in("volumeDevices", "publish")} {
		if !exists(t, kept) {
			t.Errorf("%s was removed", kept)
		}
	}
}

func TestStage_ReplacesADeadMount(t *testing.T) {
	n := storageNode(t, append(bound("c", csiSource("h")), attachRequired(false))...)
	startDriver(t, n, &csitest.Driver{Can: []api.NodeServiceCapability_RPC_Type{csi.Stages}})
	n.Tell("a", messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))})
	staged := filepath.Join(n.storage.CSIFolder(), persistent.StagedKey(csi.Record{Driver: testDriver, Handle: "h"}), csi.GlobalMount)
	must(t, unix.Unmount(staged, unix.MNT_DETACH))
	fusetest.Mount(t, staged).Die()
	got := n.Tell("b", messages.MountVolumes{UID: "b", Pod: volumestest.APIPodWith("b", claimVolume("data", "c"))})
	if _, mounted := got[0].(messages.VolumesMounted); len(got) != 1 || !mounted {
		t.Errorf("got %+v", got)
	}
}
