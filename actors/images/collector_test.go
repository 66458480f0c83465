package images_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/images"
	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// store is a simulated runtime with a file system for images of a size that the test sets.
type store struct {
	*cri.Client
	sim       *sim.Runtime
	available atomic.Int64 // of 100 MiB
	spaceErr  error
	config    string // the value of "config" in Status
	k         *supervisortest.Kit
	ops       *cri.Operations
	board     *board.Board
	minAge    time.Duration
}

func (s *store) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Info: map[string]string{"config": s.config}}, nil
}

const mi = 1 << 20

// collecting starts an actor with a simulated runtime that has these images, of 1 MiB each.
func collecting(t testing.TB, names ...string) *store {
	t.Helper()
	s := &store{ops: cri.NewOperations(), minAge: 2 * time.Minute}
	var err error
	s.sim, err = sim.Start(sim.Options{Socket: t.TempDir() + "/s"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.sim.Close)
	s.Client, err = cri.Dial(cri.Options{RuntimeEndpoint: s.sim.Endpoint(), Foreign: func(root string) bool { return root == "other" }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, s.Client.Close()) })
	for _, name := range names {
		s.pull(t, name)
	}
	s.available.Store(50 * mi)
	s.start(t)
	return s
}

func (s *store) start(t testing.TB) {
	s.k = supervisortest.New(t, messages.Images, images.New(images.Options{Service: s.Client, Operations: s.ops, Board: s.board, Collect: &images.Collect{
		Limits: images.Limits{High: 85, Low: 80, MinAge: s.minAge}, Store: s, NodeName: "n",
		Space: func(context.Context) (images.Space, error) {
			return images.Space{Available: s.available.Load(), Capacity: 100 * mi}, s.spaceErr
		},
	}})("images"))
	s.k.RunWork()
}

func (s *store) pull(t testing.TB, name string) string {
	t.Helper()
	id, err := s.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: name}, nil, nil)
	check(t, err)
	return id
}

// has returns the present ones of these images.
func (s *store) has(t *testing.T, names ...string) string {
	t.Helper()
	var out []string
	for _, name := range names {
		img, _, err := s.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: name}, false)
		check(t, err)
		if img != nil {
			out = append(out, name)
		}
	}
	return strings.Join(out, " ")
}

