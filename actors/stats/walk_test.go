package stats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/messages"
)

func TestWalk(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "v", "a", "file"), 8192)
	must(os.Link(filepath.Join(dir, "v", "a", "file"), filepath.Join(dir, "v", "again")))
	write(t, filepath.Join(dir, "elsewhere", "big"), 1<<20)
	must(os.Symlink("../elsewhere", filepath.Join(dir, "v", "link")))
	must(os.Truncate(filepath.Join(dir, "v", "a", "file"), 1<<40)) // a hole
	root, err := safepath.OpenRoot(dir)
	must(err)
	t.Cleanup(func() { _ = root.Close() })
	s, err := used(t.Context(), root, "v")
	must(err)
	if s.inodesUsed != 4 || s.used < 8192 || s.used > 1<<16 { // v, a, file, link
		t.Errorf("%d bytes, %d inodes", s.used, s.inodesUsed)
	}
	if s, err := used(t.Context(), root, "none"); err != nil || s.used != 0 {
		t.Errorf("nothing there: %v, %v", s, err)
	}
	if _, err := used(t.Context(), root, "v/link"); err == nil {
		t.Error("a link was followed")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := used(ended, root, "v"); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %v", err)
	}
	many := filepath.Join(dir, "many")
	must(os.Mkdir(many, 0o700))
	for i := range 3 * walkBatch / 2 {
		write(t, filepath.Join(many, fmt.Sprint(i)), 1)
	}
	if s, err := used(t.Context(), root, "many"); err != nil || s.inodesUsed != 3*walkBatch/2+1 {
		t.Errorf("many: %d, %v", s.inodesUsed, err)
	}
}

// Few pods are walked at once, each again only when its figures are old, and a removed pod is dropped.
func TestTheActor(t *testing.T) {
	r := newRig(t)
	k := r.actor
	var pods []*v1.Pod
	for i := range 5 {
		pods = append(pods, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("u", i)), Name: "p", Namespace: "n"}})
	}
	ask := func(n int) { k.Send(messages.Node, messages.MeasureUsage{Pods: pods[:n]}) }
	ask(5)
	ask(5) // no pod is walked twice
	if len(k.Work) != walkers {
		t.Fatalf("%d walks at once", len(k.Work))
	}
	done := 0
	for len(k.Work) > 0 {
		w := k.Work[0]
		k.Work = k.Work[1:]
		k.RunOne(w)
		done++
	}
	if done != 5 || r.usage.of("u4") == nil {
		t.Errorf("%d walks", done)
	}
	ask(5)
	if len(k.Work) != 0 {
		t.Error("fresh figures were measured again")
	}
	k.Clock.SetTime(begin.Add(time.Hour))
	ask(2)
	if len(k.Work) != 2 || r.usage.of("u4") != nil {
		t.Errorf("an hour later %d walks; the pod that is gone has %v", len(k.Work), r.usage.of("u4"))
	}
}

// publish puts a pod's figures onto the board.
func publish(r *rig, uid types.UID, u podUsage) {
	r.usage.put(uid, func(*podUsage) *podUsage { return &u })
}

// A walk that hangs is waited for by one request alone; figures from before stay, with the reason.
func TestAWalkThatFails(t *testing.T) {
	r := newRig(t, pod("web", containerID1))
	uid := types.UID("uid-web")
	web := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}
	publish(r, uid, podUsage{volumes: map[string]space{"data": {used: 5}}})
	hang, began := make(chan struct{}), make(chan struct{})
	r.usage.walk(web, func(*podWalk) { close(began); <-hang }, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r.walkPod(ctx, web) {
		t.Error("the walk is reported to have ended")
	}
	<-began
	u := r.usage.of(uid)
	if u.err == nil || !u.partial || u.volumes["data"].used != 5 {
		t.Errorf("%+v", u)
	}
	measured, failed := r.usage.summary()
	if measured != 1 || len(failed) != 1 || !strings.HasPrefix(failed[0], "uid-web: the volumes of the pod") {
		t.Errorf("%d, %q", measured, failed)
	}
	_, lacks := r.Summary(t.Context(), false)
	if len(lacks) == 0 || !strings.HasPrefix(lacks[0], "pod default/web: the volumes") {
		t.Errorf("lacks %q", lacks)
	}
	close(hang)
}

