package volumes

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

func tokenPod(uid string) *v1.Pod {
	life := int64(600)
	pod := volumestest.APIPodWith(uid, volumestest.ProjectedVolume("v", v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{
		Audience: "vault", ExpirationSeconds: &life, Path: "token",
	}}))
	pod.Spec.ServiceAccountName = "web"
	return pod
}

// A token is written, and written again when it is due. If that fails, the old token stays, even with a new agent.
func TestATokenIsRenewed(t *testing.T) {
	volumestest.NeedMounts(t)
	n := newNode(t)
	m := &volumestest.Mint{Now: func() time.Time { return n.Now() }}
	n.disk.node.Objects, n.disk.node.Tokens = objectset.NewBoard(false), m
	n.restart(t)
	pod := tokenPod("u")
	m.Err = errors.New("the server says no")
	got := n.ask("u", messages.MountVolumes{UID: "u", Pod: pod})
	if said := fmt.Sprintf("%+v", got); len(got) != 1 || !strings.Contains(said,
		"a token of the service account ns/web: the server says no") || strings.Contains(said, "token 1") {
		t.Fatalf("without a token: %s", said)
	}
	m.Err = nil
	n.Advance(kinds.Retry.First)
	n.RunWork()
	mounted := n.sent("u")
	path := filepath.Join(mounted[0].(messages.VolumesMounted).Paths["v"], "token")
	expect := func(want string) {
		t.Helper()
		if text := read(t, path); text != want+" of web for vault" {
			t.Errorf("it holds %q", text)
		}
	}
	expect("token 2")
	n.Advance(600*time.Second - 1)
	if len(n.Work) > 0 {
		t.Error("it is renewed too soon")
	}
	n.Advance(1)
	n.RunWork()
	n.sent("u")
	expect("token 3")
	n.ask("u", messages.MountVolumes{UID: "u", Pod: pod}) // the volume is checked, and still renewed later
	n.Advance(600 * time.Second)
	n.RunWork()
	n.sent("u")
	expect("token 4")
	m.Err = errors.New("away")
	n.Advance(600 * time.Second)
	n.RunWork()
	if sent := n.sent("u"); len(sent) != 1 || sent[0].(messages.VolumesMounted).Paths["v"] == "" {
		t.Errorf("told %+v", sent)
	}
	expect("token 4")
	n.restart(t)
	if got := n.ask("u", messages.MountVolumes{UID: "u", Pod: pod}); len(got) != 1 ||
		got[0].(messages.VolumesMounted).Paths["v"] == "" {
		t.Errorf("another agent says %+v", got)
	}
	expect("token 4")
	if n.ask("u", messages.UnmountVolumes{UID: "u"}); !slices.Equal(m.Gone,
		[]types.UID{"u", "u"}) { // at once, and again after all mounts have ended
		t.Errorf("the tokens of %v are forgotten", m.Gone)
	}
}

// The end of a pod does not wait for a token: pending requests are canceled at once, even those of an earlier actor.
func TestPodEnd_WaitsForNoToken(t *testing.T) {
	n := newNode(t)
	m := &volumestest.Mint{Now: func() time.Time { return n.Now() }}
	n.disk.node.Objects, n.disk.node.Tokens = objectset.NewBoard(false), m
	n.restart(t)
	n.Send(messages.PodAddress("u"), messages.MountVolumes{UID: "u", Pod: tokenPod("u")})
	if n.Send(messages.PodAddress("u"), messages.UnmountVolumes{UID: "u"}); !slices.Equal(m.Gone, []types.UID{"u"}) {
		t.Errorf("while it is mounted, those of %v are broken off", m.Gone)
	}
	n.restart(t)
	if n.Send(messages.PodAddress("u"), messages.UnmountVolumes{UID: "u"}); !slices.Equal(m.Gone, []types.UID{"u", "u"}) {
		t.Errorf("by another actor, those of %v are broken off", m.Gone)
	}
}

// renewingPlugin is a kind of volume that has to be mounted again after an hour.
type renewingPlugin struct {
	kinds.HostPath
	now func() time.Time
}

func (renewingPlugin) Handles(*v1.Volume) bool { return true }

func (r renewingPlugin) Mount(_ context.Context, p kinds.Folder, _ *v1.Volume) (string, error) {
	p.RenewAt(r.now().Add(time.Hour))
	return "/v", nil
}

// crowded returns an actor with this many places in each lane. Its volumes are renewed each hour.
func crowded(t *testing.T, places int) *node {
	n := &node{disk: newDisk(t)}
	opts := Options{RootDir: n.rootDir, Operations: n.ops, Node: kinds.Facts{Objects: objectset.NewBoard(false), Log: n.disk.node.Log},
		Parallel: places}
	n.actor = newWith(opts, []kinds.Plugin{renewingPlugin{now: func() time.Time { return n.Now() }}})("volumes")
	n.Kit = newKit(t, n.actor)
	return n
}

