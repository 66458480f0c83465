package pods

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// cluster returns the actor of a node of a cluster, with an empty folder of manifests.
func cluster(t *testing.T, path string) (*supervisortest.Kit, *board.Board) {
	t.Helper()
	b := board.New()
	k := supervisortest.New(t, messages.Pods, New(Options{
		Sources: []messages.Address{messages.File, messages.APIServer}, Cluster: true, Board: b, Dir: path,
	})("pods"))
	k.RunWork()
	wants(k, messages.File)
	return k, b
}

func deletedPod(name, uid string, grace int64) *v1.Pod {
	p := pod(name, uid)
	at := metav1.NewTime(time.Unix(1_000_000, 0))
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
	p.Spec.TerminationGracePeriodSeconds = new(int64(30))
	return p
}

// graces returns the grace periods sent to a pod since the last call; -1 stands for the pod's own.
func graces(k *supervisortest.Kit) []int64 {
	var out []int64
	for _, m := range sent[messages.PodWanted](k) {
		switch {
		case m.Ending == nil:
		case m.Ending.Grace == nil:
			out = append(out, -1)
		default:
			out = append(out, *m.Ending.Grace)
		}
	}
	return out
}

// ofType returns the messages of one type.
func ofType[T any](all []supervisortest.SentMessage) []T {
	var out []T
	for _, m := range all {
		if v, ok := m.Msg.(T); ok {
			out = append(out, v)
		}
	}
	return out
}

func statuses(k *supervisortest.Kit) []messages.PodStatusWanted {
	return sent[messages.PodStatusWanted](k)
}

func gone(k *supervisortest.Kit, uid string, status *v1.PodStatus) {
	k.Send(messages.PodAddress(uid), messages.PodEnded{UID: uid, Gone: true, Status: status})
	k.Send(messages.Pods, messages.ChildStopped{Name: uid})
	k.RunWork()
}

// The grace period of a deletion is the object's, and can only become shorter. An object that disappears was deleted by force.
func TestADeletionShortens(t *testing.T) {
	k, _ := cluster(t, t.TempDir())
	audit(k)
	wants(k, messages.APIServer, pod("web", "u"))
	k.Take()
	for i, c := range []struct {
		desired []*v1.Pod
		want    []int64
	}{
		{[]*v1.Pod{deletedPod("web", "u", 20)}, []int64{20}},
		{[]*v1.Pod{deletedPod("web", "u", 25)}, []int64{20}},
		{[]*v1.Pod{deletedPod("web", "u", 7)}, []int64{7}},
		{[]*v1.Pod{pod("web", "u")}, nil},
		{nil, []int64{vanishedGrace}},
		{nil, nil},
	} {
		wants(k, messages.APIServer, c.desired...)
		if got := graces(k); !slices.Equal(got, c.want) {
			t.Errorf("step %d: told of %v, want %v", i, got, c.want)
		}
	}
	wants(k, messages.APIServer, pod("other", "v"))
	k.Take()
	wants(k, messages.APIServer)
	if got := graces(k); !slices.Equal(got, []int64{-1}) {
		t.Errorf("a pod that vanished has %v, and not its own", got)
	}
}

