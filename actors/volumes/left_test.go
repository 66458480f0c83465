package volumes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	api "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/csi/csitest"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

// unmounted returns the answer to a request to remove a pod.
func (n *node) unmounted(t *testing.T, uid string) messages.VolumesUnmounted {
	t.Helper()
	got := n.tell(uid, messages.UnmountVolumes{UID: uid, Remove: true})
	if len(got) != 1 {
		t.Fatalf("got %+v, want one answer", got)
	}
	m, ok := got[0].(messages.VolumesUnmounted)
	if !ok {
		t.Fatalf("got %+v, want VolumesUnmounted", got[0])
	}
	return m
}

func writeData(t testing.TB, path string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o750))
	must(t, os.WriteFile(path, []byte("data"), 0o600))
}

// A driver that mounts in its own namespace, or a mount that was undone by hand, leaves a plain folder that the pod writes
// to. That data is the user's. The driver is released all the same, and the folder goes once it is empty.
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
			n.tell("a", messages.MountVolumes{UID: "a", Pod: apiPodWith("a", claimVolume("data", "c"))})
			target := n.pod("a", "volumes/kubernetes.io~csi/pv-c/mount")
			if c.before != nil {
				c.before(t, target)
			}
			data := filepath.Join(target, "folder/precious")
			writeData(t, data)
			for range 2 { // also by the next agent
				left := n.unmounted(t, "a")
				if !strings.Contains(left.Left, target+" holds data") || left.Published != (name == "unreadable") {
					t.Errorf("got %+v, want that %s holds data", left, target)
				}
				if read(t, data) != "data" {
					t.Error("the data was changed")
				}
				n.restart(t)
			}
			must(t, os.RemoveAll(filepath.Dir(data)))
			if left := n.unmounted(t, "a"); left.Left != "" || exists(t, n.pod("a")) {
				t.Errorf("got %+v once the data had been moved away", left)
			}
		})
	}
}

// The same of the folder in which a driver stages a volume for all its pods.
func TestPlainStagingFolder(t *testing.T) {
	n := storageNode(t, append(bound("c", csiSource("h")), attachRequired(false))...)
	d := startDriver(t, n, &csitest.Driver{Hidden: true, Can: []api.NodeServiceCapability_RPC_Type{csi.Stages}})
	n.tell("a", messages.MountVolumes{UID: "a", Pod: apiPodWith("a", claimVolume("data", "c"))})
	key := stagedKey(csi.Record{Driver: testDriver, Handle: "h"})
	folder := filepath.Join(n.storage.csiFolder(), key)
	data := filepath.Join(folder, csi.GlobalMount, "precious")
	writeData(t, data)
	if left := n.unmounted(t, "a"); left.Left != "" {
		t.Fatalf("got %+v", left)
	}
	eventually(t, func() bool { n.work(""); return strings.Contains(strings.Join(d.Calls(), " "), "Unstage h") })
	var kept *safepath.NotEmptyError
	staged := stagedDriver{n.storage}
	if err := staged.Remove(t.Context(), key); !errors.As(err, &kept) || read(t, data) != "data" {
		t.Errorf("got %v, want an error about the data", err)
	}
	if use, err := n.storage.inUse(t.Context()); err != nil || len(use) > 0 {
		t.Errorf("in use is %v, %v after the driver has unstaged it", use, err)
	}
	must(t, os.Remove(data))
	if err := staged.Remove(t.Context(), key); err != nil || exists(t, folder) {
		t.Errorf("got %v once the data had been moved away", err)
	}
}

// kubeletPlugins are kinds of volume that a kubelet has and the agent has not, and one that both have.
var kubeletPlugins = []string{
	"kubernetes.io~nfs", "kubernetes.io~iscsi", "kubernetes.io~fc", "kubernetes.io~local-volume", "example.com~flex",
}

// Folders of a replaced kubelet's plugins are unmounted and removed, and kept where there is data in them.
func TestFoldersOfAKubeletsPluginsAreKept(t *testing.T) {
	for _, plugin := range kubeletPlugins {
		t.Run(plugin, func(t *testing.T) {
			d := newDisk(t)
			volume := d.pod("a/volumes", plugin, "pv")
			data := filepath.Join(volume, "precious")
			writeData(t, data)
			err := d.unmountPod(t.Context(), "a", true)
			var kept *safepath.NotEmptyError
			if !errors.As(err, &kept) || kept.Path != volume || read(t, data) != "data" {
				t.Errorf("got %v, want an error about %s", err, volume)
			}
			must(t, os.Remove(data))
			server := t.TempDir()
			writeData(t, filepath.Join(server, "precious"))
			volumestest.MountOn(t, volume, func() error { return unix.Mount(server, volume, "", unix.MS_BIND, "") })
			must(t, d.unmountPod(t.Context(), "a", true))
			if exists(t, d.pod("a")) || read(t, filepath.Join(server, "precious")) != "data" {
				t.Error("the folder is left, or the volume was emptied")
			}
		})
	}
}

