package leftover

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

// TestFind lays out the folders of a kubelet with each kind of volume, on real mounts.
func TestFind(t *testing.T) {
	volumestest.NeedMounts(t)
	root := t.TempDir()
	t.Cleanup(func() { volumestest.UnmountBelow(t, root) })
	file := func(path string) {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(`{"driverName":"d","volumeHandle":"h"}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mount := func(path string) {
		file(path + "/below")
		path = filepath.Join(root, path)
		volumestest.MountOn(t, path, func() error { return unix.Mount(t.TempDir(), path, "", unix.MS_BIND, "") })
	}
	for _, fine := range []string{"empty-dir/v/file", "configmap/v/..data", "secret/v/file", "projected/v/file", "downward-api/v/file"} {
		file("pods/a/volumes/kubernetes.io~" + fine)
	}
	file("pods/a/volumes/kubernetes.io~csi/fine/vol_data.json")
	mount("pods/a/volumes/kubernetes.io~csi/fine/mount")
	mount("pods/a/volumes/kubernetes.io~local-volume/fine")
	file("plugins/kubernetes.io/csi/d/fine/vol_data.json")
	mount("plugins/kubernetes.io/csi/d/fine/globalmount")
	file("plugins/d/csi.sock")

	mount("pods/a/volumes/kubernetes.io~csi/lost/mount")
	file("pods/a/volumes/kubernetes.io~csi/plain/mount/data")
	file("pods/a/volumes/kubernetes.io~local-volume/plain/data")
	mount("pods/a/volumes/kubernetes.io~nfs/fine")
	mount("pods/a/volumes/kubernetes.io~fc/mounted")
	file("pods/a/volumes/kubernetes.io~nfs/plain/data")
	file("pods/b/volumeDevices/kubernetes.io~csi/block")
	file("plugins/kubernetes.io/csi/d/plain/globalmount/data")
	file("plugins/kubernetes.io/csi/volumeDevices/recorded/data/vol_data.json")
	file("plugins/kubernetes.io/csi/volumeDevices/publish/block/b")
	file("plugins/kubernetes.io/iscsi/volumeDevices/target/b")
	mount("plugins/kubernetes.io/fc/target")
	mount("plugins/kubernetes.io/iscsi/iface-default/target") // the agent logs out
	file("pods/c/volumes/kubernetes.io~cephfs")
	mount("pods/c/volume-subpaths/v/c/0")
	file("pods/c/volume-subpaths/v/c/1/data")
	file("pods/c/volume-subpaths/v/c/2")
	if err := os.MkdirAll(filepath.Join(root, "pods/c/volume-subpaths/v/c/3"), 0o750); err != nil {
		t.Fatal(err)
	}
	file("pods/c/volumes/kubernetes.io~fc/file")
	file("pods/c/volumes/kubernetes.io~csi/file/mount")
	for path, make := range map[string]func(string) error{
		"link": func(path string) error { return os.Symlink("/", path) },
		"file": func(path string) error { return os.WriteFile(path, nil, 0o600) },
	} { // the agent removes both
		file("pods/d/volumes/kubernetes.io~rbd/v/f")
		if err := os.Remove(filepath.Join(root, "pods/d/volumes/kubernetes.io~rbd/v/f")); err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{"pods/d/volumes", "pods/d/volumes/kubernetes.io~rbd"} {
			if err := make(filepath.Join(root, at, path)); err != nil {
				t.Fatal(err)
			}
		}
	}

	held := func(code messages.HeldCode, uid, plugin, path string) messages.HeldFolder {
		return messages.HeldFolder{Code: code, UID: uid, Plugin: "kubernetes.io~" + plugin, Path: filepath.Join(root, path)}
	}
	want := []messages.HeldFolder{
		held(messages.HeldData, "", "csi", "plugins/kubernetes.io/csi/d/plain/globalmount"),
		held(messages.HeldDevice, "", "csi", "plugins/kubernetes.io/csi/volumeDevices/block"),
		held(messages.HeldPlugin, "", "fc", "plugins/kubernetes.io/fc/target"),
		held(messages.HeldDevice, "", "iscsi", "plugins/kubernetes.io/iscsi/volumeDevices/target"),
		held(messages.HeldDevice, "b", "csi", "pods/b/volumeDevices/kubernetes.io~csi/block"),
		held(messages.HeldMount, "a", "csi", "pods/a/volumes/kubernetes.io~csi/lost/mount"),
		held(messages.HeldData, "a", "csi", "pods/a/volumes/kubernetes.io~csi/plain/mount"),
		held(messages.HeldData, "a", "local-volume", "pods/a/volumes/kubernetes.io~local-volume/plain"),
		held(messages.HeldPlugin, "a", "fc", "pods/a/volumes/kubernetes.io~fc/mounted"),
		held(messages.HeldData, "a", "nfs", "pods/a/volumes/kubernetes.io~nfs/plain"),
		held(messages.HeldData, "c", "cephfs", "pods/c/volumes/kubernetes.io~cephfs"),
		held(messages.HeldData, "c", "fc", "pods/c/volumes/kubernetes.io~fc/file"),
		held(messages.HeldData, "c", "csi", "pods/c/volumes/kubernetes.io~csi/file/mount"),
		{Code: messages.HeldData, UID: "c", Path: filepath.Join(root, "pods/c/volume-subpaths/v/c/1")},
		{Code: messages.HeldData, UID: "c", Path: filepath.Join(root, "pods/c/volume-subpaths/v/c/2")},
	}
	got, err := Find(root, false)
	if err != nil {
		t.Error(err)
	}
	seen := map[messages.HeldFolder]bool{}
	for _, f := range got {
		seen[f] = true
	}
	for _, f := range want {
		if !seen[f] {
			t.Errorf("not found: %+v", f)
		}
		delete(seen, f)
	}
	for f := range seen {
		t.Errorf("found %+v, which is no leftover", f)
	}
	again, err := Find(root, false)
	if err != nil || !reflect.DeepEqual(got, again) {
		t.Errorf("got %v, %v the second time, want the same order", again, err)
	}
	alone, err := Find(root, true)
	for _, path := range []string{"pods/a/volumes/kubernetes.io~csi/fine/mount", "plugins/kubernetes.io/csi/d/fine/globalmount",
		"plugins/kubernetes.io/csi/volumeDevices/recorded"} {
		uid := ""
		if strings.HasPrefix(path, "pods/a") {
			uid = "a"
		}
		if !slices.Contains(alone, held(messages.HeldDriver, uid, "csi", path)) {
			t.Errorf("on a standalone node %s is not found", path)
		}
	}
	if err != nil || len(alone) != len(want)+4 { // also the iSCSI volume
		t.Errorf("on a standalone node found %d, %v, want %d", len(alone), err, len(want)+4)
	}
	if got, err := Find(filepath.Join(root, "nowhere"), false); err != nil || got != nil {
		t.Errorf("without a root folder found %v, %v", got, err)
	}
	sentences, err := Explain(root, false)
	if err != nil || len(sentences) != len(want) {
		t.Errorf("got %d sentences, %v, want %d", len(sentences), err, len(want))
	}
	for _, s := range sentences {
		if s.Cause == "" || s.Remedy == "" {
			t.Errorf("the finding %+v lacks a sentence", s)
		}
	}
}
