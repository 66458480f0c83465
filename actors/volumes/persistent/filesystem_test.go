package persistent_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

// fileSystemNode returns a node with the claim "disk" of a volume on a block device, and the place of its file system.
func fileSystemNode(t *testing.T, device, kind string) (n *node, place string) {
	source := &v1.LocalVolumeSource{Path: device}
	if kind != "" {
		source.FSType = &kind
	}
	n = storageNode(t, bound("disk", v1.PersistentVolumeSource{Local: source})...)
	return n, filepath.Join(n.RootDir, "plugins/kubernetes.io/local-volume/mounts/pv-disk")
}

func diskPod(uid string) *v1.Pod { return volumestest.APIPodWith(uid, claimVolume("data", "disk")) }

// An empty device is formatted and mounted for all its pods, also by a new process. It is unmounted after its last pod. Later
// pods have its data.
func TestLocalDevice_FileSystem(t *testing.T) {
	device, _ := volumestest.LoopDevice(t)
	n, place := fileSystemNode(t, device, "")
	mount := func(uid string) string {
		t.Helper()
		got := n.Tell(uid, messages.MountVolumes{UID: uid, Pod: diskPod(uid)})
		m, is := got[len(got)-1].(messages.VolumesMounted)
		if !is || !m.Mounts["data"] {
			t.Fatalf("pod %s: got %+v", uid, got)
		}
		return filepath.Join(m.Paths["data"], "file")
	}
	end := func(uid string) {
		t.Helper()
		n.Tell(uid, messages.UnmountVolumes{UID: uid, Remove: true})
		if exists(t, n.Pod(uid)) {
			t.Fatalf("the folder of pod %s is left", uid)
		}
	}
	writeData(t, mount("a"))
	if got := read(t, mount("b")); got != "data" {
		t.Errorf("another pod reads %q", got)
	}
	end("a")
	n.restart(t)
	if got := read(t, mount("b")); got != "data" || !exists(t, filepath.Join(place, "file")) {
		t.Errorf("after a restart, a pod reads %q", got)
	}
	end("b")
	n.Send(messages.Pods, messages.PodFoldersWanted{UIDs: map[string]bool{}})
	n.Answers("")
	if exists(t, place) {
		t.Fatal("the file system is mounted without a pod")
	}
	if got := read(t, mount("c")); got != "data" {
		t.Errorf("a later pod reads %q", got)
	}
	end("c")
}

// A device with anything on it is not formatted, nor is one that is in use or read-only. Its bytes stay as they are.
func TestLocalDevice_IsNotFormatted(t *testing.T) {
	partitions := make([]byte, 512)
	copy(partitions[446:], []byte{0, 0, 2, 0, 0x83, 0, 0, 0, 1, 0, 0, 0, 0xff, 1, 0, 0})
	copy(partitions[510:], []byte{0x55, 0xaa})
	swap := make([]byte, 4096)
	copy(swap[1024:], []byte{1, 0, 0, 0, 100, 0, 0, 0})
	copy(swap[4086:], "SWAPSPACE2")
	for name, c := range map[string]struct {
		content    []byte
		kind, want string
		reads      bool
		use        func(t *testing.T, n *node, device, place string)
	}{
		"partitions":     {content: partitions, want: "probably partitions: it is not formatted"},
		"swap":           {content: swap, want: "has swap, not ext4: mount failed"},
		"read only":      {want: "not formatted for a pod that mounts it read-only", reads: true},
		"other kind":     {kind: "gfs2", want: "mkfs.gfs2 is not installed on this node"},
		"no disk's kind": {kind: "proc", want: `the fsType "proc" is not supported`},
		"a program":      {kind: "fuse.sh", want: "is not supported"},
		"under a map":    {want: "in use by loop device", use: overDevice},
		"data in the way": {want: "has data, and no device is mounted there", use: func(t *testing.T, _ *node, _, place string) {
			writeData(t, filepath.Join(place, "file"))
		}},
		"another mount": {want: "another file system than that of device", use: func(t *testing.T, _ *node, _, place string) {
			must(t, os.MkdirAll(place, 0o750))
			volumestest.MountTmpfs(t, place)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			device, file := volumestest.LoopDevice(t)
			must(t, os.WriteFile(device, append(c.content, make([]byte, 1<<20-len(c.content))...), 0o600))
			before, err := os.ReadFile(file)
			must(t, err)
			n, place := fileSystemNode(t, device, c.kind)
			if c.use != nil {
				c.use(t, n, device, place)
			}
			pod := diskPod("a")
			pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = c.reads
			got := fmt.Sprintf("%+v", n.Tell("a", messages.MountVolumes{UID: "a", Pod: pod}))
			if !strings.Contains(got, "VolumesFailed") && !strings.Contains(got, "FailedMount") || !strings.Contains(got, c.want) {
				t.Errorf("got %s, want %q", got, c.want)
			}
			n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
			if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the device was written: %v", err)
			}
		})
	}
}

