package volumes

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/playlet-dev/playlet/actors/internal/reconcile"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/persistent"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// node is an actor with its own disk.
type node struct {
	volumestest.Pods
	disk
	actor supervisors.Actor
}

func newNode(t testing.TB) *node {
	n := &node{disk: newDisk(t)}
	n.RootDir = n.rootDir
	n.restart(t)
	return n
}

// restart replaces the actor. The disk and the operations stay.
func (n *node) restart(t testing.TB) {
	n.actor = New(Options{RootDir: n.rootDir, Operations: n.ops, Node: n.disk.node, Storage: n.storage})("volumes")
	n.Kit = newKit(t, n.actor)
}

func newKit(t testing.TB, a supervisors.Actor) *supervisortest.Kit {
	k := supervisortest.New(t, messages.Volumes, a)
	i := slices.IndexFunc(k.Work, func(w supervisors.Work) bool { return w.Name == "FindServedPods" })
	w := k.Work[i]
	k.Work = slices.Delete(k.Work, i, i+1)
	k.RunOne(w)
	return k
}

// ask sends a message as the pod would, does all work, and returns the messages to the pod.
func (n *node) ask(uid string, msg any) []any {
	n.Send(messages.PodAddress(uid), msg)
	n.RunWork()
	return n.sent(uid)
}

func (n *node) sent(uid string) (out []any) {
	n.TB.Helper()
	for _, sent := range n.Take() {
		if _, held := sent.Msg.(messages.FoldersHeld); held {
			continue // sent to pods with each sweep
		}
		if sent.To != messages.PodAddress(uid) {
			n.TB.Errorf("%s was told %+v", sent.To, sent.Msg)
		}
		out = append(out, sent.Msg)
	}
	return out
}

func sweep(n *node, uids ...string) {
	desired := map[string]bool{}
	for _, uid := range uids {
		desired[uid] = true
	}
	n.Send(messages.Pods, messages.PodFoldersWanted{UIDs: desired})
	n.RunWork()
}

func TestAPodsVolumesFromStartToFinish(t *testing.T) {
	n := newNode(t)
	pod := volumestest.PodWith("u", volumestest.EmptyDirVolume("data"))
	mounted := []any{messages.VolumesMounted{UID: "u", Paths: map[string]string{
		"data": n.pod("u/volumes/kubernetes.io~empty-dir/data"),
	}}}
	if got := n.ask("u", messages.MountVolumes{UID: "u", Pod: pod}); !reflect.DeepEqual(got, mounted) {
		t.Fatalf("got %+v, want %+v", got, mounted)
	}
	if got := n.ask("u", messages.MountVolumes{UID: "u", Pod: pod}); !reflect.DeepEqual(got, mounted) {
		t.Errorf("asked again: %+v", got)
	}
	n.restart(t)
	if got := n.ask("u", messages.MountVolumes{UID: "u", Pod: pod}); !reflect.DeepEqual(got, mounted) {
		t.Errorf("after a restart: %+v", got)
	}
	unmounted, removed := []any{messages.VolumesUnmounted{UID: "u"}}, []any{messages.VolumesUnmounted{UID: "u", Removed: true}}
	if got := n.ask("u", messages.UnmountVolumes{UID: "u"}); !reflect.DeepEqual(got, unmounted) || !exists(t, n.pod("u")) {
		t.Errorf("unmount: %+v", got)
	}
	for range 2 {
		if got := n.ask("u", messages.UnmountVolumes{UID: "u", Remove: true}); !reflect.DeepEqual(got, removed) ||
			exists(t, n.pod("u")) {
			t.Errorf("remove: %+v", got)
		}
	}
}

func TestAVolumeThatVanishedIsMadeAgain(t *testing.T) {
	n := newNode(t)
	pod := volumestest.PodWith("u", volumestest.EmptyDirVolume("data"))
	path := n.ask("u", messages.MountVolumes{UID: "u", Pod: pod})[0].(messages.VolumesMounted).Paths["data"]
	must(t, os.RemoveAll(path))
	got := n.ask("u", messages.MountVolumes{UID: "u", Pod: pod})
	if len(got) != 1 || !exists(t, path) {
		t.Errorf("got %+v", got)
	}
}

// The pod receives which volumes have a mount of their own. A mount that others undid is made again when the pod asks.
func TestActor_ReportsMounts(t *testing.T) {
	n := newNode(t)
	pod := volumestest.PodWith("u", volumestest.EmptyDirVolume("data"), volumestest.MemoryVolume("memory"))
	want := map[string]bool{"memory": true}
	ask := func() messages.VolumesMounted {
		t.Helper()
		got := n.ask("u", messages.MountVolumes{UID: "u", Pod: pod})
		m, ok := got[0].(messages.VolumesMounted)
		if !ok || !reflect.DeepEqual(m.Mounts, want) {
			t.Errorf("got %+v, want mounts %v", got, want)
		}
		return m
	}
	at := ask().Paths["memory"]
	must(t, unix.Unmount(at, 0))
	ask()
	must(t, unix.Unmount(at, 0)) // fails if nothing is mounted
	n.restart(t)
	ask()
}