func expectText(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// events returns the reasons of the node's Events.
func (s *store) events() string {
	var out []string
	for _, m := range s.k.Take() {
		if e, ok := m.Msg.(messages.RecordEvent); ok && e.Object.Kind == "Node" {
			out = append(out, e.Reason)
		}
	}
	return strings.Join(out, " ")
}

func TestCollectsDownToTheLowThreshold(t *testing.T) {
	s := collecting(t, "a:1", "b:1", "c:1", "pause:3")
	s.config = `{"sandboxImage": "pause:3"}`
	s.available.Store(18 * mi) // 82 %: 2 MiB less would be the low threshold
	s.k.Advance(5 * time.Minute)
	s.k.RunWork()
	expectText(t, "below the high threshold", s.has(t, "a:1", "b:1", "c:1"), "a:1 b:1 c:1")
	s.available.Store(15 * mi)
	s.k.Send(messages.PodAddress("u"), messages.PullImage{Key: messages.ImageKey{UID: "u", Container: "c"}, Image: "a:1",
		Policy: v1.PullIfNotPresent})
	s.k.RunWork()
	s.k.Advance(5 * time.Minute)
	s.k.RunWork()
	expectText(t, "a pod is about to use one", s.has(t, "a:1", "b:1", "c:1", "pause:3"), "a:1 pause:3")
	expectText(t, "too little", s.events(), messages.EventFreeDiskSpaceFailed)
	s.k.Advance(5 * time.Minute)
	s.k.RunWork()
	expectText(t, "again", s.events(), messages.EventFreeDiskSpaceFailed+" "+messages.EventImageGCFailed)
	s.k.Send(messages.PodAddress("u"), messages.ForgetImages{UID: "u"})
	s.k.Advance(5 * time.Minute)
	s.k.RunWork()
	expectText(t, "the pod is gone", s.has(t, "a:1", "pause:3"), "pause:3")
}

func TestReclaimTellsWhatItBrought(t *testing.T) {
	s := collecting(t, "a:1", "b:1")
	s.k.Advance(3 * time.Minute)
	s.pull(t, "young:1")
	s.k.Take()
	s.k.Send(messages.Eviction, messages.ReclaimImages{})
	s.k.Send(messages.Eviction, messages.ReclaimImages{})
	s.k.RunWork()
	var got []any
	for _, m := range s.k.Take() {
		if r, ok := m.Msg.(messages.ImagesReclaimed); ok {
			got = append(got, r)
		}
	}
	if len(got) != 1 || got[0] != (messages.ImagesReclaimed{Freed: 2 * mi, Removed: 2}) {
		t.Errorf("%+v", got)
	}
	expectText(t, "left", s.has(t, "a:1", "b:1", "young:1"), "young:1")
	s.k.Send(messages.Eviction, messages.ReclaimImages{})
	s.k.RunWork()
	got = nil
	for _, m := range s.k.Take() {
		if r, ok := m.Msg.(messages.ImagesReclaimed); ok {
			got = append(got, r)
		}
	}
	if len(got) != 1 || got[0] != (messages.ImagesReclaimed{Shortfall: "images kept: 0 in use, 1 not here for long enough"}) {
		t.Errorf("of nothing that was removed: %+v", got)
	}
	s.spaceErr = errors.New("away")
	s.k.Send(messages.Eviction, messages.ReclaimImages{})
	s.k.RunWork()
	for _, m := range s.k.Take() {
		if r, ok := m.Msg.(messages.ImagesReclaimed); ok && r.Shortfall == "away" {
			return
		}
	}
	t.Error("a survey that failed is not told")
}

// An image that a pod requests during a collection is kept.
func TestAskedForBeforeItIsRemoved(t *testing.T) {
	s := collecting(t, "a:1", "b:1", "c:1")
	s.k.Advance(3 * time.Minute)
	s.k.Send(messages.Eviction, messages.ReclaimImages{})
	s.k.RunOne(s.k.Work[0]) // the survey: the first removal begins
	s.k.Work = s.k.Work[1:]
	removing := strings.TrimPrefix(s.k.Work[0].Name, "RemoveImage ")
	wanted := "a:1"
	if s.pull(t, wanted) == removing {
		wanted = "b:1"
	}
	s.k.Send(messages.PodAddress("u"), messages.PullImage{Key: messages.ImageKey{UID: "u", Container: "c"}, Image: wanted,
		Policy: v1.PullNever})
	s.k.Send(messages.PodAddress("u"), messages.ForgetImages{UID: "u"}) // the hold may outlast the need
	s.k.RunWork()
	expectText(t, "what is left", s.has(t, "a:1", "b:1", "c:1"), wanted)
}

// A pod that requests an image during its removal is answered after the removal, and the image is pulled again. The same holds
// after a restart of the actor that began the removal.
func TestAskedForWhatIsBeingRemoved(t *testing.T) {
	for _, restart := range []bool{false, true} {
		s := collecting(t, "a:1")
		s.k.Advance(3 * time.Minute)
		release := s.sim.Inject(sim.Fault{Call: "RemoveImage", Kind: sim.Hang})
		s.k.Send(messages.Eviction, messages.ReclaimImages{})
		s.k.RunOne(s.k.Work[0]) // the survey
		s.k.Work = s.k.Work[1:]
		done := make(chan struct{})
		if restart {
			go func() {
				_, err := s.ops.Do(context.Background(), "image/remove/"+"x", time.Minute, func(ctx context.Context) (any, error) {
					return nil, s.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: "a:1"})
				})
				check(t, err)
				close(done)
			}()
			if _, err := s.sim.WaitCall(t.Context(), func(e sim.Entry) bool { return e.Call == "RemoveImage" }); err != nil {
				t.Fatal(err)
			}
			s.k = supervisortest.New(t, messages.Images, images.New(images.Options{Service: s.Client, Operations: s.ops,
				Collect: &images.Collect{Store: s, Limits: images.Limits{High: 100}, Space: func(context.Context) (images.Space, error) {
					return images.Space{}, nil
				}}})("images"))
		}
		s.k.Send(messages.PodAddress("u"), messages.PullImage{Key: messages.ImageKey{UID: "u", Container: "c"}, Image: "a:1",
			Policy: v1.PullIfNotPresent})
		for _, w := range s.k.Work {
			if strings.HasPrefix(w.Name, "ImageStatus") {
				s.k.RunOne(w)
			}
		}
		if len(s.k.Take()) > 0 {
			t.Error("it is answered before the removal has ended")
		}
		if restart { // a list read during the removal may still have the image
			s.k.Send(messages.Eviction, messages.ReclaimImages{})
			for _, w := range s.k.Work {
				if strings.HasPrefix(w.Name, "survey") {
					t.Error("images are looked for while one is being removed")
				}
			}
		}
		for _, e := range s.sim.Calls("ImageStatus") {
			t.Errorf("it was looked for: %+v", e)
		}
		release()
		if restart {
			<-done
		}
		s.k.RunWork()
		pulled := false
		for _, m := range s.k.Take() {
			if p, ok := m.Msg.(messages.ImagePulled); ok {
				pulled = p.Pulled
			}
		}
		if !pulled || s.has(t, "a:1") != "a:1" {
			t.Errorf("restart %t: pulled %t", restart, pulled)
		}
	}
}

