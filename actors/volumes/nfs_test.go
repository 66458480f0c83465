package volumes

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/fusetest"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

const mountsNFS = `mounts "$@"`

func TestNFS_FromStartToFinish(t *testing.T) {
	volumestest.NeedMounts(t)
	n := newNode(t)
	calls := volumestest.FakeMountNFS(t, n.disk.node.NFS, mountsNFS)
	pod := volumestest.PodWith("u", volumestest.NFSVolume("v"))
	group := int64(4711)
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	at := n.pod("u/volumes/kubernetes.io~nfs/v")
	want := []any{messages.VolumesMounted{UID: "u", Paths: map[string]string{"v": at}, Mounts: map[string]bool{"v": true}}}
	ask := func(step string, runs int) {
		t.Helper()
		if got := n.ask("u", messages.MountVolumes{UID: "u", Pod: pod}); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: got %+v, want %+v", step, got, want)
		}
		if got := volumestest.CallsOf(t, calls); len(got) != runs || got[0] != "nas.test:/data "+at {
			t.Fatalf("%s: the program ran %q, want %d times", step, got, runs)
		}
	}
	ask("first", 1)
	var st unix.Stat_t
	must(t, unix.Stat(at, &st))
	if st.Gid == uint32(group) {
		t.Error("the server's folder was given to the fsGroup")
	}
	ask("again", 1)
	n.restart(t)
	ask("after a restart", 1)
	must(t, volumestest.UnmountNow(at))
	ask("unmounted by hand", 2)
	must(t, os.WriteFile(filepath.Join(at, "precious"), nil, 0o600))
	if got := n.Unmounted("u"); got.Left != "" || exists(t, n.pod("u")) {
		t.Errorf("the end: %+v", got)
	}
}

// A failure is reported with its cause, and retried.
func TestNFS_FailureIsRetried(t *testing.T) {
	volumestest.NeedMounts(t)
	n := newNode(t)
	volumestest.FakeMountNFS(t, n.disk.node.NFS, "echo 'mount.nfs: Connection refused' >&2; exit 32")
	pod := volumestest.PodWith("u", volumestest.NFSVolume("v"))
	got := n.ask("u", messages.MountVolumes{UID: "u", Pod: pod})
	if m, is := got[0].(messages.VolumesFailed); !is || m.Reason.Permanent || m.Reason.Cause.Code != messages.CauseServerUnreachable ||
		!strings.Contains(m.Reason.Message, "nas.test:/data: the server refuses connections") {
		t.Fatalf("got %+v", got)
	}
	volumestest.FakeMountNFS(t, n.disk.node.NFS, mountsNFS+"; exit 16") // it could not write its record for umount(8)
	n.Advance(kinds.Retry.First)
	n.RunWork()
	if got := n.sent("u"); len(got) != 1 || reflect.TypeOf(got[0]) != reflect.TypeFor[messages.VolumesMounted]() {
		t.Errorf("got %+v", got)
	}
	if got := n.Unmounted("u"); got.Left != "" || exists(t, n.pod("u")) {
		t.Errorf("the end: %+v", got)
	}
}

// While a program hangs, no other one starts for the volume. The end of the pod kills it, and does not wait for the server.
func TestNFS_EndOfThePodKillsTheProgram(t *testing.T) {
	volumestest.NeedMounts(t)
	n := newNode(t)
	calls := volumestest.FakeMountNFS(t, n.disk.node.NFS, "exec sleep 100000")
	pod := volumestest.PodWith("u", volumestest.NFSVolume("v"))
	short := n.disk
	short.timeouts = timeouts{10 * time.Millisecond, time.Minute}
	for end := time.Now().Add(time.Minute); len(volumestest.CallsOf(t, calls)) == 0; { // only a failure takes so long
		if short.mountPod(t.Context(), "u", pod); time.Now().After(end) {
			t.Fatal("the program does not start")
		}
	}
	for range 3 {
		if out := short.mountPod(t.Context(), "u", pod); !strings.Contains(out.failures()[0].message,
			"nas.test:/data: the server does not answer (it is still being mounted after 10ms") {
			t.Errorf("got %+v", out)
		}
	}
	if got := volumestest.CallsOf(t, calls); len(got) != 1 {
		t.Errorf("the program ran %q", got)
	}
	n.Send(messages.PodAddress("u"), messages.UnmountVolumes{UID: "u", Remove: true})
	must(t, short.settle(t.Context(), "u"))
	n.RunWork()
	if got := n.sent("u"); !reflect.DeepEqual(got, []any{messages.VolumesUnmounted{UID: "u", Removed: true}}) || exists(t, n.pod("u")) {
		t.Errorf("got %+v", got)
	}
}