// Folders of a pod that no agent is known to write are kept where there is data in them, and notes of the agents go.
func TestUnknownFoldersOfAPodAreKept(t *testing.T) {
	for _, folder := range []string{"plugins/kubernetes.io~other/v", "unknown", "volumes/kubernetes.io~csi/v"} {
		t.Run(folder, func(t *testing.T) {
			d := newDisk(t)
			d.mountPod(t.Context(), "a", volumestest.PodWith("a", volumestest.EmptyDirVolume("data")))
			write(t, d.pod("a/userns")) // a kubelet's, as the next two
			write(t, d.pod("a/plugins/kubernetes.io~empty-dir/wrapped_token/ready"))
			write(t, d.pod("a/containers/c/0123abcd"))
			data := d.pod("a", folder, "precious")
			writeData(t, data)
			if err := d.unmountPod(t.Context(), "a", true); err == nil || read(t, data) != "data" {
				t.Errorf("got %v, want an error about the data", err)
			}
			must(t, os.Remove(data))
			must(t, os.Remove(filepath.Dir(data)))
			must(t, d.unmountPod(t.Context(), "a", true))
			if exists(t, d.pod("a")) {
				t.Error("the pod's folder is left")
			}
		})
	}
}

// A file that stands in the place of a folder is data as well.
func TestAFileInPlaceOfAVolumeIsKept(t *testing.T) {
	d := newDisk(t)
	data := d.pod("a/volumes/kubernetes.io~nfs/pv")
	writeData(t, data)
	if err := d.unmountPod(t.Context(), "a", true); err == nil || read(t, data) != "data" {
		t.Errorf("got %v, want an error about the data", err)
	}
}

// The error of an unmount is returned also where the pod's folder could be removed without it.
func TestTheErrorOfAnUnmountIsReturned(t *testing.T) {
	d := newDisk(t, failingUnmount{kubeletKind{name: "kubernetes.io/failing"}})
	must(t, os.MkdirAll(d.pod("a/volumes/kubernetes.io~failing/v"), 0o750))
	if err := d.unmountPod(t.Context(), "a", true); !errors.Is(err, errUnmount) || !exists(t, d.pod("a")) {
		t.Errorf("got %v, want %v and the folder", err, errUnmount)
	}
}

var errUnmount = errors.New("the server does not answer")

type failingUnmount struct{ kubeletKind }

func (failingUnmount) Unmount(context.Context, kinds.Folder, string) error { return errUnmount }

// The removal of a pod's folder may be cut off after each step: the next agent finishes it.
func TestCutOffRemovalIsFinished(t *testing.T) {
	const folder = "volumes/kubernetes.io~csi/pv"
	for name, files := range map[string][]string{
		"before a record was whole":    {folder + "/vol_data.json.new"},
		"after the record":             {folder + "/mount/"},
		"after the mount's folder":     {folder + "/"},
		"after the volume's folder":    {"volumes/kubernetes.io~csi/", "plugins/", "containers/c/0123abcd"},
		"after the kind's folder":      {"volumes/", "volumeDevices/kubernetes.io~csi/", "containers/"},
		"after folders of volumes":     {"plugins/kubernetes.io~empty-dir/v/ready", "containers/c/0123abcd", "etc-hosts"},
		"after folders of parts":       {"volume-subpaths/pv/c/"},
		"after a part of a file":       {"volume-subpaths/pv/c/0"},
		"before the pod's folder":      {""},
		"before a part was unbound":    {"volume-subpaths/pv/c/0/"},
		"in the middle of an emptyDir": {"volumes/kubernetes.io~empty-dir/v/.removing-1/file"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t)
			for _, file := range files {
				if strings.HasSuffix(file, "/") || file == "" {
					must(t, os.MkdirAll(d.pod("a", file), 0o750))
				} else {
					write(t, d.pod("a", file))
				}
			}
			must(t, d.unmountPod(t.Context(), "a", true))
			if exists(t, d.pod("a")) {
				t.Error("the pod's folder is left")
			}
		})
	}
}