// A deleted pod without remains is reported to the API server until its object is gone. It is not created again after a restart
// of either.
func TestADeletedPodIsOver(t *testing.T) {
	path := t.TempDir()
	k, b := cluster(t, path)
	audit(k)
	dying := deletedPod("web", "u", 5)
	wants(k, messages.APIServer, dying)
	if !slices.Equal(k.Spawned, []string{"u"}) {
		t.Fatalf("spawned %v: what may be left of it has to be looked for", k.Spawned)
	}
	k.Take()
	final := &v1.PodStatus{Phase: v1.PodFailed, Message: "final"}
	gone(k, "u", final)
	over := statuses(k)
	if len(over) != 1 || !over[0].Over || over[0].Status != final || over[0].Static {
		t.Fatalf("told %+v", over)
	}
	kept := deletedPod("web", "u", 5)
	kept.Finalizers = []string{"example.com/hold"}
	wants(k, messages.APIServer, kept)
	k.Advance(2 * sweepEvery)
	if all := b.Now().Over; len(all) != 1 || all[0].Waiting.Code != messages.ReasonFinalizers ||
		!strings.HasSuffix(all[0].Waiting.Message, "its finalizers: example.com/hold") {
		t.Errorf("what keeps its object is not published: %+v", all)
	}
	var whole messages.PodStatusesWanted
	for _, m := range sent[messages.PodStatusesWanted](k) {
		whole = m
	}
	if len(k.Spawned) != 1 || !whole.Heard || len(whole.Pods) != 1 || !whole.Pods[0].Over || len(b.Now().Pods) != 0 {
		t.Errorf("spawned %v, told %+v, published %+v", k.Spawned, whole, b.Now().Pods)
	}

	k, _ = cluster(t, path) // another life: the pod's end is asked for again, and the status is the old one
	audit(k)
	wants(k, messages.APIServer, dying)
	k.Take()
	k.Send(messages.PodAddress("u"), messages.GetDesired{UID: "u"})
	if w := sent[messages.PodWanted](k); len(w) != 1 || w[0].Ending == nil || w[0].Final == nil || w[0].Final.Message != "final" {
		t.Errorf("told %+v", w)
	}
	gone(k, "u", final)
	wants(k, messages.APIServer)
	k.Advance(2 * sweepEvery)
	k.RunWork()
	for _, m := range sent[messages.PodStatusesWanted](k) {
		whole = m
	}
	if len(whole.Pods) != 0 {
		t.Errorf("its object is gone, and told is %+v", whole.Pods)
	}
	k, _ = cluster(t, path)
	audit(k)
	wants(k, messages.APIServer, dying)
	k.Take()
	k.Send(messages.PodAddress("u"), messages.GetDesired{UID: "u"})
	if w := sent[messages.PodWanted](k); len(w) != 1 || w[0].Final != nil {
		t.Errorf("what was known of it is kept for ever: %+v", w)
	}
}

// An API server that was restored to before the deletion of a pod in the state over runs it: the pod starts over, without its
// final status.
func TestADeletionThatWasUndone(t *testing.T) {
	path := t.TempDir()
	k, _ := cluster(t, path)
	audit(k)
	wants(k, messages.APIServer, deletedPod("web", "u", 5))
	gone(k, "u", &v1.PodStatus{Phase: v1.PodSucceeded})
	k.Take()
	wants(k, messages.APIServer, pod("web", "u"))
	if !slices.Equal(k.Spawned, []string{"u", "u"}) {
		t.Fatalf("spawned %v: it is wanted again", k.Spawned)
	}
	k.Send(messages.PodAddress("u"), messages.GetDesired{UID: "u"})
	if w := sent[messages.PodWanted](k); len(w) == 0 || w[len(w)-1].Ending != nil || w[len(w)-1].Final != nil {
		t.Errorf("told %+v", w)
	}
	k.RunWork()
	next, _ := cluster(t, path) // the agent is killed, and its next life finds the pod running
	audit(next, "u")
	wants(next, messages.APIServer, pod("web", "u"))
	next.Take()
	next.Send(messages.PodAddress("u"), messages.GetDesired{UID: "u"})
	if w := sent[messages.PodWanted](next); len(w) != 1 || w[0].Final != nil {
		t.Errorf("told the next agent's pod %+v", w)
	}
}

