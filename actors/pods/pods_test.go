package pods

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

const other messages.Address = "sources/other"

// begin starts the actor with two sources, the checkpoint read.
func begin(t *testing.T) *supervisortest.Kit {
	t.Helper()
	k := supervisortest.New(t, messages.Pods, New(Options{
		Sources: []messages.Address{messages.File, other}, Board: board.New(),
		Dir: t.TempDir(),
	})("pods"))
	k.RunWork()
	return k
}

func pod(name, uid string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(uid)}}
}

func wants(k *supervisortest.Kit, source messages.Address, pods ...*v1.Pod) {
	k.Send(source, messages.SourcePodsWanted{Source: source, Pods: pods})
}

func audit(k *supervisortest.Kit, found ...string) {
	m := messages.RuntimeAudited{ReadAt: k.Now().Add(time.Millisecond)}
	for _, uid := range found {
		m.Pods = append(m.Pods, messages.PodFacts{UID: uid, Name: "found-" + uid, Namespace: "default"})
	}
	k.Send(messages.Runtime, m)
}

// sent returns the messages of one type since the last call.
func sent[T any](k *supervisortest.Kit) []T {
	var out []T
	for _, m := range k.Take() {
		if v, ok := m.Msg.(T); ok {
			out = append(out, v)
		}
	}
	return out
}

// Whatever the order of the reports, found pods are ended, and folders are cleaned, only after every source and the runtime have
// reported.
func TestNothingIsEndedBeforeAllIsKnown(t *testing.T) {
	words := []func(k *supervisortest.Kit){
		func(k *supervisortest.Kit) { wants(k, messages.File, pod("web", "u1")) },
		func(k *supervisortest.Kit) { wants(k, other) },
		func(k *supervisortest.Kit) { audit(k, "u1", "orphan") },
	}
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		k := begin(t)
		for i, word := range order {
			words[word](k)
			k.Advance(2 * sweepEvery)
			cleaned := sent[messages.PodFoldersWanted](k)
			if all := i == len(order)-1; slices.Contains(k.Spawned, "orphan") != all || (len(cleaned) > 0) != all {
				t.Errorf("order %v, after %d: spawned %v, folders wanted %v", order, i+1, k.Spawned, cleaned)
			}
			for _, m := range cleaned {
				if !m.UIDs["u1"] || !m.UIDs["orphan"] {
					t.Errorf("order %v: folders of pods that run are given up: %v", order, m.UIDs)
				}
			}
		}
	}
}

// A pod does not start before the audit, and starts right after it, whatever the other sources report.
func TestOneSourceDoesNotWaitForAnother(t *testing.T) {
	k := begin(t)
	wants(k, messages.File, pod("web", "u1"))
	if len(k.Spawned) > 0 {
		t.Fatalf("spawned %v", k.Spawned)
	}
	audit(k)
	if !slices.Equal(k.Spawned, []string{"u1"}) {
		t.Errorf("spawned %v", k.Spawned)
	}
}

// A changed manifest is a successor: it waits until the removal of its predecessor is complete.
func TestASuccessorWaitsForItsPredecessor(t *testing.T) {
	k := begin(t)
	wants(k, messages.File, pod("web", "u1"))
	wants(k, other)
	audit(k)
	k.Take()
	wants(k, messages.File, pod("web", "u2"))
	ending := sent[messages.PodWanted](k)
	if len(ending) != 1 || ending[0].Ending == nil || ending[0].Ending.Reason != "a changed manifest takes its place" {
		t.Fatalf("told %+v", ending)
	}
	k.Send(messages.PodAddress("u1"), messages.PodEnded{UID: "u1", Gone: true})
	if !slices.Equal(k.Stopped, []string{"u1"}) || slices.Contains(k.Spawned, "u2") {
		t.Fatalf("stopped %v, spawned %v", k.Stopped, k.Spawned)
	}
	k.Send(messages.Pods, messages.ChildStopped{Name: "u1"})
	if !slices.Equal(k.Spawned, []string{"u1", "u2"}) {
		t.Errorf("spawned %v", k.Spawned)
	}
}