func TestAFailedMountIsTriedAgain(t *testing.T) {
	n := newNode(t)
	path := filepath.Join(t.TempDir(), "late")
	pod := volumestest.PodWith("u", volumestest.HostPathVolume("h", path, v1.HostPathDirectory))
	got := n.ask("u", messages.MountVolumes{UID: "u", Pod: pod})
	first := got[0].(messages.VolumesFailed)
	if len(got) != 1 || first.Volume != "h" || first.Reason.Code != messages.ReasonFailedMount ||
		!first.Reason.RetryAt.Equal(n.Now().Add(kinds.Retry.First)) {
		t.Fatalf("got %+v", got)
	}
	if got := n.ask("u", messages.MountVolumes{UID: "u", Pod: pod}); !reflect.DeepEqual(got, []any{first}) {
		t.Errorf("asked again: %+v", got)
	}
	n.Advance(kinds.Retry.First - time.Nanosecond)
	if len(n.Work) > 0 {
		t.Error("it did not wait")
	}
	n.Advance(time.Nanosecond)
	n.RunWork()
	second := n.sent("u")[0].(messages.VolumesFailed)
	if !second.Reason.RetryAt.Equal(n.Now().Add(2 * kinds.Retry.First)) {
		t.Errorf("the second time: %+v at %s", second, n.Now())
	}
	must(t, os.Mkdir(path, 0o755))
	n.Advance(2 * kinds.Retry.First)
	n.RunWork()
	if got := n.sent("u"); !reflect.DeepEqual(got, []any{messages.VolumesMounted{UID: "u",
		Paths: map[string]string{"h": path}}}) {
		t.Errorf("got %+v", got)
	}
}

func TestWhatIsRefusedIsNotTriedAgain(t *testing.T) {
	n := newNode(t)
	bad := volumestest.PodWith("u", volumestest.HostPathVolume("h", "relative", ""))
	got := n.ask("u", messages.MountVolumes{UID: "u", Pod: bad})
	if reason := got[0].(messages.VolumesFailed).Reason; !reason.Permanent || !reason.RetryAt.IsZero() || len(n.Pending()) > 0 {
		t.Errorf("got %+v, timers %v", reason, n.Pending())
	}
	if got := n.ask("u", messages.MountVolumes{UID: "u", Pod: volumestest.PodWith("u", volumestest.EmptyDirVolume("h"))}); len(got) != 1 {
		t.Errorf("after a change: %+v", got)
	} else if _, ok := got[0].(messages.VolumesMounted); !ok {
		t.Errorf("after a change: %+v", got)
	}
}

func TestAPodThatEndsWhileItsVolumesFail(t *testing.T) {
	n := newNode(t)
	n.ask("u", messages.MountVolumes{UID: "u", Pod: volumestest.PodWith("u", volumestest.HostPathVolume("h", "/nowhere/x", v1.HostPathFile))})
	if got := n.ask("u", messages.UnmountVolumes{UID: "u", Remove: true}); !reflect.DeepEqual(got,
		[]any{messages.VolumesUnmounted{UID: "u", Removed: true}}) {
		t.Errorf("got %+v", got)
	}
	n.Advance(time.Hour)
	if len(n.Work) > 0 || exists(t, n.pod("u")) {
		t.Error("its timer still does something")
	}
}

func TestTheSweepRemovesWhatNobodyWants(t *testing.T) {
	n := newNode(t)
	for _, uid := range []string{"wanted", "orphan"} {
		write(t, n.pod(uid, "volumes/kubernetes.io~empty-dir/d/file"))
	}
	n.Send(messages.PodAddress("new"), messages.MountVolumes{UID: "new", Pod: volumestest.PodWith("new", volumestest.EmptyDirVolume("d"))})
	n.RunWork()
	n.Take()
	sweep(n, "wanted")
	if exists(t, n.pod("orphan")) || !exists(t, n.pod("wanted")) || !exists(t, n.pod("new")) {
		t.Error("not the right folders are left")
	}
	if sent := n.sent("orphan"); len(sent) > 0 {
		t.Errorf("the orphan was sent %+v", sent)
	}
}

// A message that arrives while the disk is being read is not lost, and the newest message wins.
func TestTheNewestPodCounts(t *testing.T) {
	n := newNode(t)
	write(t, n.pod("a/file"))
	write(t, n.pod("b/file"))
	n.Send(messages.Pods, messages.PodFoldersWanted{UIDs: map[string]bool{"b": true}})
	n.Send(messages.Pods, messages.PodFoldersWanted{UIDs: map[string]bool{"a": true}})
	if len(n.Work) != 2 { // the other piece looks for held folders
		t.Errorf("got %d pieces of work, want one listing", len(n.Work))
	}
	n.RunWork()
	if !exists(t, n.pod("a")) || exists(t, n.pod("b")) {
		t.Error("an older message was followed")
	}
}