// tree creates a chain of folders, each with a file; every seventh also has a deep side branch. It returns the number of inodes.
func tree(t *testing.T, dir string, depth int) (inodes uint64) {
	t.Helper()
	at, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	chain := func(root *os.Root, levels int, visit func(*os.Root, int)) {
		for level := range levels {
			if err := root.Mkdir("d", 0o700); err != nil {
				t.Fatal(err)
			}
			next, err := root.OpenRoot("d")
			if err != nil {
				t.Fatal(err)
			}
			if err := next.WriteFile("file", make([]byte, 4096), 0o600); err != nil {
				t.Fatal(err)
			}
			inodes += 2
			visit(next, level)
			_ = root.Close() // it was only read
			root = next
		}
		_ = root.Close() // it was only read
	}
	chain(at, depth, func(root *os.Root, level int) {
		if level%7 != 0 {
			return
		}
		if err := root.Mkdir("side", 0o700); err != nil {
			t.Fatal(err)
		}
		side, err := root.OpenRoot("side")
		if err != nil {
			t.Fatal(err)
		}
		inodes++
		chain(side, 80, func(*os.Root, int) {})
	})
	return inodes + 1 // and dir itself
}

func openFiles(t *testing.T) int {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

func TestWalk_DeepFolders_AreCountedWithFewDescriptors(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "v"), 0o700); err != nil {
		t.Fatal(err)
	}
	want := tree(t, filepath.Join(dir, "v"), 300)
	root, err := safepath.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	before, most := openFiles(t), 0
	s, err := usedSoFar(t.Context(), root, "v", func(space) { most = max(most, openFiles(t)) })
	if err != nil || s.inodesUsed != want || s.used < want/2*4096 {
		t.Errorf("got %d inodes and %d bytes (%v), want %d inodes", s.inodesUsed, s.used, err, want)
	}
	if most-before > walkDepth+4 {
		t.Errorf("%d descriptors were open, want at most %d", most-before, walkDepth+4)
	}
}

// A folder that is moved away during the walk makes the sum a lower bound, and leads the walk nowhere else.
func TestWalk_MovedFolder_MakesTheSumPartial(t *testing.T) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "v", strings.Repeat("d/", walkDepth+1))
	for _, name := range []string{filepath.Join(inner, "a", "b"), filepath.Join(inner, "c"), filepath.Join(dir, "elsewhere")} {
		if err := os.MkdirAll(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "elsewhere", "big"), 1<<20)
	root, err := safepath.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	w := &walk{ctx: t.Context(), links: map[uint64]bool{}}
	moved := false
	w.count = func(space) {
		if d := w.deep; len(d) > 0 && len(d[len(d)-1].names) == 1 && !moved { // one of a and c was visited, or is being visited
			moved = true
			for _, name := range []string{"a", "c"} {
				_ = os.Rename(filepath.Join(inner, name), filepath.Join(dir, "elsewhere", name)) // one is enough
			}
		}
	}
	f, err := os.Open(filepath.Join(dir, "v"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	w.device = info.Sys().(*syscall.Stat_t).Dev
	w.folder(f, 0)
	if !moved || !errors.Is(w.err, errMoved) || w.sum.used >= 1<<20 {
		t.Errorf("moved %v, %d bytes, %v", moved, w.sum.used, w.err)
	}
}

// A folder that is renamed between its listing and its measurement makes the sum a lower bound.
func TestWalk_RenamedFolder_MakesTheSumPartial(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		if err := os.MkdirAll(filepath.Join(dir, "v", name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "v", name, "big"), 1<<20)
	}
	root, err := safepath.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	renamed := false
	s, err := usedSoFar(t.Context(), root, "v", func(space) { // the first folder is measured, all three are listed
		for _, name := range []string{"a", "b", "c"} {
			if !renamed {
				_ = os.Rename(filepath.Join(dir, "v", name), filepath.Join(dir, "v", name+"'"))
			}
		}
		renamed = true
	})
	if !errors.Is(err, errDisturbed) || s.used >= 3<<20 {
		t.Errorf("got %d bytes, error %v, want fewer than %d and errDisturbed", s.used, err, 3<<20)
	}
	if s, err := used(t.Context(), root, "v"); err != nil || s.used < 3<<20 {
		t.Errorf("got %d bytes, error %v, want all", s.used, err)
	}
}

