package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// keptThings are things in a pod's folder that its removal keeps.
var keptThings = map[string]func(t *testing.T, d disk){
	"data beside a CSI mount":     func(t *testing.T, d disk) { writeData(t, d.pod("a/volumes/kubernetes.io~csi/v/precious")) },
	"an unknown folder":           func(t *testing.T, d disk) { writeData(t, d.pod("a/unknown/precious")) },
	"notes of an unknown plugin":  func(t *testing.T, d disk) { writeData(t, d.pod("a/plugins/kubernetes.io~rbd/v/precious")) },
	"data in place of a subPath":  func(t *testing.T, d disk) { writeData(t, d.pod("a/volume-subpaths/v/c/0/precious")) },
	"a file in place of a volume": func(t *testing.T, d disk) { writeData(t, d.pod("a/volumes/kubernetes.io~nfs/v")) },
	"a file in place of a plugin": func(t *testing.T, d disk) { writeData(t, d.pod("a/volumes/kubernetes.io~nfs")) },
	"a mount in an emptyDir":      func(t *testing.T, d disk) { mountAt(t, d.pod("a/volumes/kubernetes.io~empty-dir/e/x")) },
	"a mount in a local volume": func(t *testing.T, d disk) {
		mountAt(t, d.pod("a/volumes/kubernetes.io~local-volume/pv"))
		mountAt(t, d.pod("a/volumes/kubernetes.io~local-volume/pv/nested"))
	},
	"an immutable file in an emptyDir": func(t *testing.T, d disk) {
		write(t, d.pod(immutable))
		if err := setFlags(t, d.pod(immutable), 0x10); err != nil { // FS_IMMUTABLE_FL
			t.Skipf("the file system of the test has no immutable files: %v", err)
		}
		t.Cleanup(func() {
			if exists(t, d.pod(immutable)) {
				must(t, setFlags(t, d.pod(immutable), 0))
			}
		})
	},
	"a mount on the folder": func(t *testing.T, d disk) { mountAt(t, d.pod("a")) },
}

const immutable = "a/volumes/kubernetes.io~empty-dir/e/file"

// setFlags sets the attributes of a file, as chattr does.
func setFlags(t *testing.T, path string, flags int) error {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags)
}

func mountAt(t *testing.T, path string) {
	t.Helper()
	must(t, os.MkdirAll(path, 0o755))
	volumestest.MountFolder(t, path)
}

// A pod's folder that cannot be removed is reported with the error until it is removed: that of a pod that awaits its end, and
// of an orphan.
func TestRemains_AreReportedUntilTheRemovalSucceeds(t *testing.T) {
	for name, keep := range keptThings {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			keep(t, n.disk)
			isKept := func(f messages.HeldFolder) bool {
				return f.Code == messages.HeldRemains && f.UID == "a" && f.Path == n.pod("a") && strings.Contains(f.Error, f.Path)
			}
			check := func(when string, m *messages.FoldersHeld) {
				t.Helper()
				if m == nil || !slices.ContainsFunc(m.Folders, isKept) {
					t.Errorf("%s: reported %+v, want the folder and its error", when, m)
				}
			}
			n.Send(messages.PodAddress("a"), messages.UnmountVolumes{UID: "a", Remove: true})
			check("a pod's end", n.reported())
			n.restart(t)
			n.Send(messages.Pods, messages.PodFoldersWanted{})
			check("an orphan", n.reported())
			n.Advance(kinds.Retry.First)
			n.Settle(false)
			n.Send(messages.Pods, messages.PodFoldersWanted{})
			check("after a retry", n.reported())
			volumestest.UnmountBelow(t, n.rootDir)
			if exists(t, n.pod(immutable)) {
				must(t, setFlags(t, n.pod(immutable), 0))
			}
			must(t, os.RemoveAll(n.pod("a")))
			n.Advance(4 * kinds.Retry.First)
			if m := n.reported(); m == nil || len(m.Folders) > 0 {
				t.Errorf("after the removal: reported %+v, want no folder", m)
			}
			if kept := len(n.actor.(*actor).held.remains); kept > 0 {
				t.Errorf("after the removal: %d removals are remembered", kept)
			}
		})
	}
}

