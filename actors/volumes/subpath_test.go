package volumes

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/playlet-dev/playlet/actors/internal/linux/subpath"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

// Binds of parts of volumes are undone with the volumes of every kind, even after a restart, and for a pod that is not desired.
func TestPartsOfVolumesGoWithThem(t *testing.T) {
	volumestest.NeedMounts(t)
	n := newNode(t)
	for _, uid := range []string{"u", "orphan"} {
		host := t.TempDir()
		write(t, filepath.Join(host, "file"))
		pod := volumestest.PodWith(uid, volumestest.EmptyDirVolume("data"), volumestest.MemoryVolume("memory"), volumestest.HostPathVolume("host", host, ""))
		paths := n.ask(uid, messages.MountVolumes{UID: uid, Pod: pod})[0].(messages.VolumesMounted).Paths
		for volume, path := range map[string]string{"data": "a/b", "memory": "c", "host": "file"} {
			for i := range 2 {
				place, err := subpath.Bind(t.Context(), subpath.Part{
					Pod: n.pod(uid), From: paths[volume], Volume: volume, Container: "c", Index: i, Path: path,
				})
				must(t, err)
				if !exists(t, place) {
					t.Errorf("%s is not there", place)
				}
			}
		}
		n.restart(t)
		if uid == "u" {
			want := []any{messages.VolumesUnmounted{UID: "u"}}
			if got := n.ask("u", messages.UnmountVolumes{UID: "u"}); !reflect.DeepEqual(got, want) ||
				exists(t, n.pod("u", subpath.Folder)) {
				t.Errorf("got %+v", got)
			}
		}
		sweep(n)
		if exists(t, n.pod(uid)) {
			t.Errorf("the folder of %s is still there", uid)
		}
		if _, err := os.Stat(filepath.Join(host, "file")); err != nil {
			t.Errorf("what is the host's went, too: %v", err)
		}
	}
}