// A volume in use, whose server hangs, is detached. One whose server answers stays until it is free.
func TestNFS_BusyVolume(t *testing.T) {
	d := newDisk(t)
	at := d.pod("u", kinds.NFSFolder("v"))
	must(t, os.MkdirAll(at, 0o750))
	s := fusetest.Mount(t, at)
	user, err := os.OpenFile(at, unix.O_PATH, 0)
	must(t, err)
	defer func() { must(t, user.Close()) }()
	if err := d.unmountPod(t.Context(), "u", true); err == nil || !strings.Contains(err.Error(), "busy") || !exists(t, at) {
		t.Errorf("the server answers: got %v", err)
	}
	s.Hang()
	defer s.Die()
	unmount := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // for the server
		defer cancel()
		return d.inFolder(kinds.OpenPod, "u", nil, func(folder kinds.Folder) error {
			return d.pluginOf(kinds.FoundVolume{Plugin: "kubernetes.io~nfs", Volume: "v"}).Unmount(ctx, folder, "v")
		})
	}
	for end := time.Now().Add(time.Minute); unmount() != nil; { // only a failure takes so long
		if time.Now().After(end) {
			t.Fatal("the volume is not detached")
		}
	}
	if exists(t, at) {
		t.Error("the folder is left")
	}
}

// After a restart, the first unmount of a pod with mounts that may be a server's has the lane without a limit. So has that of
// any pod until the mounts have been read.
func TestNFS_LaneAfterARestart(t *testing.T) {
	volumestest.NeedMounts(t)
	n := newNode(t)
	must(t, os.MkdirAll(n.pod("plain"), 0o750))
	fuse := n.pod("fuse/volumes/kubernetes.io~local-volume/v")
	must(t, os.MkdirAll(fuse, 0o750))
	fusetest.Mount(t, fuse)
	link := filepath.Join(t.TempDir(), "root") // as a root folder on another disk often is
	must(t, os.Symlink(n.rootDir, link))
	a, is := New(Options{RootDir: link, Operations: n.ops, Node: n.disk.node})("volumes").(*actor)
	if !is {
		t.Fatal("it is another type")
	}
	lane := func(uid string, actual state) int { return a.lane(driver{n.disk})(operation{Key: uid, Actual: actual}) }
	for _, uid := range []string{"plain", "fuse"} {
		if got := lane(uid, state{}); got != storing {
			t.Errorf("before the mounts have been read, pod %s has lane %d, want %d", uid, got, storing)
		}
	}
	newKit(t, a)
	for uid, want := range map[string]int{"fuse": storing, "plain": onDisk, "unknown": onDisk} {
		if got := lane(uid, state{}); got != want {
			t.Errorf("pod %s has lane %d, want %d", uid, got, want)
		}
	}
	if got := lane("fuse", state{volumes: map[string]volumeState{"v": {}}}); got != onDisk {
		t.Errorf("a pod with known volumes has lane %d, want %d", got, onDisk)
	}
}

// Pods with such volumes have the lane without a limit, also at their end.
func TestNFS_Lane(t *testing.T) {
	d := driver{newDisk(t)}
	pod := volumestest.PodWith("u", volumestest.NFSVolume("v"))
	mounted := state{volumes: map[string]volumeState{"v": {path: d.pod("u", kinds.NFSFolder("v")), mounts: true}}}
	for name, op := range map[string]operation{"mount": {Key: "u", Desired: pod}, "unmount": {Key: "u", Actual: mounted}} {
		if got := d.lane(op); got != storing {
			t.Errorf("%s: lane %d, want %d", name, got, storing)
		}
	}
}
