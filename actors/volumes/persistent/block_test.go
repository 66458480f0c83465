package persistent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/playlet-dev/playlet/actors/volumes/leftover"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

// boundDevice returns a claim and its local volume with volumeMode Block.
func boundDevice(name, path string) []runtime.Object {
	objects := bound(name, v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}})
	mode := v1.PersistentVolumeBlock
	objects[1].(*v1.PersistentVolume).Spec.VolumeMode = &mode
	return objects
}

// podWithDevice returns a pod whose container has the claim as a block device.
func podWithDevice(uid, claim string) *v1.Pod {
	pod := volumestest.APIPodWith(uid, claimVolume("v", claim))
	pod.Spec.Containers[0].VolumeMounts = nil
	pod.Spec.Containers[0].VolumeDevices = []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/xvda"}}
	group := int64(4711)
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group} // has no effect on devices
	return pod
}

// makeDevice makes the node of a block device. No test opens it.
func makeDevice(t *testing.T) string {
	t.Helper()
	volumestest.NeedMounts(t)
	path := filepath.Join(t.TempDir(), "device")
	must(t, unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 200))))
	return path
}

// A local block device is linked into its pod's folder, found again by the next agent, and unlinked without being touched.
func TestLocalDevice_IsLinked(t *testing.T) {
	device := makeDevice(t)
	before, err := os.Stat(device)
	must(t, err)
	n := storageNode(t, boundDevice("disk", device)...)
	link := n.Pod("a/volumeDevices/kubernetes.io~local-volume/pv-disk")
	must(t, os.MkdirAll(filepath.Dir(link), 0o750))
	must(t, os.Symlink("/dev/other", link)) // of an earlier volume of this name
	for range 2 {
		got := n.Tell("a", messages.MountVolumes{UID: "a", Pod: podWithDevice("a", "disk")})
		if want := fmt.Sprint(messages.VolumesMounted{UID: "a", Paths: map[string]string{"v": link}}); len(got) != 1 || fmt.Sprint(got[0]) != want {
			t.Fatalf("got %+v, want %s", got, want)
		}
		if target, err := os.Readlink(link); err != nil || target != device {
			t.Errorf("the link leads to %s (%v), want %s", target, err, device)
		}
		if held, err := leftover.Find(n.RootDir, false); len(held) > 0 || err != nil {
			t.Errorf("held: %v, %v", held, err)
		}
		n.restart(t)
	}
	n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
	if exists(t, n.Pod("a")) {
		t.Error("the pod's folder is left")
	}
	if after, err := os.Lstat(device); err != nil || !os.SameFile(before, after) || after.Sys() == nil ||
		after.Mode() != before.Mode() || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the device changed: %v, %v", after, err)
	}
}

// A map that a kubelet made of a device, in either place, is undone with the pod. The map of another pod stays.
func TestLocalDevice_AKubeletsMapIsUndone(t *testing.T) {
	for _, plugin := range []string{"kubernetes.io~local-volume", "kubernetes.io/local-volume"} {
		t.Run(plugin, func(t *testing.T) {
			device, _ := volumestest.LoopDevice(t)
			n := storageNode(t, boundDevice("disk", device)...)
			link := n.Pod("a/volumeDevices/kubernetes.io~local-volume/pv-disk")
			must(t, os.MkdirAll(filepath.Dir(link), 0o750))
			must(t, os.Symlink(device, link))
			maps := filepath.Join(n.RootDir, "plugins", plugin, "volumeDevices/pv-disk")
			mapped, others := filepath.Join(maps, "a"), filepath.Join(maps, "b")
			for _, path := range []string{mapped, others} {
				write(t, path)
				must(t, unix.Mount(device, path, "", unix.MS_BIND, ""))
				_, err := volumestest.Losetup("-f", path)
				must(t, err)
			}
			n.Tell("a", messages.MountVolumes{UID: "a", Pod: podWithDevice("a", "disk")})
			if held, err := leftover.Find(n.RootDir, false); err != nil || len(held) > 0 {
				t.Errorf("held: %v, %v", held, err)
			}
			n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
			if exists(t, n.Pod("a")) || exists(t, mapped) || len(volumestest.LoopsOver(t, mapped)) > 0 {
				t.Error("the pod's folder, map or loop device is left")
			}
			if len(volumestest.LoopsOver(t, others)) != 1 {
				t.Error("the other pod's loop device is gone")
			}
			write(t, n.Pod("b/volumeDevices/kubernetes.io~local-volume/x"))
			must(t, os.Remove(n.Pod("b/volumeDevices/kubernetes.io~local-volume/x")))
			must(t, os.Symlink(device, n.Pod("b/volumeDevices/kubernetes.io~local-volume/pv-disk")))
			n.Tell("b", messages.UnmountVolumes{UID: "b", Remove: true})
			if exists(t, n.Pod("b")) || exists(t, maps) || len(volumestest.LoopsOver(t, others)) > 0 {
				t.Error("something of the last pod is left")
			}
		})
	}
}