// An ending pod does not wait for the cause of its earlier wait.
func TestEndingPod_DropsEarlierReason(t *testing.T) {
	b := board.New()
	k := supervisortest.New(t, messages.Pods, New(Options{
		Sources: []messages.Address{messages.File, other}, Board: b, Dir: t.TempDir()})("pods"))
	k.RunWork()
	wants(k, messages.File, pod("web", "u"))
	wants(k, other)
	audit(k)
	waits := func(generation uint64) *messages.Reason {
		t.Helper()
		k.Send(messages.PodAddress("u"), messages.PodStatusChanged{UID: "u", Generation: generation, Phase: "running",
			Status: &v1.PodStatus{}, Waiting: &messages.Reason{Code: messages.ReasonErrImagePull}})
		k.Advance(time.Second)
		return b.Now().Pods[0].Waiting
	}
	if waits(sent[messages.PodWanted](k)[0].Generation) == nil {
		t.Fatal("what it waits for is not published")
	}
	wants(k, messages.File)
	end := sent[messages.PodWanted](k)[0]
	if got := waits(end.Generation - 1); got != nil {
		t.Errorf("it ends, and is said to wait for %+v", got)
	}
	if waits(end.Generation) == nil {
		t.Error("what keeps it from ending is not published")
	}
}

// A pod with unsupported fields is held, with the fields named, and reported once. One that another agent runs is left alone and
// not reported.
func TestAPodThatIsNotSupportedIsHeld(t *testing.T) {
	k, b := cluster(t, t.TempDir())
	audit(k, "running")
	odd := func(name, uid string) *v1.Pod {
		p := pod(name, uid)
		p.Spec.RuntimeClassName, p.Spec.Overhead = new("kata"), v1.ResourceList{"cpu": {}}
		p.Spec.Volumes = []v1.Volume{{Name: "d", VolumeSource: v1.VolumeSource{FC: &v1.FCVolumeSource{}}}}
		return p
	}
	waits, runs := odd("waits", "waits"), odd("found-running", "running")
	k.Take()
	wants(k, messages.APIServer, waits, runs)
	wants(k, messages.APIServer, waits, runs)
	all := k.Take()
	said := ofType[messages.PodStatusWanted](all)
	events := ofType[messages.RecordEvent](all)
	wants(k, messages.APIServer, waits.DeepCopy(), runs) // the version after the write of its status
	events = append(events, sent[messages.RecordEvent](k)...)
	if len(events) != 1 || events[0].Object.Name != "waits" || events[0].Type != v1.EventTypeWarning ||
		events[0].Reason != messages.ReasonUnsupported ||
		!strings.Contains(events[0].Message, "spec.volumes[0].fc") {
		t.Errorf("events: %+v", events)
	}
	wants(k, messages.APIServer, waits, runs)
	if len(k.Spawned) > 0 || len(said) != 2 || said[1].Status != nil || said[0].Status == nil {
		t.Fatalf("spawned %v, told %+v", k.Spawned, said)
	}
	if s := said[0].Status; s.Phase != v1.PodPending || s.Reason != messages.ReasonUnsupported ||
		!strings.Contains(s.Message, "spec.volumes[0].fc") {
		t.Errorf("told %+v", s)
	}
	k.Advance(publishEvery)
	if now := b.Now().Pods; len(now) != 2 || now[0].Waiting == nil || now[0].Waiting.Code != messages.ReasonUnsupported {
		t.Errorf("published %+v", now)
	}
	wants(k, messages.APIServer, pod("waits", "waits"), runs)
	if !slices.Equal(k.Spawned, []string{"waits"}) {
		t.Errorf("spawned %v", k.Spawned)
	}
}

