package persistent_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	api "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/fusetest"
	"github.com/playlet-dev/playlet/actors/internal/linux/subpath"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/csi/csitest"
	"github.com/playlet-dev/playlet/actors/volumes/persistent"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

const attachedName = v1.UniqueVolumeName("kubernetes.io/csi/" + testDriver + "^h")

// attachedNode returns a node with an attached volume that is mounted for pod a, which also has an emptyDir, and the volume's
// mount.
func attachedNode(t *testing.T, can ...api.NodeServiceCapability_RPC_Type) (n *node, d *csitest.Driver, target string) {
	t.Helper()
	attachment := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: persistent.AttachmentName("h", testDriver, "n")},
		Status: storagev1.VolumeAttachmentStatus{Attached: true}}
	n = storageNode(t, append(bound("c", csiSource("h")), attachRequired(true), attachment)...)
	d = startDriver(t, n, &csitest.Driver{Can: can})
	n.storage.Observe(&v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{attachedName},
		VolumesAttached: []v1.AttachedVolume{{Name: attachedName}}}})
	n.Tell("a", messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"), volumestest.EmptyDirVolume("e"))})
	target = n.Pod("a", "volumes/kubernetes.io~csi/pv-c/mount")
	if is, err := mountinfo.Mounted(target); err != nil || !is {
		t.Fatalf("the volume is not mounted: %v", err)
	}
	must(t, os.MkdirAll(filepath.Join(target, "part"), 0o755))
	return n, d, target
}

// bindAt binds a folder to a new one, and unmounts it when the test ends.
func bindAt(t *testing.T, from, at string) string {
	t.Helper()
	must(t, os.MkdirAll(at, 0o750))
	volumestest.MountOn(t, at, func() error { return unix.Mount(from, at, "", unix.MS_BIND, "") })
	return at
}

// wantInUse checks the list of volumes in use.
func wantInUse(t *testing.T, n *node, want ...v1.UniqueVolumeName) {
	t.Helper()
	if got, err := n.storage.InUse(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Errorf("in use: %v, %v, want %v", got, err, want)
	}
}

// A volume that is mounted elsewhere is neither unstaged nor free to be detached after the end of its last pod.
func TestStaged_MountedElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		part, at string
		before   func(t *testing.T, target string)
	}{
		"admin":     {"", "elsewhere", nil},
		"part":      {"part", "elsewhere", nil},
		"same pod":  {"", "pods/a/volumes/kubernetes.io~empty-dir/e/pv", nil},
		"other pod": {"part", "pods/b/volumes/kubernetes.io~empty-dir/e/pv", nil},
		"lost pod":  {"part", "pods/b/volume-subpaths/pv-c/c/0", nil},
		"lost record": {"part", "pods/b/volume-subpaths/pv-c/c/0", func(t *testing.T, target string) {
			must(t, os.Remove(filepath.Join(filepath.Dir(target), csi.RecordFile)))
			must(t, volumestest.UnmountNow(target))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n, d, target := attachedNode(t, csi.Stages)
			at := bindAt(t, filepath.Join(target, c.part), filepath.Join(n.RootDir, c.at))
			if c.before != nil {
				c.before(t, target)
			}
			n.Unmounted("a")
			key := persistent.StagedKey(csi.Record{Driver: testDriver, Handle: "h"})
			err := persistent.StagedDriver{n.storage}.Remove(t.Context(), key)
			if err == nil || !strings.Contains(err.Error(), at) {
				t.Errorf("got %v, want an error that names %s", err, at)
			}
			if slices.Contains(d.Calls(), "Unstage h") {
				t.Error("the volume was unstaged")
			}
			wantInUse(t, n, attachedName)
			must(t, volumestest.UnmountNow(at))
			must(t, persistent.StagedDriver{n.storage}.Remove(t.Context(), key))
			if !slices.Contains(d.Calls(), "Unstage h") {
				t.Error("the volume was not unstaged once the mount was gone")
			}
		})
	}
}