// Disturbed walks keep the figures from before, but not for ever; a whole walk ends that.
func TestPodUsage_DisturbedWalk_KeepsThePreviousMaximum(t *testing.T) {
	walk := func(used uint64, disturbed bool) podUsage {
		return podUsage{volumes: map[string]space{"v": {at: begin, used: used}}, logs: map[string]space{}, disturbed: disturbed,
			partial: disturbed}
	}
	u := walk(90, false).ended(nil)
	var got []uint64
	for _, next := range []podUsage{walk(10, true), walk(95, true), walk(20, true), walk(30, true), walk(40, true), walk(5, false),
		walk(1, true)} {
		before := u
		u = next.unfinished(before) // published during the walk
		if u = next.ended(u); before.volumes["v"].used != before.least().volumes["v"].used {
			t.Error("decisions use other figures than those of the ended walk")
		}
		got = append(got, u.volumes["v"].used)
	}
	if want := []uint64{90, 95, 95, 30, 40, 5, 5}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A folder moved during the walk hides files as a vanished one does, but its error is reported too.
func TestMeasurer_MovedFolder_IsDisturbed(t *testing.T) {
	other := errors.New("input/output error")
	for _, c := range []struct {
		in, out   error
		disturbed bool
	}{
		{nil, nil, false}, {other, other, false}, {errDisturbed, nil, true}, {errMoved, errMoved, true},
		{errors.Join(errMoved, other), other, true},
	} {
		var m measurer
		if err := m.undisturbed(c.in); !errors.Is(err, c.out) || m.u.disturbed != c.disturbed {
			t.Errorf("%v: got error %v and disturbed %v, want %v and %v", c.in, err, m.u.disturbed, c.out, c.disturbed)
		}
		if err := m.undisturbed(nil); err != nil || m.u.disturbed != c.disturbed {
			t.Errorf("%v: after the next folder's walk: got error %v and disturbed %v", c.in, err, m.u.disturbed)
		}
	}
}

// startWalk opens the folder v of dir for a walk.
func startWalk(t *testing.T, dir string) (*walk, *os.File) {
	f, err := os.Open(filepath.Join(dir, "v"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return &walk{ctx: t.Context(), links: map[uint64]bool{}, device: info.Sys().(*syscall.Stat_t).Dev}, f
}

// A folder that is moved away during the walk hides no other one.
func TestWalk_MovedFolder_HidesNoOthers(t *testing.T) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "v", strings.Repeat("d/", walkDepth+3))
	write(t, filepath.Join(inner, "a", "big"), 1<<20)
	write(t, filepath.Join(inner, "c", "big"), 1<<20)
	write(t, filepath.Join(dir, "elsewhere", "big"), 1<<20)
	w, f := startWalk(t, dir)
	moved := false
	w.count = func(space) {
		if d := w.deep; len(d) > 0 && len(d[len(d)-1].names) == 1 && !moved { // one of a and c is being visited
			name := map[string]string{"a": "c", "c": "a"}[d[len(d)-1].names[0]]
			moved = os.Rename(filepath.Join(inner, name), filepath.Join(dir, "elsewhere", name)) == nil
		}
	}
	w.folder(f, 0)
	if !moved || !errors.Is(w.err, errMoved) || w.sum.used < 2<<20 || w.sum.used >= 3<<20 {
		t.Errorf("moved %v, %d bytes, %v; want both folders counted, and nothing elsewhere", moved, w.sum.used, w.err)
	}
}

// A deep folder with more subfolders than are remembered is counted whole, and each file once.
func TestWalk_WideDeepFolders_AreCountedWhole(t *testing.T) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "v", strings.Repeat("d/", walkDepth+2))
	want := uint64(walkDepth + 2)
	for i := range 5 * walkFew {
		write(t, filepath.Join(inner, fmt.Sprint(i), "sub", "file"), 1)
		write(t, filepath.Join(inner, fmt.Sprint("file", i)), 1)
		want += 4
	}
	w, f := startWalk(t, dir)
	w.most = 1
	before, most := openFiles(t), 0
	w.count = func(space) { most = max(most, openFiles(t)) }
	w.folder(f, 0)
	if w.err != nil || w.sum.inodesUsed != want {
		t.Errorf("got %d inodes (%v), want %d", w.sum.inodesUsed, w.err, want)
	}
	if most-before > walkDepth+4 {
		t.Errorf("%d descriptors were open, want at most %d", most-before, walkDepth+4)
	}
}

