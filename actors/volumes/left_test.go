package volumes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
)

func writeData(t testing.TB, path string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o750))
	must(t, os.WriteFile(path, []byte("data"), 0o600))
}

// kubeletPlugins are kinds of volumes that only a kubelet has, and one that the agent has, too.
var kubeletPlugins = []string{
	"kubernetes.io~nfs", "kubernetes.io~iscsi", "kubernetes.io~fc", "kubernetes.io~local-volume", "example.com~flex",
}

// Folders of a replaced kubelet's plugins are unmounted and removed. They are kept if they hold data.
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

// Folders of a pod that no known agent writes are kept if they hold data. The notes of the agents are removed.
func TestUnknownFoldersOfAPodAreKept(t *testing.T) {
	for _, folder := range []string{"plugins/kubernetes.io~other/v", "unknown", "volumes/kubernetes.io~csi/v"} {
		t.Run(folder, func(t *testing.T) {
			d := newDisk(t)
			d.mountPod(t.Context(), "a", volumestest.PodWith("a", volumestest.EmptyDirVolume("data")))
			write(t, d.pod("a/userns")) // a kubelet's, like the next two
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

// A file in place of a folder is data as well.
func TestFileInVolumesPlace_IsKept(t *testing.T) {
	d := newDisk(t)
	data := d.pod("a/volumes/kubernetes.io~nfs/pv")
	writeData(t, data)
	if err := d.unmountPod(t.Context(), "a", true); err == nil || read(t, data) != "data" {
		t.Errorf("got %v, want an error about the data", err)
	}
}

// The error of an unmount is returned even if the pod's folder can be removed.
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