// After the machine was suspended, the volumes whose renewal is due by then are renewed with the next sweep, and the others
// earlier by as much.
func TestVolumesAreRenewedAfterASuspension(t *testing.T) {
	var asleep time.Duration
	n := &node{disk: newDisk(t)}
	opts := Options{RootDir: n.rootDir, Operations: n.ops, Node: kinds.Facts{Objects: objectset.NewBoard(false), Log: n.disk.node.Log},
		Asleep: func() time.Duration { return asleep }}
	mounts := 0
	n.actor = newWith(opts, []kinds.Plugin{renewingPlugin{now: func() time.Time { mounts++; return n.Now() }}})("volumes")
	n.Kit = newKit(t, n.actor)
	sweep := func(want int) {
		t.Helper()
		n.Send(messages.Pods, messages.PodFoldersWanted{UIDs: map[string]bool{"u": true}})
		n.RunWork()
		if mounts != want {
			t.Errorf("got %d mounts, want %d", mounts, want)
		}
	}
	n.ask("u", messages.MountVolumes{UID: "u", Pod: tokenPod("u")})
	sweep(1)
	asleep = 40 * time.Minute
	sweep(1)
	n.Advance(21 * time.Minute) // an hour with the suspension
	n.RunWork()
	sweep(2)
	asleep += time.Hour
	sweep(3)
	sweep(3)
}

// begun returns the pods of the operations that were begun after the given number of earlier ones.
func (n *node) begun(after int) (out []string) {
	for _, w := range n.Work[after:] {
		out = append(out, strings.Fields(w.Name)[2])
	}
	return out
}

// An API server that does not answer blocks only mounts that need a token, and renewals of tokens, each up to the limit of
// their lane.
func TestTokensKeepNoOtherWaiting(t *testing.T) {
	n := crowded(t, 2)
	for _, uid := range []string{"a", "b", "c", "d"} {
		n.ask(uid, messages.MountVolumes{UID: uid, Pod: tokenPod(uid)})
	}
	n.Advance(time.Hour)
	if got := n.begun(0); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("renewed at a time: %v", got)
	}
	for _, uid := range []string{"e", "f", "g"} {
		n.Send(messages.PodAddress(uid), messages.MountVolumes{UID: uid, Pod: tokenPod(uid)})
	}
	if got := n.begun(2); !slices.Equal(got, []string{"e", "f"}) {
		t.Errorf("mounted while tokens are renewed: %v", got)
	}
	n.Send("pods/h", messages.MountVolumes{UID: "h", Pod: volumestest.PodWith("h")})
	n.Send("pods/x", messages.UnmountVolumes{UID: "x", Remove: true})
	if got := n.begun(4); !slices.Equal(got, []string{"h", "x"}) {
		t.Errorf("nobody answers, and mounted and unmounted are %v", got)
	}
	if in := n.actor.(*actor).volumes.Inspect(); in.Busy != 6 || in.Waiting != 3 {
		t.Errorf("%+v", in)
	}
	n.RunOne(n.Work[2])
	if got := n.begun(6); !slices.Equal(got, []string{"g"}) {
		t.Errorf("then %v", got)
	}
}

// Mounts that never end delay only other pods of their namespace.
func TestVolumes_NamespaceWhoseMountsHang(t *testing.T) {
	n := crowded(t, 10)
	mount := func(namespace, uid string) {
		pod := tokenPod(uid)
		pod.Namespace = namespace
		n.Send(messages.PodAddress(uid), messages.MountVolumes{UID: uid, Pod: pod})
	}
	for i := range 200 {
		mount("greedy", fmt.Sprint("greedy-", i))
	}
	for i := range 3 {
		begun := len(n.Work)
		mount("other", fmt.Sprint("other-", i))
		if got := n.begun(begun); !slices.Equal(got, []string{fmt.Sprint("other-", i)}) {
			t.Errorf("begun are %v, want pod %d of the other namespace", got, i)
		}
	}
	if in := n.actor.(*actor).volumes.Inspect(); in.Busy != 13 || in.Waiting != 190 {
		t.Errorf("%d are busy and %d wait, want 13 and 190", in.Busy, in.Waiting)
	}
}

// A pending mount is withdrawn at the pod's end. The unmount begins in another lane, and the next pod gets the place.
func TestAMountThatWaitsIsWithdrawn(t *testing.T) {
	n := crowded(t, 1)
	for _, uid := range []string{"slow", "ending", "next"} {
		n.Send(messages.PodAddress(uid), messages.MountVolumes{UID: uid, Pod: tokenPod(uid)})
	}
	n.Send("pods/ending", messages.UnmountVolumes{UID: "ending"})
	if got := n.begun(0); !slices.Equal(got, []string{"slow", "ending"}) {
		t.Errorf("it does %v", got)
	}
	n.RunOne(n.Work[0])
	if got := n.begun(2); !slices.Equal(got, []string{"next"}) {
		t.Errorf("then begins %v", got)
	}
}