// Desired state that did not arrive is sent again.
func TestDesiredState_ResentUntilAccepted(t *testing.T) {
	k := begin(t)
	wants(k, messages.File, pod("web", "u1"))
	audit(k)
	k.Take()
	k.Advance(sweepEvery)
	again := sent[messages.PodWanted](k)
	if len(again) != 1 {
		t.Fatalf("told %+v", again)
	}
	k.Send(messages.PodAddress("u1"), messages.PodStatusChanged{UID: "u1", Generation: again[0].Generation})
	k.Advance(sweepEvery)
	if again = sent[messages.PodWanted](k); len(again) != 0 {
		t.Errorf("told once more: %+v", again)
	}
}

// The end of a pod is confirmed when it is on disk, and outlives a restart: the pod never runs again.
func TestFinishedPod_IsSavedBeforeAcknowledgement(t *testing.T) {
	path := t.TempDir()
	start := func() *supervisortest.Kit {
		k := supervisortest.New(t, messages.Pods, New(Options{Sources: []messages.Address{messages.File}, Board: board.New(),
			Dir: path})("pods"))
		k.RunWork()
		wants(k, messages.File, pod("job", "u1"))
		audit(k)
		return k
	}
	k := start()
	k.Take()
	k.Send(messages.PodAddress("u1"), messages.PodEnded{UID: "u1", Status: &v1.PodStatus{Phase: v1.PodSucceeded}})
	if early := sent[messages.PodWanted](k); len(early) != 0 {
		t.Fatalf("acknowledged before it was on disk: %+v", early)
	}
	k.RunWork()
	if got := sent[messages.PodWanted](k); len(got) != 1 || got[0].Final == nil || got[0].Final.Phase != v1.PodSucceeded {
		t.Fatalf("told %+v", got)
	}
	k = start()
	k.Take()
	k.Send(messages.PodAddress("u1"), messages.GetDesired{UID: "u1"})
	if got := sent[messages.PodWanted](k); len(got) != 1 || got[0].Final == nil {
		t.Errorf("after a restart: %+v", got)
	}
}

// A pod of a manifest that returns before its end is complete continues its restart counts. One that returns later starts at
// zero.
func TestAPodThatComesBackCountsOn(t *testing.T) {
	k := begin(t)
	audit(k)
	wants(k, other)
	status := &v1.PodStatus{Phase: v1.PodSucceeded, ContainerStatuses: []v1.ContainerStatus{
		{Name: "c", ContainerID: "x://1", RestartCount: 3, Ready: true}}}
	wants(k, messages.File, pod("web", "u"))
	wants(k, messages.File)
	wants(k, messages.File, pod("web", "u"))
	k.Take()
	gone(k, "u", status)
	k.Send(messages.PodAddress("u"), messages.GetDesired{UID: "u"})
	got := sent[messages.PodWanted](k)
	if len(got) == 0 || got[0].Last == nil || got[0].Last.ContainerStatuses[0].RestartCount != 3 ||
		got[0].Last.ContainerStatuses[0].Ready || got[0].Last.Phase != "" {
		t.Errorf("its actor is told %+v", got)
	}
	if n, err := testutil.GatherAndCount(metrics.Registry, "kubelet_restarted_pods_total"); err != nil || n == 0 {
		t.Errorf("it is not counted: %v", err)
	}
	wants(k, messages.File)
	gone(k, "u", status)
	wants(k, messages.File, pod("web", "u"))
	k.Take()
	k.Send(messages.PodAddress("u"), messages.GetDesired{UID: "u"})
	if got = sent[messages.PodWanted](k); len(got) == 0 || got[0].Last != nil {
		t.Errorf("later its actor is told %+v", got)
	}
}
