package persistent_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/volumes/persistent"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

// A claim of an nfs volume is mounted with the options of its PersistentVolume, measured by the kernel, found by the next agent
// and mounted again if it was unmounted by hand.
func TestNFSClaim(t *testing.T) {
	objects := bound("c", v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "fd00::1", Path: "/data"}})
	objects[1].(*v1.PersistentVolume).Spec.MountOptions = []string{"size=1m", "nr_inodes=100"} // of the fake's file system
	n := storageNode(t, objects...)
	calls := volumestest.FakeMountNFS(t, n.facts.NFS, `mounts "$@"`)
	volume := claimVolume("v", "c")
	volume.PersistentVolumeClaim.ReadOnly = true
	pod := volumestest.APIPodWith("a", volume)
	at := n.Pod("a/volumes/kubernetes.io~nfs/pv-c")
	want := []any{messages.VolumesMounted{UID: "a", Paths: map[string]string{"v": at}, Mounts: map[string]bool{"v": true}}}
	ask := func(step string, runs int) {
		t.Helper()
		if got := n.Tell("a", messages.MountVolumes{UID: "a", Pod: pod}); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: got %+v, want %+v", step, got, want)
		}
		call := "[fd00::1]:/data " + at + " -o nr_inodes=100,size=1m,ro"
		if got := volumestest.CallsOf(t, calls); len(got) != runs || got[0] != call {
			t.Fatalf("%s: the program ran %q, want %d times %q", step, got, runs, call)
		}
	}
	ask("first", 1)
	use, err := n.storage.Usage(t.Context(), n.RootDir, pod)
	if err != nil || use["v"].Bytes.Total != 1<<20 || use["v"].Inodes.Total != 100 {
		t.Errorf("it uses %+v, %v", use, err)
	}
	n.restart(t)
	ask("the next agent", 1)
	must(t, unix.Unmount(at, 0))
	if use, err := n.storage.Usage(t.Context(), n.RootDir, pod); err != nil || len(use) > 0 {
		t.Errorf("not mounted, it uses %+v, %v", use, err)
	}
	ask("unmounted by hand", 2)
	if got := n.Unmounted("a"); got.Left != "" || exists(t, n.Pod("a")) {
		t.Errorf("the end: %+v", got)
	}
}

// A pod's own volumes are measured without an API server.
func TestNFSUsage_Standalone(t *testing.T) {
	n := storageNode(t)
	volumestest.FakeMountNFS(t, n.facts.NFS, `mount -n -t tmpfs -o size=1m "$1" "$2"`)
	pod := volumestest.APIPodWith("a", volumestest.NFSVolume("v"))
	n.Tell("a", messages.MountVolumes{UID: "a", Pod: pod})
	use, err := (*persistent.Storage)(nil).Usage(t.Context(), n.RootDir, pod)
	if err != nil || use["v"].Bytes.Total != 1<<20 {
		t.Errorf("it uses %+v, %v", use, err)
	}
}

// The place of a claim's volume has the name of the PersistentVolume, which another volume of the pod may have.
func TestNFSClaim_PlaceOfAnother(t *testing.T) {
	n := storageNode(t, bound("c", v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "s", Path: "/"}})...)
	calls := volumestest.FakeMountNFS(t, n.facts.NFS, `mounts "$@"`)
	pod := volumestest.APIPodWith("a", claimVolume("v", "c"), volumestest.NFSVolume("pv-c"))
	got := fmt.Sprintf("%+v", n.Tell("a", messages.MountVolumes{UID: "a", Pod: pod}))
	if !strings.Contains(got, "another nfs volume with the name of PersistentVolume pv-c") {
		t.Errorf("got %s", got)
	}
	if runs := volumestest.CallsOf(t, calls); slices.ContainsFunc(runs, func(c string) bool { return strings.HasPrefix(c, "s:") }) {
		t.Errorf("the program ran %q", runs)
	}
}