// Images of containers are kept, including dead containers and another agent's. The simulated runtime reports a
// removal as a violation.
func TestKeepsWhatContainersUse(t *testing.T) {
	for _, root := range []string{"", "other"} {
		keepsWhatContainersUse(t, map[string]string{cri.AnnotationRootDir: root}, "a:1")
	}
	keepsWhatContainersUse(t, map[string]string{cri.AnnotationImageVolumes: "x:1 b:1"}, "a:1 b:1")
}

func keepsWhatContainersUse(t *testing.T, marks map[string]string, want string) {
	t.Helper()
	s := collecting(t)
	id := s.pull(t, "a:1")
	s.pull(t, "b:1")
	meta := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u"}}
	sandbox, err := s.RunPodSandbox(t.Context(), meta, "")
	check(t, err)
	_, err = s.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: id},
		Annotations: marks,
	}, meta)
	check(t, err)
	s.k.Advance(5 * time.Minute)
	s.k.RunWork()
	s.k.Advance(5 * time.Minute)
	s.k.Send(messages.Eviction, messages.ReclaimImages{})
	s.k.RunWork()
	expectText(t, "left", s.has(t, "a:1", "b:1"), want)
	if v := s.sim.Violations(); len(v) > 0 {
		t.Error(v)
	}
}

// If the disk is short of space and images are too young, the next collection begins as soon as they are old enough.
func TestLooksAgainForYoungImages(t *testing.T) {
	s := collecting(t, "a:1")
	s.available.Store(0)
	s.pull(t, "b:1")
	s.k.Advance(5 * time.Minute)
	s.k.RunWork()
	expectText(t, "after five minutes", s.has(t, "a:1", "b:1"), "b:1")
	s.k.Advance(2 * time.Minute)
	s.k.RunWork()
	expectText(t, "after two more", s.has(t, "b:1"), "b:1")
	s.k.Advance(time.Second)
	s.k.RunWork()
	expectText(t, "old enough", s.has(t, "b:1"), "")
}

// A restarted actor does not have the leases of its predecessor. Until all pods are known, it removes nothing, not even on a
// person's request. After that, it keeps the images that pods run or will run.
func TestAnActorThatBeginsKeepsWhatPodsName(t *testing.T) {
	s := collecting(t, "init:1", "next:1", "debug:1", "files:1", "over:1", "done:1")
	s.available.Store(0)
	s.board, s.minAge = board.New(), 0
	s.start(t)
	pod := func(name, image string) board.Pod {
		return board.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(name)}, Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "c", Image: image}}}}}
	}
	starts, over := pod("starts", "next:1"), pod("over", "over:1")
	starts.Pod.Spec.InitContainers = []v1.Container{{Name: "done", Image: "done:1"}, {Name: "init", Image: "init:1"}}
	starts.Pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{
		Name: "debug", Image: "debug:1"}}}
	starts.Pod.Spec.Volumes = []v1.Volume{{Name: "files", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "files:1"}}}}
	starts.Pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "files"}}
	starts.Status = &v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{
		{Name: "done", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}, {Name: "init"}}}
	over.Phase = "finished"
	id := s.pull(t, "over:1")
	look := func(snapshot board.Snapshot) {
		t.Helper()
		snapshot.Pods, snapshot.Life = []board.Pod{starts, over}, s.k.Now()
		s.board.Publish(snapshot)
		s.k.Send(messages.Eviction, messages.ReclaimImages{})
		s.k.Advance(5 * time.Second)
		s.k.RunWork()
	}
	all := "init:1 next:1 debug:1 files:1 over:1 done:1"
	look(board.Snapshot{Unheard: []messages.Address{messages.Pods}, Audited: true})
	look(board.Snapshot{})
	expectText(t, "before all are known", s.has(t, strings.Fields(all)...), all)
	s.k.Send("ask", messages.RemoveImage{ID: id})
	s.k.RunWork()
	expectText(t, "asked for by a person", s.has(t, strings.Fields(all)...), all)
	look(board.Snapshot{Audited: true})
	expectText(t, "then", s.has(t, strings.Fields(all)...), "init:1 next:1 debug:1 files:1")
}

// The reply to a reclaim that freed nothing mentions the pulls in progress, since they take space.
func TestAReclaimNamesPullsUnderWay(t *testing.T) {
	s := collecting(t, "a:1")
	s.k.Send(messages.PodAddress("u"), messages.PullImage{Key: messages.ImageKey{UID: "u", Container: "c"}, Image: "b:1",
		Policy: v1.PullAlways})
	s.k.Send(messages.Eviction, messages.ReclaimImages{})
	for _, w := range s.k.Work { // the pull does not end
		if w.Name == "survey of images" {
			s.k.RunOne(w)
		}
	}
	for _, m := range s.k.Take() {
		if r, ok := m.Msg.(messages.ImagesReclaimed); ok {
			expectText(t, "why", r.Shortfall, "images kept: 0 in use, 1 not here for long enough; pulls under way, which take space, too: 1")
			return
		}
	}
	t.Error("the reclaim is not answered")
}