func TestWhatCannotBeRemovedIsNamed(t *testing.T) {
	n := newNode(t)
	n.ask("u", messages.MountVolumes{UID: "u", Pod: volumestest.PodWith("u", volumestest.EmptyDirVolume("data"))})
	mount := n.pod("u/volumes/kubernetes.io~empty-dir/data/theirs") // a mount that a container propagated to the host
	must(t, os.Mkdir(mount, 0o755))
	volumestest.MountTmpfs(t, mount)
	got := n.ask("u", messages.UnmountVolumes{UID: "u", Remove: true})
	if left := got[0].(messages.VolumesUnmounted).Left; len(got) != 1 || !strings.Contains(left, mount) {
		t.Errorf("got %+v", got)
	}
	sweep(n)
	detail := n.actor.(supervisors.Inspector).Inspect().(reconcile.Inspection)
	if !strings.Contains(detail.Objects["u"].Error, mount) {
		t.Errorf("inspection: %+v", detail)
	}
	must(t, volumestest.UnmountNow(mount))
	n.Advance(kinds.Retry.First)
	n.RunWork()
	if detail := n.actor.(supervisors.Inspector).Inspect().(reconcile.Inspection); len(detail.Objects) > 0 ||
		exists(t, n.pod("u")) {
		t.Errorf("after unmounting: %+v", detail)
	}
}

func TestInspection(t *testing.T) {
	n := newNode(t)
	n.ask("ok", messages.MountVolumes{UID: "ok", Pod: volumestest.PodWith("ok", volumestest.EmptyDirVolume("d"))})
	n.ask("bad", messages.MountVolumes{UID: "bad", Pod: volumestest.PodWith("bad", volumestest.HostPathVolume("h", "/nowhere/x", v1.HostPathFile))})
	text, err := json.Marshal(n.actor.(supervisors.Inspector).Inspect())
	must(t, err)
	for _, want := range []string{`"ok":{"phase":"Ready"`, `"bad":{"phase":"BackingOff"`, "/nowhere/x", `"retryAt":"2026-01-02T03:04:05.5Z"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
}

func TestUnknownMessages(t *testing.T) {
	n := newNode(t)
	n.Send(messages.Pods, messages.ResendDesired{})
	if len(n.Ignored) != 1 {
		t.Errorf("ignored %v", n.Ignored)
	}
}

// The actor runs in the tree, with real mailboxes and the agent's table of operations.
func TestInTheTree(t *testing.T) {
	ops := cri.NewOperations()
	root := t.TempDir()
	answers := make(chan any, 10)
	tree := &supervisors.Row{Kind: "node", Children: []supervisors.Row{{Kind: "volumes"},
		{Kind: "pods", Children: []supervisors.Row{{Kind: "u"}}}}}
	sys, err := supervisors.Start(supervisors.Options{Tree: tree, Constructors: map[supervisors.Kind]supervisors.Constructor{
		"node":    func(string) supervisors.Actor { return ignore{} },
		"pods":    func(string) supervisors.Actor { return ignore{} },
		"u":       func(string) supervisors.Actor { return forward{answers} },
		"volumes": New(Options{RootDir: root, Operations: ops, Node: kinds.Facts{Log: slog.New(slog.DiscardHandler)}}),
	}})
	must(t, err)
	<-answers // the pod has started, and volumes before it
	sys.Tell(messages.Volumes, messages.MountVolumes{UID: "u", Pod: volumestest.PodWith("u", volumestest.EmptyDirVolume("d"))})
	if m, ok := (<-answers).(messages.VolumesMounted); !ok || !exists(t, m.Paths["d"]) {
		t.Errorf("got %+v", m)
	}
	sys.Tell(messages.Volumes, messages.UnmountVolumes{UID: "u", Remove: true})
	if m, ok := (<-answers).(messages.VolumesUnmounted); !ok || m.Left != "" || exists(t, filepath.Join(root, "pods/u")) {
		t.Errorf("got %+v", m)
	}
	must(t, sys.Shutdown(t.Context()))
	must(t, ops.Close(t.Context()))
}

type ignore struct{}

func (ignore) Receive(supervisors.Context, any) {}

type forward struct{ to chan<- any }

func (f forward) Receive(_ supervisors.Context, msg any) { f.to <- msg }

// Pods with persistent volumes have a lane without a limit, at their start and at their end: a driver that hangs does not delay
// other pods.
func TestTheLaneOfPersistentVolumes(t *testing.T) {
	s := persistent.New(persistent.Options{Client: fake.NewClientset(), RootDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	defer s.Close()
	s.Undoing("a", true)
	claim := v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}}
	d := driver{disk{storage: s}}
	inline := v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{}}}
	for _, c := range []struct {
		op   operation
		want int
	}{
		{operation{Key: "x", Desired: volumestest.PodWith("x", claim)}, storing},
		{operation{Key: "x", Desired: volumestest.PodWith("x", inline)}, storing},
		{operation{Key: "x", Desired: volumestest.PodWith("x", volumestest.EmptyDirVolume("v"))}, onDisk},
		{operation{Key: "x", Remove: true}, onDisk},
		{operation{Key: "a", Remove: true}, storing},
	} {
		if got := d.lane(c.op); got != c.want {
			t.Errorf("%+v: lane %d, want %d", c.op, got, c.want)
		}
	}
}