// A map that a kubelet left for a pod that has no folder any more is undone by a sweep. The map of a pod with a folder stays.
func TestLocalDevice_AMapWithoutAPod(t *testing.T) {
	device, _ := volumestest.LoopDevice(t)
	n := storageNode(t, boundDevice("disk", device)...)
	maps := filepath.Join(n.RootDir, "plugins/kubernetes.io~local-volume/volumeDevices/pv-disk")
	gone, alive := filepath.Join(maps, "gone"), filepath.Join(maps, "alive")
	for _, path := range []string{gone, alive} {
		write(t, path)
		must(t, unix.Mount(device, path, "", unix.MS_BIND, ""))
		_, err := volumestest.Losetup("-f", path)
		must(t, err)
	}
	must(t, os.MkdirAll(n.Pod("alive"), 0o750))
	sweep := func(uids map[string]bool) {
		n.Send(messages.Pods, messages.PodFoldersWanted{UIDs: uids})
		n.Answers("")
	}
	sweep(map[string]bool{"alive": true})
	if exists(t, gone) || len(volumestest.LoopsOver(t, gone)) > 0 {
		t.Error("the map or the loop device of the pod that is gone is left")
	}
	if len(volumestest.LoopsOver(t, alive)) != 1 {
		t.Error("the loop device of the pod with a folder is gone")
	}
	must(t, os.Remove(n.Pod("alive")))
	sweep(nil)
	if exists(t, maps) || len(volumestest.LoopsOver(t, alive)) > 0 {
		t.Error("something of the last pod is left")
	}
}

func TestLocalDevice_Refusals(t *testing.T) {
	volumestest.NeedMounts(t)
	folder, absent := t.TempDir(), filepath.Join(t.TempDir(), "absent")
	files := bound("files", v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: folder}})
	nfs := boundDevice("nfs", "")
	nfs[1].(*v1.PersistentVolume).Spec.PersistentVolumeSource = v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{}}
	objects := append(append(append(append(files, nfs...), boundDevice("folder", folder)...), boundDevice("absent", absent)...),
		boundDevice("relative", "../x")...)
	n := storageNode(t, objects...)
	mounts := podWithDevice("a", "folder")
	mounts.Spec.Containers = append(mounts.Spec.Containers, v1.Container{Name: "d", VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v"}}})
	for _, c := range []struct {
		pod       *v1.Pod
		want      string
		cause     messages.CauseCode
		permanent bool
	}{
		{podWithDevice("a", "files"), "PersistentVolume pv-files is a file system (volumeMode Filesystem), but a container names it in volumeDevices",
			messages.CauseVolumeMode, true},
		{mounts, "PersistentVolume pv-folder is a block device (volumeMode Block), but a container names it in volumeMounts", messages.CauseVolumeMode, true},
		{podWithDevice("a", "nfs"), "of another kind than csi and local, which is not supported", "", true},
		{podWithDevice("a", "folder"), folder + " is no block device", "", false},
		{podWithDevice("a", "absent"), absent + ": no such file", "", false},
		{podWithDevice("a", "relative"), "is not absolute", "", true},
	} {
		got := n.Tell("a", messages.MountVolumes{UID: "a", Pod: c.pod})
		m, ok := messages.VolumesFailed{}, false
		if len(got) > 0 {
			m, ok = got[0].(messages.VolumesFailed)
		}
		if !ok || !strings.Contains(m.Reason.Message, c.want) || m.Reason.Cause.Code != c.cause || m.Reason.Permanent != c.permanent {
			t.Errorf("got %+v, want %+v", got, c)
		}
		n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
	}
}
