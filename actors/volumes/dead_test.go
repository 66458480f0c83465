package volumes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/fusetest"
	"github.com/playlet-dev/playlet/actors/internal/linux/subpath"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
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

func TestUnmountPod_HungServerDelaysOnlyItsPod(t *testing.T) {
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

// The servers of a pod's mounts are asked concurrently: a hung server does not delay the others.
func TestUnmountPod_HungServersShareADeadline(t *testing.T) {
	d := newDisk(t)
	data := d.mountPod(t.Context(), "u1", volumestest.PodWith("u1", volumestest.EmptyDirVolume("data"))).paths()["data"]
	var servers []*fusetest.Server
	for i := range 20 {
		at := filepath.Join(data, fmt.Sprint("remote", i))
		must(t, os.Mkdir(at, 0o755))
		s := fusetest.Mount(t, at)
		s.Hang()
		servers = append(servers, s)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.unmountPod(t.Context(), "u1", true) }()
	asked := func() bool {
		return !slices.ContainsFunc(servers, func(s *fusetest.Server) bool { return s.Requests() == 0 })
	}
	for !asked() {
		select {
		case err := <-ended:
			t.Fatalf("not all servers were asked before the first was given up: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	for _, s := range servers {
		s.Die() // this ends the pending calls
	}
	must(t, <-ended)
	if exists(t, d.pod("u1")) {
		t.Error("the pod's folder is still there")
	}
}

// Dead mounts below each other, and on top of each other, are all detached.
func TestUnmountPod_DeadMountsInLayers(t *testing.T) {
	d := newDisk(t)
	data := d.mountPod(t.Context(), "u1", volumestest.PodWith("u1", volumestest.EmptyDirVolume("data"))).paths()["data"]
	must(t, os.Mkdir(filepath.Join(data, "a"), 0o755))
	var servers []*fusetest.Server
	for _, at := range []string{"a", "a", "a/" + fusetest.Folder} {
		servers = append(servers, fusetest.Mount(t, filepath.Join(data, at)))
	}
	for _, s := range servers {
		s.Die()
	}
	must(t, d.unmountPod(t.Context(), "u1", true))
	if exists(t, d.pod("u1")) {
		t.Error("the pod's folder is still there")
	}
}

// A mount that only another user may access is detached at the pod's end, because its server cannot be checked.
func TestUnmountPod_DetachesAMountOfAnotherUser(t *testing.T) {
	for name, end := range map[string]func(*fusetest.Server){"alive": func(*fusetest.Server) {}, "dead": (*fusetest.Server).Die} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t)
			data := d.mountPod(t.Context(), "u1", volumestest.PodWith("u1", volumestest.EmptyDirVolume("data"))).paths()["data"]
			must(t, os.Mkdir(filepath.Join(data, "remote"), 0o755))
			end(fusetest.MountFor(t, filepath.Join(data, "remote"), 1000))
			must(t, d.unmountPod(t.Context(), "u1", true))
			if exists(t, d.pod("u1")) {
				t.Error("the pod's folder is still there")
			}
		})
	}
}

func TestUnmountPod_LocalVolumeOfADeadServer(t *testing.T) {
	d := newDisk(t)
	pod := volumestest.PodWith("u1", volumestest.EmptyDirVolume("data"))
	d.mountPod(t.Context(), "u1", pod)
	at := d.pod("u1", kinds.VolumeFolder("kubernetes.io/local-volume", "pv"))
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

func TestHungHostPath_HasAnUnboundedLane(t *testing.T) {
	d := driver{newDisk(t)}
	for kind, want := range map[v1.HostPathType]int{v1.HostPathUnset: onDisk, v1.HostPathDirectory: storing} {
		op := operation{Desired: volumestest.PodWith("u1", volumestest.HostPathVolume("v", "/remote", kind))}
		if got := d.lane(op); got != want {
			t.Errorf("type %q: lane %d, want %d", kind, got, want)
		}
	}
}
