package pods

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/actors/internal/overdue"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// stuck is a disk on which every write hangs until it is freed. It is in memory: the speed of a real one does not matter.
type stuck struct {
	t     *testing.T
	board *board.Board
	begun atomic.Int32
	free  func()
	kind  supervisors.Constructor

	mu      sync.Mutex
	records map[string]record // of the last write
}

func newStuck(t *testing.T) *stuck {
	t.Helper()
	s := &stuck{t: t, board: board.New()}
	back := make(chan struct{})
	s.free = sync.OnceFunc(func() { close(back) })
	t.Cleanup(s.free)
	files := newStore(t.TempDir())
	files.writing = overdue.NewWriter("records", time.Millisecond, func(records map[string]record) error {
		s.begun.Add(1)
		<-back
		s.mu.Lock()
		defer s.mu.Unlock()
		s.records = records
		return nil
	})
	s.kind = newWith(Options{
		Sources: []messages.Address{messages.File, messages.APIServer}, Cluster: true, Board: s.board, LocalNode: small(),
	}, files)
	return s
}

// life begins another life of the actor, with these jobs in a folder of manifests.
func (s *stuck) life(jobs ...string) *node {
	n := &node{Kit: supervisortest.New(s.t, messages.Pods, s.kind("pods")), board: s.board}
	n.RunWork()
	n.known()
	var pods []*v1.Pod
	for _, uid := range jobs {
		pods = append(pods, static(pod(uid, uid)))
	}
	wants(n.Kit, messages.File, pods...)
	n.RunWork()
	n.Take()
	return n
}

// settles frees the disk, and sweeps until all is written.
func (s *stuck) settles(n *node) {
	s.t.Helper()
	s.free()
	for end := time.Now().Add(time.Minute); len(s.board.Now().Unwritten) > 0; {
		if time.Now().After(end) {
			s.t.Fatalf("it is not written: %v", s.board.Now().Unwritten)
		}
		n.Advance(sweepEvery)
		n.RunWork()
		n.Advance(time.Second)
	}
}

// kept returns the finished pods that are on disk.
func (s *stuck) kept() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.records))
}

func finishes(n *node, uid string) {
	n.Send(messages.PodAddress(uid), messages.PodEnded{UID: uid, Status: &v1.PodStatus{Phase: v1.PodSucceeded}})
}

// No pod waits for a write that hangs: a deleted pod is removed, as with a full disk. The end of one that finished by itself is
// not confirmed before it is recorded. Health names the write, and no other is started beside it.
func TestADiskThatHangs(t *testing.T) {
	s := newStuck(t)
	n := s.life("job")
	wants(n.Kit, messages.APIServer, deletedPod("web", "web", 5))
	n.Take()
	finishes(n, "job")
	finishes(n, "web")
	n.RunWork()
	if w := sent[messages.PodWanted](n.Kit); len(w) != 1 || w[0].Pod.UID != "web" || w[0].Final == nil || w[0].Unkept {
		t.Fatalf("told %+v", w)
	}
	n.Advance(time.Second)
	now := s.board.Now().Unwritten
	if len(now) != 1 ||
		!strings.HasPrefix(now[0], "what became of pods cannot be kept on the disk: records: it is being written since ") {
		t.Errorf("health is told %v", now)
	}
	finishes(n, "job")
	n.RunWork()
	n.Advance(sweepEvery)
	n.RunWork()
	for _, w := range sent[messages.PodWanted](n.Kit) {
		if w.Pod.UID == "job" && (w.Final == nil || !w.Unkept) {
			t.Errorf("it is not kept, and told is %+v", w)
		}
	}
	if begun := s.begun.Load(); begun > 1 { // it may not have begun yet
		t.Errorf("%d writes were begun", begun)
	}
	over := func() map[string]bool {
		all := sent[messages.KeepContainers](n.Kit)
		return all[len(all)-1].Over
	}
	n.Advance(sweepEvery)
	if got := over(); len(got) != 0 {
		t.Errorf("the runtime may forget %v, of which nothing is on disk", got)
	}
	s.settles(n)
	if got := over(); !got["job"] || got["web"] {
		t.Errorf("the runtime may forget %v, want the finished pod", got)
	}
	if w := n.desired("job"); w.Final == nil || w.Unkept {
		t.Errorf("it is kept, and told is %+v", w)
	}
	if got := s.kept(); !slices.Equal(got, []string{"job", "web"}) {
		t.Errorf("kept are %v", got)
	}
}