// More files with several names than are remembered count for no more than they occupy.
func TestWalk_ManyLinks_IsALowerBound(t *testing.T) {
	w := &walk{links: map[uint64]bool{}}
	for i := range uint64(walkLinks + 2) {
		for range 2 {
			w.add(8, 2, i, unix.S_IFREG)
		}
	}
	if want := uint64(walkLinks+2) * 4096; w.sum.used != want {
		t.Errorf("got %d bytes, want %d", w.sum.used, want)
	}
}

// Figures of a walk in progress are never below the previous ones, and are marked partial.
func TestPodUsage_WalkInProgress_KeepsPreviousMaximum(t *testing.T) {
	before := &podUsage{at: begin, took: time.Second, volumes: map[string]space{"big": {used: 90}, "later": {used: 7}},
		logs: map[string]space{"c": {used: 3}}, podLogs: space{used: 4}, claims: map[string]space{"claim": {used: 8}}}
	now := podUsage{volumes: map[string]space{"big": {at: begin, used: 10}, "new": {at: begin, used: 2}}, logs: map[string]space{},
		kept: space{used: 1}, err: errInProgress}.unfinished(before)
	got := fmt.Sprint(now.partial, now.err != nil, now.at.Equal(begin), now.volumes["big"].used, now.volumes["later"].used,
		now.volumes["new"].used, now.logs["c"].used, now.podLogs.used, now.kept.used, now.claims["claim"].used)
	if want := "true true true 90 7 2 3 4 1 8"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if before.volumes["new"].used != 0 || before.partial {
		t.Error("published figures were changed")
	}
}

// While a disk is short, figures are at most as old as a walk takes; otherwise walks take a small share of the time.
func TestPodUsage_Due(t *testing.T) {
	u := &podUsage{at: begin, took: walkTimeout}
	for age, want := range map[time.Duration]bool{urgentAge: true, limitAge: false} {
		if got := u.due(begin.Add(2*walkTimeout), age); got != want {
			t.Errorf("age %v: due %v, want %v", age, got, want)
		}
	}
}