// A volume that has lost its own mount, by hand or by an earlier attempt, is neither free to be detached nor unstaged while its
// file system is mounted elsewhere. Its record describes the mount.
func TestElsewhere_OwnMountIsGone(t *testing.T) {
	key := persistent.StagedKey(csi.Record{Driver: testDriver, Handle: "h"})
	for name, c := range map[string]struct {
		can  []api.NodeServiceCapability_RPC_Type
		lose func(t *testing.T, n *node, target string)
	}{
		"published": {nil, func(t *testing.T, _ *node, target string) { must(t, volumestest.UnmountNow(target)) }},
		"next agent": {nil, func(t *testing.T, n *node, target string) {
			must(t, volumestest.UnmountNow(target))
			n.restart(t)
		}},
		"staged": {[]api.NodeServiceCapability_RPC_Type{csi.Stages}, func(t *testing.T, n *node, target string) {
			must(t, volumestest.UnmountNow(target))
			must(t, volumestest.UnmountNow(filepath.Join(n.RootDir, "plugins", csi.PluginName, key, csi.GlobalMount)))
			must(t, os.Remove(filepath.Join(filepath.Dir(target), csi.RecordFile)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n, d, target := attachedNode(t, c.can...)
			at := bindAt(t, filepath.Join(target, "part"), filepath.Join(n.RootDir, "elsewhere"))
			c.lose(t, n, target)
			n.Unmounted("a")
			err := persistent.StagedDriver{n.storage}.Remove(t.Context(), key)
			if c.can != nil && (err == nil || !strings.Contains(err.Error(), at)) {
				t.Errorf("got %v, want an error that names %s", err, at)
			}
			if calls := d.Calls(); slices.Contains(calls, "Unpublish h") || slices.Contains(calls, "Unstage h") {
				t.Errorf("calls %v, want the volume kept", calls)
			}
			wantInUse(t, n, attachedName)
			must(t, volumestest.UnmountNow(at))
			n.Unmounted("a")
			must(t, persistent.StagedDriver{n.storage}.Remove(t.Context(), key))
			wantInUse(t, n)
		})
	}
}

// Mounts of another volume on a folder of the same file system do not keep a volume staged.
func TestStaged_MountsOfAnother(t *testing.T) {
	objects := append(bound("c", csiSource("h")), bound("below", csiSource("h/below"))...)
	n := storageNode(t, append(objects, attachRequired(false))...)
	d := startDriver(t, n, &csitest.Driver{Can: []api.NodeServiceCapability_RPC_Type{csi.Stages}})
	n.Tell("a", messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))})
	n.Tell("b", messages.MountVolumes{UID: "b", Pod: volumestest.APIPodWith("b", claimVolume("data", "below"))})
	bindAt(t, n.Pod("b/volumes/kubernetes.io~csi/pv-below/mount"), n.Pod("b", subpath.Folder, "pv-below/c/0"))
	n.Unmounted("a")
	eventually(t, func() bool { n.Answers(""); return slices.Contains(d.Calls(), "Unstage h") })
	n.Unmounted("b")
	eventually(t, func() bool { n.Answers(""); return slices.Contains(d.Calls(), "Unstage h/below") })
}

// A root directory that is bound elsewhere, and shares its mounts with the other place, keeps no volume staged.
func TestStaged_SharedRootDirectory(t *testing.T) {
	n := storageNode(t, append(bound("c", csiSource("h")), attachRequired(false))...)
	bindAt(t, n.RootDir, n.RootDir)
	must(t, unix.Mount("", n.RootDir, "", unix.MS_SHARED, ""))
	copied := bindAt(t, n.RootDir, t.TempDir())
	d := startDriver(t, n, &csitest.Driver{Can: []api.NodeServiceCapability_RPC_Type{csi.Stages}})
	n.Tell("a", messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))})
	staged := filepath.Join("plugins", csi.PluginName, persistent.StagedKey(csi.Record{Driver: testDriver, Handle: "h"}), csi.GlobalMount)
	if is, err := mountinfo.Mounted(filepath.Join(copied, staged)); err != nil || !is {
		t.Fatalf("the mount has no copy: %v", err)
	}
	if left := n.Unmounted("a"); left.Left != "" || !slices.Contains(d.Calls(), "Unstage h") {
		t.Errorf("got %+v, calls %v, want the volume unstaged", left, d.Calls())
	}
	if is, err := mountinfo.Mounted(filepath.Join(copied, staged)); err == nil && is {
		t.Error("the copy is left")
	}
}