// A device with a file system is not formatted when it cannot be read for a moment, between two questions of blkid(8). A later
// attempt mounts it with its data.
func TestLocalDevice_ReadErrorDoesNotFormat(t *testing.T) {
	device, _ := volumestest.LoopDevice(t)
	n, place := fileSystemNode(t, device, "")
	n.Tell("a", messages.MountVolumes{UID: "a", Pod: diskPod("a")})
	writeData(t, filepath.Join(place, "precious"))
	n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
	n.Send(messages.Pods, messages.PodFoldersWanted{UIDs: map[string]bool{}})
	n.Answers("")
	blkid, err := exec.LookPath("blkid")
	must(t, err)
	bin := t.TempDir()
	must(t, os.WriteFile(filepath.Join(bin, "blkid"), fmt.Appendf(nil, `#!/bin/sh
echo >>%[1]s/calls
[ $(wc -l <%[1]s/calls) != 2 ] || exit 2 # cannot be read
exec %[2]s "$@"
`, bin, blkid), 0o700))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	got := fmt.Sprintf("%+v", n.Tell("b", messages.MountVolumes{UID: "b", Pod: diskPod("b")}))
	if !strings.Contains(got, "cannot be read at the moment: it is not formatted") {
		t.Errorf("got %s, want that the device is not formatted", got)
	}
	n.Advance(kinds.Retry.Max)
	n.Answers("b")
	if got := read(t, filepath.Join(place, "precious")); got != "data" {
		t.Errorf("the file system has %q, want its data", got)
	}
}

// A file system is checked before its first mount, also for a read-only pod, because later pods may write to the same mount, and
// also one of ext2, which the kernel mounts as ext4.
func TestLocalDevice_IsChecked(t *testing.T) {
	for name, reads := range map[string]bool{"ext4": false, "ext2": true} {
		t.Run(name, func(t *testing.T) {
			device, _ := volumestest.LoopDevice(t)
			out, err := exec.Command("mkfs."+name, "-F", "-q", device).CombinedOutput()
			if err != nil {
				t.Fatalf("mkfs.%s: %v: %s", name, err, out)
			}
			bin := t.TempDir()
			must(t, os.WriteFile(filepath.Join(bin, "fsck"), []byte("#!/bin/sh\necho \"$*\" >"+bin+"/checked\n"), 0o700))
			t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			n, place := fileSystemNode(t, device, "")
			pod := diskPod("a")
			pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = reads
			got := n.Tell("a", messages.MountVolumes{UID: "a", Pod: pod})
			if !exists(t, filepath.Join(place, "lost+found")) {
				t.Fatalf("got %+v, want a mount", got)
			}
			if got := read(t, filepath.Join(bin, "checked")); got != "-a "+device+"\n" {
				t.Errorf("got a check of %q, want -a %s", got, device)
			}
			n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
			n.Send(messages.Pods, messages.PodFoldersWanted{UIDs: map[string]bool{}})
			n.Answers("")
		})
	}
}