// A CSI driver that does not answer delays no figures of the node's disk, and its previous figures are kept.
func TestMeasure_HungCSIDriver_DelaysNoWalk(t *testing.T) {
	p := pod("web", containerID1)
	r := newRig(t, p)
	answers, hang := map[string]VolumeUsage{"data": {Bytes: VolumeAmount{Used: 5}}}, make(chan struct{})
	r.opts.Persistent = func(context.Context, *v1.Pod) (map[string]VolumeUsage, error) { return answers, nil }
	r.walkPod(t.Context(), p.Pod)
	r.opts.Persistent = func(context.Context, *v1.Pod) (map[string]VolumeUsage, error) {
		<-hang
		return nil, errors.New("the driver is gone")
	}
	write(t, filepath.Join(r.opts.RootDir, "pods", "uid-web", "containers", "c1", "00000000"), 1<<20)
	if !r.walkPod(t.Context(), p.Pod) {
		t.Fatal("the walk waits for the driver")
	}
	u := r.usage.of("uid-web")
	if s, _ := u.volume("data"); u.partial || u.err != nil || u.kept.used < 1<<20 || s.used != 5 {
		t.Errorf("got %+v", u)
	}
	close(hang)
	r.usage.await(t.Context(), []*v1.Pod{p.Pod}, func(_ *v1.Pod, u *podUsage) bool { return u.claimsErr == nil }) //nolint:errcheck // the test's end
	if s, _ := r.usage.of("uid-web").volume("data"); s.used != 5 {
		t.Errorf("the driver's figures from before are %d, want 5", s.used)
	}
}

// Pods that eviction needs figures of are walked before others, and beside walks in progress.
func TestActor_UrgentPods_AreWalkedFirst(t *testing.T) {
	r := newRig(t)
	var pods []*v1.Pod
	for i := range walkers + 3 {
		pods = append(pods, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("u", i)), Name: "p", Namespace: "n"}})
	}
	last := pods[len(pods)-1].UID
	r.actor.Send(messages.Node, messages.MeasureUsage{Pods: pods})
	r.actor.Send(messages.Node, messages.MeasureUsage{Pods: pods, Urgent: map[types.UID]bool{last: true}, Short: true})
	if len(r.actor.Work) != walkers+1 {
		t.Fatalf("%d walks at once, want %d", len(r.actor.Work), walkers+1)
	}
	r.actor.RunOne(r.actor.Work[walkers])
	if r.usage.of(last) == nil {
		t.Error("the urgent pod is not the next one")
	}
}

// A walk that takes long gives its place to others, and goes on.
func TestActor_LongWalk_HoldsUpNoOthers(t *testing.T) {
	r := newRig(t)
	pods := []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "slow", Name: "slow", Namespace: "n"}}}
	for i := range walkers {
		pods = append(pods, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("u", i)), Name: "p", Namespace: "n"}})
	}
	hang := make(chan struct{})
	began := make(chan struct{})
	r.usage.walk(pods[0], func(*podWalk) { close(began); <-hang }, nil)
	r.actor.Send(messages.Node, messages.MeasureUsage{Pods: pods})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		r.walkPod(ctx, pods[0])
	}()
	<-ended
	<-began
	r.actor.Work = r.actor.Work[1:]
	r.actor.Send(messages.Stats, walkResult{"slow", false})
	if len(r.actor.Work) != walkers {
		t.Fatalf("%d walks at once, want %d", len(r.actor.Work), walkers)
	}
	r.actor.RunWork()
	r.actor.Clock.SetTime(begin.Add(time.Hour))
	r.actor.Send(messages.Node, messages.MeasureUsage{Pods: pods, Urgent: map[types.UID]bool{"slow": true}, Short: true})
	if len(r.actor.Work) != walkers {
		t.Errorf("%d walks at once, want %d: the long one is not begun again", len(r.actor.Work), walkers)
	}
	close(hang)
}

// A check of limits waits for the pods that have some, and a reader of all figures for first walks.
func TestCollector_Awaits(t *testing.T) {
	r := newRig(t)
	limited := urgency{pods: map[types.UID]bool{"limited": true}}
	first := &podUsage{partial: true, err: errInProgress}
	for name, c := range map[string]struct {
		uid    types.UID
		u      *podUsage
		urgent urgency
		want   bool
	}{
		"first walk of a pod with a limit":    {"limited", first, limited, true},
		"first walk of a pod without a limit": {"other", first, limited, false},
		"no walk of a pod without a limit":    {"other", nil, limited, false},
		"first walk, for a reader of all":     {"other", first, urgency{}, true},
		"old figures, for a reader of all":    {"other", &podUsage{at: begin}, urgency{}, false},
	} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: c.uid}}
		if got := r.awaits(p, c.u, c.urgent, begin.Add(time.Hour)); got != c.want {
			t.Errorf("%s: awaited %v, want %v", name, got, c.want)
		}
	}
}