// Extended resources of a ResourceClaim need no device plugin, also those that a DeviceClass has implicitly (KEP-5004).
func TestExtendedResourcesOfClaims(t *testing.T) {
	for _, name := range []v1.ResourceName{"example.com/gpu", "deviceclass.resource.kubernetes.io/gpu"} {
		k, _ := cluster(t, t.TempDir())
		audit(k)
		p := pod("web", "u")
		p.Spec.Containers = []v1.Container{{Name: "app", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{name: resource.MustParse("1")}}}}
		p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "web-gpu",
			RequestMappings: []v1.ContainerExtendedResourceRequest{{ContainerName: "app", ResourceName: string(name), RequestName: "r"}}}
		podspec.Default(p)
		k.Take()
		wants(k, messages.APIServer, p)
		for _, q := range sent[messages.AllocateResources](k) {
			k.Send(messages.Resources, messages.ResourcesAllocated{UID: q.UID, Pod: q.Pod})
		}
		if !slices.Equal(k.Spawned, []string{"u"}) {
			t.Errorf("%s: spawned %v, sent %+v", name, k.Spawned, sent[messages.PodStatusWanted](k))
		}
	}
}

// A pod that is over at the API server is over here, and that is recorded.
func TestAPodThatIsOverElsewhere(t *testing.T) {
	path := t.TempDir()
	k, _ := cluster(t, path)
	audit(k)
	job := pod("job", "u")
	job.Status.Phase = v1.PodSucceeded
	wants(k, messages.APIServer, job)
	k.Take()
	k.Send(messages.PodAddress("u"), messages.GetDesired{UID: "u"})
	if w := sent[messages.PodWanted](k); len(w) != 1 || w[0].Final == nil || w[0].Final.Phase != v1.PodSucceeded {
		t.Fatalf("told %+v", w)
	}
	if k.Advance(sweepEvery); len(k.Work) == 0 {
		t.Error("it is not written down")
	}
}

// Each status is sent on with the kind of its source. A restarted receiver gets all of them.
func TestStatusesArePassedOn(t *testing.T) {
	k, _ := cluster(t, t.TempDir())
	audit(k, "orphan")
	wants(k, messages.File, pod("web", "s"))
	wants(k, messages.APIServer, pod("cloud", "c"))
	k.Take()
	for _, uid := range []string{"s", "c", "orphan"} {
		k.Send(messages.PodAddress(uid), messages.PodStatusChanged{UID: uid, Status: &v1.PodStatus{Message: uid}})
	}
	said := statuses(k)
	if len(said) != 2 || said[0].UID != "s" || !said[0].Static || said[0].Status.Message != "s" || said[1].UID != "c" ||
		said[1].Static || said[1].Over {
		t.Errorf("told %+v", said)
	}
	k.Send(messages.Node, messages.ServiceStarted{Service: messages.Status})
	all := sent[messages.PodStatusesWanted](k)
	if len(all) != 1 || len(all[0].Pods) != 2 || !all[0].Heard {
		t.Errorf("told %+v", all)
	}
	k, _ = cluster(t, t.TempDir())
	audit(k)
	k.Send(messages.Node, messages.ServiceStarted{Service: messages.Status})
	if all = sent[messages.PodStatusesWanted](k); len(all) != 1 || all[0].Heard {
		t.Errorf("before the API server was heard: %+v", all)
	}
}