// A device that a check of an earlier agent still writes is not mounted before its end.
func TestLocalDevice_AwaitsCheck(t *testing.T) {
	device, _ := volumestest.LoopDevice(t)
	out, err := exec.Command("mkfs.ext4", "-F", "-q", device).CombinedOutput()
	if err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	sleep, err := exec.LookPath("sleep")
	must(t, err)
	program, err := os.ReadFile(sleep)
	must(t, err)
	check := filepath.Join(t.TempDir(), "fsck.ext4")
	must(t, os.WriteFile(check, program, 0o700))
	run := exec.Command(check, "1000000")
	run.Stdin, err = os.OpenFile(device, os.O_RDWR, 0)
	must(t, err)
	must(t, run.Start())
	stop := func() { _ = run.Process.Kill(); _ = run.Wait(); _ = run.Stdin.(*os.File).Close() }
	t.Cleanup(stop)
	n, place := fileSystemNode(t, device, "")
	got := fmt.Sprintf("%+v", n.Tell("a", messages.MountVolumes{UID: "a", Pod: diskPod("a")}))
	if !strings.Contains(got, "fsck.ext4") || !strings.Contains(got, "which must end first") {
		t.Errorf("got %s, want the check that is in progress", got)
	}
	stop()
	n.Advance(kinds.Retry.Max)
	n.Answers("a")
	if !exists(t, filepath.Join(place, "lost+found")) {
		t.Error("the device is not mounted after the end of the check")
	}
}

func overDevice(t *testing.T, _ *node, device, _ string) {
	t.Helper()
	over, err := volumestest.Losetup("--find", "--show", device)
	must(t, err)
	t.Cleanup(func() {
		_, err := volumestest.Losetup("--detach", over)
		must(t, err)
	})
}

// The file system stays while it is mounted elsewhere, and while a pod is about to bind it.
func TestLocalDevice_StaysInUse(t *testing.T) {
	device, _ := volumestest.LoopDevice(t)
	n, place := fileSystemNode(t, device, "")
	n.Tell("a", messages.MountVolumes{UID: "a", Pod: diskPod("a")})
	elsewhere := t.TempDir()
	must(t, unix.Mount(place, elsewhere, "", unix.MS_BIND, ""))
	sweep := func() {
		n.Send(messages.Pods, messages.PodFoldersWanted{UIDs: map[string]bool{}})
		n.Answers("")
	}
	n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
	sweep()
	if !exists(t, filepath.Join(place, "lost+found")) {
		t.Error("it was unmounted, although it is bound elsewhere")
	}
	release := n.storage.Hold("pv-disk")
	must(t, volumestest.UnmountNow(elsewhere))
	sweep()
	if !exists(t, filepath.Join(place, "lost+found")) {
		t.Error("it was unmounted, although a pod is about to bind it")
	}
	release()
	sweep()
	if exists(t, place) {
		t.Error("it is mounted without a user")
	}
}

// A device that another process has open is mounted, as in the kubelet: the kernel refuses those that others claim. Two
// PersistentVolumes of one device do not keep each other mounted.
func TestLocalDevice_OpenAndShared(t *testing.T) {
	device, _ := volumestest.LoopDevice(t)
	out, err := exec.Command("mkfs.ext4", "-F", "-q", device).CombinedOutput()
	if err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	reader := exec.Command("sleep", "1000000")
	reader.Stdin, err = os.Open(device)
	must(t, err)
	must(t, reader.Start())
	defer func() { _ = reader.Process.Kill(); _ = reader.Wait(); _ = reader.Stdin.(*os.File).Close() }()
	source := v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: device, FSType: new("")}}
	n := storageNode(t, append(bound("disk", source), bound("other", source)...)...)
	for uid, claim := range map[string]string{"a": "disk", "b": "other"} {
		got := n.Tell(uid, messages.MountVolumes{UID: uid, Pod: volumestest.APIPodWith(uid, claimVolume("data", claim))})
		if _, is := got[len(got)-1].(messages.VolumesMounted); !is {
			t.Fatalf("claim %s: got %+v", claim, got)
		}
	}
	for _, uid := range []string{"a", "b"} {
		n.Tell(uid, messages.UnmountVolumes{UID: uid, Remove: true})
	}
	n.Send(messages.Pods, messages.PodFoldersWanted{UIDs: map[string]bool{}})
	n.Answers("")
	if left, err := filepath.Glob(filepath.Join(n.RootDir, "plugins/kubernetes.io/local-volume/mounts/*")); err != nil || len(left) > 0 {
		t.Errorf("still mounted: %v, %v", left, err)
	}
}