// A driver that does not stage is not asked to unpublish an attached volume that is mounted elsewhere. Other pods that have the
// volume are no obstacle.
func TestPublished_MountedElsewhere(t *testing.T) {
	n, d, target := attachedNode(t)
	n.Tell("b", messages.MountVolumes{UID: "b", Pod: volumestest.APIPodWith("b", claimVolume("data", "c"))})
	at := bindAt(t, filepath.Join(target, "part"), filepath.Join(n.RootDir, "elsewhere"))
	if left := n.Unmounted("b"); left.Left != "" {
		t.Errorf("pod b: got %+v while pod a has the volume", left)
	}
	for range 2 { // also by the next agent
		if left := n.Unmounted("a"); !left.Published || !strings.Contains(left.Left, at) {
			t.Errorf("pod a: got %+v, want that %s is mounted", left, at)
		}
		n.restart(t)
	}
	if calls := []string{"Publish h", "Publish h", "Unpublish h"}; !slices.Equal(d.Calls(), calls) {
		t.Errorf("calls %v, want %v", d.Calls(), calls)
	}
	wantInUse(t, n, attachedName)
	must(t, volumestest.UnmountNow(at))
	if left := n.Unmounted("a"); left.Left != "" {
		t.Errorf("got %+v once the mount was gone", left)
	}
	wantInUse(t, n)
}

// A driver is not asked to unpublish a volume while binds of parts of volumes cannot be undone.
func TestUnmountPod_BoundParts(t *testing.T) {
	n, d, target := attachedNode(t, csi.Stages)
	at := bindAt(t, target, n.Pod("a", subpath.Folder, "theirs"))
	left := n.Unmounted("a")
	if !left.Published || !strings.Contains(left.Left, at) || slices.Contains(d.Calls(), "Unpublish h") {
		t.Errorf("got %+v, calls %v, want the volume published and %s named", left, d.Calls(), at)
	}
	wantInUse(t, n, attachedName)
	must(t, volumestest.UnmountNow(at))
	if left := n.Unmounted("a"); left.Left != "" || exists(t, n.Pod("a")) {
		t.Errorf("got %+v once the part was unbound", left)
	}
}

// A mount in another volume keeps the pod's folder. It does not keep the pod, once the drivers have released their volumes.
func TestUnmountPod_OtherMounts(t *testing.T) {
	for name, mount := range map[string]func(t *testing.T, at string){
		"hung": func(t *testing.T, at string) {
			s := fusetest.Mount(t, at)
			t.Cleanup(s.Die)
			s.Hang()
		},
		"live": volumestest.MountFolder,
	} {
		t.Run(name, func(t *testing.T) {
			n, d, _ := attachedNode(t, csi.Stages)
			at := n.Pod("a/volumes/kubernetes.io~empty-dir/e/remote")
			must(t, os.MkdirAll(at, 0o755))
			mount(t, at)
			if left := n.Unmounted("a"); left.Published || !strings.Contains(left.Left, at) {
				t.Errorf("got %+v, want no published volume and %s named", left, at)
			}
			if want := []string{"Stage h", "Publish h", "Unpublish h", "Unstage h"}; !slices.Equal(d.Calls(), want) {
				t.Errorf("calls %v, want %v", d.Calls(), want)
			}
			wantInUse(t, n)
		})
	}
}

// A volume that is mounted without a record stays published if no PersistentVolume replaces the record: a driver may have it.
func TestUnmountPod_MountWithoutARecord(t *testing.T) {
	n, _, target := attachedNode(t, csi.Stages)
	must(t, n.storage.Client.CoreV1().PersistentVolumes().Delete(t.Context(), "pv-c", metav1.DeleteOptions{}))
	must(t, os.Remove(filepath.Join(filepath.Dir(target), csi.RecordFile)))
	if left := n.Unmounted("a"); !left.Published || !strings.Contains(left.Left, target) {
		t.Errorf("got %+v, want a published volume and %s named", left, target)
	}
}

// A live mount that only another user may access is not taken for dead when the next pod gets the volume: detached, it would be
// staged twice while the first pod uses it.
func TestStaged_LiveMountOfAnotherUser(t *testing.T) {
	n, d, _ := attachedNode(t, csi.Stages)
	key := persistent.StagedKey(csi.Record{Driver: testDriver, Handle: "h"})
	at := filepath.Join(n.RootDir, "plugins", csi.PluginName, key, csi.GlobalMount)
	fusetest.MountFor(t, at, 1000)
	n.Tell("b", messages.MountVolumes{UID: "b", Pod: volumestest.APIPodWith("b", claimVolume("data", "c"))})
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != at, false })
	must(t, err)
	if !slices.ContainsFunc(mounts, func(m *mountinfo.Info) bool { return m.FSType == "fuse" }) {
		t.Error("the live mount was detached")
	}
	if calls := d.Calls(); slices.Index(calls[1:], "Stage h") >= 0 {
		t.Errorf("calls %v, want the volume staged once", calls)
	}
}