// Figures for memory and process IDs request no walk.
func TestPodStats_WithoutUrgentPods_RequestsNoWalk(t *testing.T) {
	r := newRig(t, pod("web", containerID1))
	r.Attach(func(messages.Address, any) { t.Error("a walk is requested") })
	if pods, _, _, _ := r.PodStats(t.Context(), nil, false); len(pods) != 1 {
		t.Errorf("got %d pods, want 1", len(pods))
	}
}

// A pod that moves a file between volumes and deletes it is not measured above its use by walks that end with an error, and no
// decision about it uses figures from before.
func TestUsage_Decisions_UseLowerBounds(t *testing.T) {
	web := pod("web", containerID1)
	for _, name := range []string{"a", "b"} {
		web.Pod.Spec.Volumes = append(web.Pod.Spec.Volumes,
			v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
	}
	r := newRig(t, web)
	volumes := filepath.Join(r.opts.RootDir, "pods", "uid-web", "volumes", "kubernetes.io~empty-dir")
	write(t, filepath.Join(volumes, "a", "file"), 6<<20)
	if err := os.Mkdir(filepath.Join(volumes, "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("none", filepath.Join(volumes, "broken")); err != nil { // each walk ends with an error
		t.Fatal(err)
	}
	ended := func(what string, least, most uint64) {
		t.Helper()
		r.walkPod(t.Context(), web.Pod)
		u := r.usage.of("uid-web")
		sum := u.volumes["a"].used + u.volumes["b"].used
		if u.err == nil || !u.partial || sum < least || sum > most {
			t.Errorf("%s: %d bytes, partial %v, error %v; want %d to %d", what, sum, u.partial, u.err, least, most)
		}
	}
	ended("in a", 6<<20, 7<<20)
	if err := os.Rename(filepath.Join(volumes, "a", "file"), filepath.Join(volumes, "b", "file")); err != nil {
		t.Fatal(err)
	}
	ended("in b", 6<<20, 7<<20)
	before := *r.usage.of("uid-web")
	if err := os.Remove(filepath.Join(volumes, "b", "file")); err != nil {
		t.Fatal(err)
	}
	ended("deleted", 0, 1<<20)

	publish(r, "uid-web", *podUsage{volumes: map[string]space{"a": {at: begin, used: 1}}, err: errInProgress}.unfinished(&before))
	pods, partial, _, _ := r.PodStats(t.Context(), nil, false)
	for _, v := range pods[0].VolumeStats {
		if *v.UsedBytes > 1 {
			t.Errorf("volume %s counts for %d in decisions during a walk, want the sum of the walk", v.Name, *v.UsedBytes)
		}
	}
	if !partial["uid-web"] || r.usage.of("uid-web").volumes["b"].used < 6<<20 {
		t.Errorf("partial %v; the figures from before are to be shown until the end", partial)
	}
}

// While the requested walk has no sum yet, decisions know that the figures are old.
func TestPodStats_WalkNotBegun_MarksFiguresOld(t *testing.T) {
	r := newRig(t, pod("web", containerID1))
	r.Attach(func(messages.Address, any) {})
	publish(r, "uid-web", podUsage{at: begin.Add(-time.Hour)})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	urgent := map[types.UID]bool{"uid-web": true}
	if _, partial, old, _ := r.PodStats(ended, urgent, true); partial["uid-web"] || !old["uid-web"] {
		t.Errorf("got partial %v and old %v, want old figures", partial, old)
	}
	publish(r, "uid-web", podUsage{at: begin})
	if _, _, old, _ := r.PodStats(ended, urgent, true); old["uid-web"] {
		t.Error("new figures are marked as old")
	}
}