// The folder of a finished pod that stays, because its object exists, is reported as well.
func TestRemains_OfAPodThatStays(t *testing.T) {
	n := newNode(t)
	at := n.pod("a/volumes/kubernetes.io~empty-dir/e/x")
	mountAt(t, at)
	n.Send(messages.PodAddress("a"), messages.UnmountVolumes{UID: "a"})
	if m := n.reported(); m == nil || len(m.Folders) != 1 || m.Folders[0].Code != messages.HeldRemains {
		t.Errorf("reported %+v, want the pod's folder", m)
	}
}

// An actor without kept folders reports that, too: an earlier life of the actor may have reported folders.
func TestRemains_NoneIsReported(t *testing.T) {
	n := newNode(t)
	n.Send(messages.Pods, messages.PodFoldersWanted{})
	if m := n.reported(); m == nil || len(m.Folders) > 0 {
		t.Errorf("reported %+v, want no folder", m)
	}
}

// The disk is read again after the result of an earlier look was lost.
func TestHeldFolders_LostLook(t *testing.T) {
	n := newNode(t)
	n.Send(messages.Pods, messages.PodFoldersWanted{})
	n.Work = slices.DeleteFunc(n.Work, func(w supervisors.Work) bool { return w.Name == "FindHeldFolders" })
	n.Advance(heldEvery)
	n.Send(messages.Pods, messages.PodFoldersWanted{})
	if n.reported() == nil {
		t.Error("nothing is reported")
	}
}

func TestRemoval_SlowOnesAreReportedLate(t *testing.T) {
	h := heldFolders{remains: map[string]remains{}}
	goesOn := fmt.Errorf("the operation goes on: %w", context.DeadlineExceeded)
	var at time.Time
	for _, c := range []struct {
		after time.Duration
		err   error
		want  bool // the removal is news
	}{
		{time.Second, goesOn, false},
		{time.Second, ended(goesOn), true}, // of a server that hangs
		{time.Second, ended(goesOn), false},
		{time.Second, ended(errUnmount), true},
		{time.Second, nil, true},
		{time.Second, nil, false},
		{time.Second, goesOn, false},
		{kinds.OperationTimeout, goesOn, true},
		{kinds.OperationTimeout, errors.New("a bug in the agent"), false}, // the first error stays
		{time.Second, ended(errors.New(strings.Repeat("é", 1<<20))), true},
	} {
		at = at.Add(c.after)
		if got := h.removal(at.Add(time.Hour), report{Key: "a", Remove: true, Err: c.err}); got != c.want {
			t.Errorf("after %.50v: news is %t, want %t", c.err, got, c.want)
		}
	}
	if text := h.remains["a"].text; len(text) > maxHeldError || !strings.HasSuffix(text, "é …") {
		t.Errorf("got an error of %d bytes", len(text))
	}
	h.removal(at, report{Key: "a", Desired: volumestest.PodWith("a")})
	if len(h.remains) > 0 {
		t.Error("the removal of a pod that is desired again is remembered")
	}
}

// The retry of a failed removal runs in the lane without a limit: a hung server does not delay other pods.
func TestRemovals_RetriesTakeNoPlaceOfOthers(t *testing.T) {
	n := newNode(t)
	n.Kit = newKit(t, New(Options{RootDir: n.rootDir, Operations: n.ops, Node: n.disk.node, Parallel: 1})("volumes"))
	writeData(t, n.pod("a/volumes/kubernetes.io~nfs/pv/precious"))
	n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
	n.Advance(kinds.Retry.First)
	n.Send(messages.PodAddress("b"), messages.UnmountVolumes{UID: "b", Remove: true})
	for _, name := range []string{"remove volumes a", "remove volumes b"} {
		if !slices.ContainsFunc(n.Work, func(w supervisors.Work) bool { return w.Name == name }) {
			t.Errorf("%q has not begun", name)
		}
	}
	n.Settle(false)
	if !exists(t, filepath.Join(n.pod("a"), "volumes/kubernetes.io~nfs/pv/precious")) {
		t.Error("the data is gone")
	}
}
