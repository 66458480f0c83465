package volumes

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	api "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/fusetest"
	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/internal/linux/subpath"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/csi/csitest"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

// mountInEmptyDir mounts a file system in the emptyDir of a new pod, as a container with mount propagation does, and binds
// a part of it (subPath).
func mountInEmptyDir(t *testing.T, d disk, uid string) *fusetest.Server {
	t.Helper()
	at := filepath.Join(d.mountPod(t.Context(), uid, volumestest.PodWith(uid, volumestest.EmptyDirVolume("data"))).paths()["data"], "remote")
	must(t, os.Mkdir(at, 0o755))
	s := fusetest.Mount(t, at)
	place := d.pod(uid, subpath.Folder, "data/c/0")
	must(t, os.MkdirAll(place, 0o750))
	volumestest.MountOn(t, place, func() error { return unix.Mount(at, place, "", unix.MS_BIND, "") })
	return s
}

func TestUnmountPod_DetachesADeadMount(t *testing.T) {
	d := newDisk(t)
	mountInEmptyDir(t, d, "u1").Die()
	must(t, d.unmountPod(t.Context(), "u1", true))
	if exists(t, d.pod("u1")) {
		t.Error("the pod's folder is still there")
	}
}

func TestUnmountPod_HungServerHoldsUpOnlyItsPod(t *testing.T) {
	d := newDisk(t)
	s := mountInEmptyDir(t, d, "hung")
	d.mountPod(t.Context(), "other", volumestest.PodWith("other", volumestest.EmptyDirVolume("data")))
	s.Hang()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := d.unmountPod(ctx, "hung", true); err == nil || !strings.Contains(err.Error(), "/data/remote (fuse)") {
		t.Errorf("got %v, want an error that names the mount", err)
	}
	if exists(t, d.pod("hung", subpath.Folder)) {
		t.Error("the bind of the hung file system is still there")
	}
	must(t, d.unmountPod(t.Context(), "other", true))
	s.Die()
	must(t, d.unmountPod(t.Context(), "hung", true))
}

func TestUnmountPod_LocalVolumeOfADeadServer(t *testing.T) {
	d := newDisk(t)
	pod := volumestest.PodWith("u1", volumestest.EmptyDirVolume("data"))
	d.mountPod(t.Context(), "u1", pod)
	at := d.pod("u1", kinds.VolumeFolder(localName, "pv"))
	must(t, os.MkdirAll(at, 0o750))
	s := fusetest.Mount(t, at)
	user, err := os.Open(at) // a process that still uses it
	must(t, err)
	defer func() { must(t, user.Close()) }()
	s.Die()
	must(t, d.unmountPod(t.Context(), "u1", true))
	if exists(t, d.pod("u1")) {
		t.Error("the pod's folder is still there")
	}
}

func TestStage_ReplacesADeadMount(t *testing.T) {
	n := storageNode(t, append(bound("c", csiSource("h")), attachRequired(false))...)
	startDriver(t, n, &csitest.Driver{Can: []api.NodeServiceCapability_RPC_Type{csi.Stages}})
	n.tell("a", messages.MountVolumes{UID: "a", Pod: apiPodWith("a", claimVolume("data", "c"))})
	staged := filepath.Join(n.storage.csiFolder(), stagedKey(csi.Record{Driver: testDriver, Handle: "h"}), csi.GlobalMount)
	must(t, unix.Unmount(staged, unix.MNT_DETACH))
	fusetest.Mount(t, staged).Die()
	got := n.tell("b", messages.MountVolumes{UID: "b", Pod: apiPodWith("b", claimVolume("data", "c"))})
	if _, mounted := got[0].(messages.VolumesMounted); len(got) != 1 || !mounted {
		t.Errorf("got %+v", got)
	}
}

func TestCheckUnmounted_DetachesWhatADriverLeftDead(t *testing.T) {
	volumestest.NeedMounts(t)
	dir := t.TempDir()
	root, err := safepath.OpenRoot(dir)
	must(t, err)
	defer func() { must(t, root.Close()) }()
	at := filepath.Join(dir, "mount")
	must(t, os.Mkdir(at, 0o755))
	s := fusetest.Mount(t, at)
	if err := checkUnmounted(t.Context(), root, "mount"); err == nil || !strings.Contains(err.Error(), "left") {
		t.Errorf("a live mount: got %v", err)
	}
	s.Die()
	must(t, checkUnmounted(t.Context(), root, "mount"))
	if is, err := root.IsMountPoint("mount"); err != nil || is {
		t.Errorf("the dead mount: still there %t, error %v", is, err)
	}
}

func TestHostPathOfAHungServer_HasALaneWithoutABound(t *testing.T) {
	d := driver{newDisk(t)}
	for kind, want := range map[v1.HostPathType]int{v1.HostPathUnset: onDisk, v1.HostPathDirectory: storing} {
		op := operation{Desired: volumestest.PodWith("u1", volumestest.HostPathVolume("v", "/remote", kind))}
		if got := d.lane(op); got != want {
			t.Errorf("type %q: lane %d, want %d", kind, got, want)
		}
	}
}