// The end of a deleted pod is confirmed when it is on disk, where the next agent finds it. If the disk accepts no write it is
// confirmed all the same, as the removal makes room.
func TestTheEndOfADeletedPodIsKept(t *testing.T) {
	for _, full := range []bool{false, true} {
		path := t.TempDir()
		k, _ := cluster(t, path)
		audit(k)
		wants(k, messages.APIServer, deletedPod("web", "u", 5))
		if full {
			if err := os.MkdirAll(filepath.Join(path, "records", "u.json", "x"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		k.Take()
		final := &v1.PodStatus{Phase: v1.PodFailed, Message: "final"}
		k.Send(messages.PodAddress("u"), messages.PodEnded{UID: "u", Status: final})
		if w := sent[messages.PodWanted](k); len(w) != 0 {
			t.Errorf("answered before it is on the disk: %+v", w)
		}
		k.Send(messages.PodAddress("u"), messages.GetDesired{UID: "u"})
		wants(k, messages.APIServer, deletedPod("web", "u", 2))
		for _, w := range sent[messages.PodWanted](k) {
			if w.Final == nil || !w.Unkept {
				t.Errorf("before it is on the disk, told is %+v", w)
			}
		}
		k.RunWork()
		if w := sent[messages.PodWanted](k); len(w) != 1 || w[0].Final == nil || w[0].Unkept || w[0].Ending == nil ||
			len(k.Stopped) > 0 {
			t.Errorf("disk full %v: told %+v, stopped %v", full, w, k.Stopped)
		}
		if full {
			continue
		}
		k, _ = cluster(t, path)
		audit(k)
		wants(k, messages.APIServer, deletedPod("web", "u", 5))
		k.Take()
		k.Send(messages.PodAddress("u"), messages.GetDesired{UID: "u"})
		if w := sent[messages.PodWanted](k); len(w) != 1 || w[0].Final == nil || w[0].Final.Message != "final" {
			t.Errorf("the next agent tells %+v", w)
		}
	}
}

// The object of a released pod is deleted, and its actor is informed once. If the object stays, the status goes to the disk.
func TestAReleasedPod(t *testing.T) {
	for _, stays := range []bool{false, true} {
		path := t.TempDir()
		k, _ := cluster(t, path)
		audit(k)
		wants(k, messages.APIServer, deletedPod("web", "u", 1))
		k.Take()
		final := &v1.PodStatus{Phase: v1.PodFailed, Message: "final"}
		released := messages.PodEnded{UID: "u", Released: true, Status: final}
		k.Send(messages.PodAddress("u"), released)
		all := k.Take()
		if s := ofType[messages.PodStatusWanted](all); len(s) != 1 || !s[0].Over || s[0].Status != final {
			t.Fatalf("got statuses %+v, want the final one of a pod that is over", s)
		}
		if w := ofType[messages.PodWanted](all); len(w) > 0 {
			t.Errorf("got %+v, want no answer while the object is there", w)
		}
		k.RunWork()
		if out, _, _ := newStore(path).load(); len(out) > 0 {
			t.Errorf("the disk has %v", out)
		}
		if stays {
			k.Send(messages.PodAddress("u"), released)
			k.RunWork()
			if w := sent[messages.PodWanted](k); len(w) != 1 || w[0].Final != final || w[0].Unkept || w[0].ObjectGone {
				t.Errorf("got %+v, want the final status on disk", w)
			}
			continue
		}
		wants(k, messages.APIServer)
		wants(k, messages.APIServer)
		if w := sent[messages.PodWanted](k); len(w) != 1 || !w[0].ObjectGone || w[0].Final != nil {
			t.Errorf("got %+v, want one with ObjectGone", w)
		}
		k.Send(messages.PodAddress("u"), released) // the answer was lost
		if w := sent[messages.PodWanted](k); len(w) != 1 || !w[0].ObjectGone {
			t.Errorf("got %+v, want another one with ObjectGone", w)
		}
		k.Send(messages.PodAddress("u"), messages.PodEnded{UID: "u", Status: final}) // an ender waits for the disk
		k.RunWork()
		if w := sent[messages.PodWanted](k); len(w) != 1 || w[0].Final != final || w[0].Unkept {
			t.Errorf("got %+v, want the final status on disk", w)
		}
		k.Send(messages.PodAddress("u"), messages.PodEnded{UID: "u", Gone: true, Status: final})
		k.Send(messages.Pods, messages.ChildStopped{Name: "u"})
		k.RunWork()
		if out, _, _ := newStore(path).load(); len(out) > 0 || len(k.Stopped) != 1 {
			t.Errorf("the disk has %v, stopped %v", out, k.Stopped)
		}
	}
}

// A released pod whose object is gone keeps no successor of its name waiting, though the runtime has not removed its remains.
func TestAReleasedPod_Successor(t *testing.T) {
	k, _ := cluster(t, t.TempDir())
	audit(k)
	wants(k, messages.APIServer, deletedPod("web", "u", 1))
	k.Send(messages.PodAddress("u"), messages.PodEnded{UID: "u", Released: true, Status: &v1.PodStatus{Phase: v1.PodFailed}})
	wants(k, messages.APIServer, deletedPod("web", "u", 1), pod("web", "v"))
	if slices.Contains(k.Spawned, "v") {
		t.Error("the successor runs while the object of its predecessor is there")
	}
	wants(k, messages.APIServer, pod("web", "v"))
	k.Advance(time.Minute)
	if !slices.Contains(k.Spawned, "v") {
		t.Errorf("got actors %v, want v", k.Spawned)
	}
}

// The final status of a deleted pod is dropped with its object, even if another source never reports. It stays while the pod
// waits for its removal.
func TestDeletedPod_RecordEndsWithItsObject(t *testing.T) {
	path := t.TempDir()
	k := supervisortest.New(t, messages.Pods, New(Options{
		Sources: []messages.Address{messages.URL, messages.APIServer}, Cluster: true, Board: board.New(), Dir: path,
	})("pods"))
	k.RunWork()
	audit(k)
	kept := func() []string {
		t.Helper()
		k.RunWork()
		out, _, errs := newStore(path).load()
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		return slices.Sorted(maps.Keys(out))
	}
	final := &v1.PodStatus{Phase: v1.PodFailed}
	waits := deletedPod("waits", "waits", 5)
	wants(k, messages.APIServer, deletedPod("a", "a", 5), waits)
	for _, uid := range []string{"a", "waits"} {
		k.Send(messages.PodAddress(uid), messages.PodEnded{UID: uid, Status: final})
	}
	gone(k, "a", final)
	if got := kept(); !slices.Equal(got, []string{"a", "waits"}) {
		t.Fatalf("kept are %v", got)
	}
	wants(k, messages.APIServer, waits)
	k.Advance(sweepEvery)
	if got := kept(); !slices.Equal(got, []string{"waits"}) {
		t.Errorf("when the object has gone, kept are %v", got)
	}
	wants(k, messages.APIServer) // the object of the pod with remains is deleted by force
	k.Advance(sweepEvery)
	if got := kept(); !slices.Equal(got, []string{"waits"}) {
		t.Errorf("before its remains are removed, kept are %v", got)
	}
	gone(k, "waits", final)
	if got := kept(); len(got) > 0 {
		t.Errorf("at the end, kept are %v", got)
	}
}

// A source's grace period counts once no source lists the pod, and can only become shorter.
func TestASourceHurriesAPod(t *testing.T) {
	k, _ := cluster(t, t.TempDir())
	audit(k)
	wants(k, messages.APIServer)
	says := func(graces map[string]int64, desired ...*v1.Pod) {
		k.Send(messages.File, messages.SourcePodsWanted{Source: messages.File, Pods: desired, Graces: graces})
		k.RunWork()
	}
	long := pod("web", "u")
	long.Spec.TerminationGracePeriodSeconds = new(int64(30))
	says(nil, long)
	k.Take()
	for i, c := range []struct {
		graces  map[string]int64
		desired []*v1.Pod
		want    []int64
	}{
		{map[string]int64{"u": 5}, []*v1.Pod{long}, nil}, // it is listed
		{map[string]int64{"u": 20, "v": 1}, nil, []int64{20}},
		{map[string]int64{"u": 25}, nil, nil},
		{nil, nil, nil},
		{map[string]int64{"u": 7}, nil, []int64{7}},
		{map[string]int64{"u": 0}, nil, []int64{vanishedGrace}},
		{map[string]int64{"u": 0}, nil, nil},
	} {
		says(c.graces, c.desired...)
		if got := graces(k); !slices.Equal(got, c.want) {
			t.Errorf("step %d: told of %v, want %v", i, got, c.want)
		}
	}
}
