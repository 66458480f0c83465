package persistent_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
)

// A block device of a kind that only a kubelet has stays in use, is reported, and keeps its pod.
func TestABlockDeviceOfAKubeletIsHeld(t *testing.T) {
	n := storageNode(t)
	device := n.Pod("a", "volumeDevices/kubernetes.io~fc/pv-b")
	must(t, os.MkdirAll(filepath.Dir(device), 0o750))
	must(t, os.Symlink("/dev/null", device))
	n.storage.Observe(&v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{
		"kubernetes.io/csi/other^h", "kubernetes.io/fc/target",
	}}})
	wantInUse(t, n, "kubernetes.io/fc/target")
	left := n.Unmounted("a")
	if !left.Published || !strings.Contains(left.Left, device+" is a block device that a kubelet mapped") {
		t.Errorf("got %+v, want that %s is a kubelet's", left, device)
	}
	if _, err := os.Readlink(device); err != nil {
		t.Error(err)
	}
}

// Names on the Node of a kind that only a kubelet has stay in use while anything of that kind is here.
func TestVolumesOfAKubeletsPluginsStayInUse(t *testing.T) {
	n := storageNode(t)
	n.storage.Observe(&v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{
		"kubernetes.io/csi/other^h", "kubernetes.io/fc/target",
	}}})
	volume := n.Pod("a", "volumes/kubernetes.io~fc/pv")
	must(t, os.MkdirAll(volume, 0o750))
	volumestest.MountFolder(t, volume)
	if use, err := n.storage.InUse(t.Context()); err != nil || len(use) != 1 || use[0] != "kubernetes.io/fc/target" {
		t.Errorf("in use is %v, %v, want the one of fc", use, err)
	}
	must(t, unix.Unmount(volume, 0))
	if use, err := n.storage.InUse(t.Context()); err != nil || len(use) > 0 {
		t.Errorf("in use is %v, %v once it was unmounted", use, err)
	}
}

// A mounted volume without its record may be any volume: no volume on the Node may be detached.
func TestAMountWithoutARecordIsInUse(t *testing.T) {
	n := storageNode(t)
	want := []v1.UniqueVolumeName{"kubernetes.io/csi/some^h"}
	n.storage.Observe(&v1.Node{Status: v1.NodeStatus{VolumesInUse: want}})
	target := n.Pod("a", "volumes/kubernetes.io~csi/pv/mount")
	must(t, os.MkdirAll(target, 0o750))
	volumestest.MountFolder(t, target)
	if use, err := n.storage.InUse(t.Context()); err == nil || !slices.Equal(use, want) {
		t.Errorf("in use is %v, %v, want an error and %v", use, err, want)
	}
}