// A life of the actor continues with the pending writes of the one before. Writes in progress reach the disk neither beside nor
// after the new ones.
func TestWritesOutliveTheActor(t *testing.T) {
	s := newStuck(t)
	n := s.life("a", "b", "c", "d")
	finishes(n, "a")
	n.RunWork()
	finishes(n, "b")
	finishes(n, "d")
	late := n.Work // begun after the end of the actor

	n = s.life("a", "b", "c", "d")
	for _, uid := range []string{"a", "b", "d"} {
		if w := n.desired(uid); w.Final == nil || !w.Unkept {
			t.Errorf("that %s had finished is forgotten, or believed to be on the disk: %+v", uid, w)
		}
	}
	n.RunWork()
	n.Advance(time.Second)
	if len(s.board.Now().Unwritten) == 0 {
		t.Error("health is not told that it is still being written")
	}
	finishes(n, "c")
	n.RunWork()
	s.settles(n)
	for _, w := range late {
		w.Run(t.Context())
	}
	if got := s.kept(); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("kept are %v", got)
	}
}

// No critical pod waits for a disk that hangs; the victim is on disk when the disk recovers.
func TestAPreemptionWhereTheDiskHangs(t *testing.T) {
	s := newStuck(t)
	n := s.life()
	wants(n.Kit, messages.APIServer, crowded()[:2]...)
	wants(n.Kit, messages.APIServer, crowded()...)
	if n.desired("bb").Fail == nil {
		t.Error("it is not ended")
	}
	n.Advance(time.Second)
	now := s.board.Now().Unwritten
	if len(now) != 1 || !strings.HasPrefix(now[0], "what became of pods cannot be kept on the disk: records: it is being written") {
		t.Errorf("health is told %v", now)
	}
	s.settles(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records["bb"].Fail == nil || s.records["bb"].Fail.Reason != messages.ReasonPreempting {
		t.Errorf("the disk has %v", s.records)
	}
}

// TestFinalStatus_FullDisk: the runtime may forget a finished pod whose record does not fit on the disk, as its containers may
// fill the disk. Another failure to write frees nothing. A status that the API server has needs no record.
func TestFinalStatus_FullDisk(t *testing.T) {
	for name, test := range map[string]struct {
		problem  error
		reported bool
		over     bool
	}{
		"full":                {problem: fmt.Errorf("%w: x", atomicfile.ErrNoSpace), over: true},
		"broken":              {problem: errors.New("input/output error")},
		"broken and reported": {problem: errors.New("input/output error"), reported: true, over: true},
	} {
		t.Run(name, func(t *testing.T) {
			files := newStore(t.TempDir())
			files.writing = overdue.NewWriter("records", time.Minute, func(records map[string]record) error {
				failed := filesError{uids: map[string]bool{}, last: test.problem}
				for uid := range records {
					failed.uids[uid] = true
				}
				return &failed
			})
			s := &stuck{t: t, board: board.New()}
			s.kind = newWith(Options{
				Sources: []messages.Address{messages.File, messages.APIServer}, Cluster: true, Board: s.board, LocalNode: small(),
			}, files)
			n := s.life()
			running := pod("web", "web")
			wants(n.Kit, messages.APIServer, running)
			n.RunWork()
			finishes(n, "web")
			if test.reported {
				ended := running.DeepCopy()
				ended.Status.Phase = v1.PodSucceeded
				wants(n.Kit, messages.APIServer, ended)
			}
			n.RunWork()
			if test.reported {
				n.Advance(sweepEvery)
			}
			all := sent[messages.KeepContainers](n.Kit)
			if over := len(all) > 0 && all[len(all)-1].Over["web"]; over != test.over {
				t.Errorf("the runtime may forget the pod: %v, want %v", over, test.over)
			}
		})
	}
}
