package events

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

type rig struct {
	*supervisortest.Kit
	client *fake.Clientset
	make   supervisors.Constructor
	actor  supervisors.Actor
	state  *State
}

func newRig(t *testing.T) *rig {
	t.Helper()
	client := fake.NewClientset()
	state := &State{}
	construct := New(Options{Client: client.CoreV1(), NodeName: "node1", State: state, Random: func() float64 { return 0 }})
	r := &rig{client: client, make: construct, actor: construct("events"), state: state}
	r.Kit = supervisortest.New(t, messages.Events, r.actor)
	return r
}

// fails has every request of this verb answered with the error, until it is taken back.
func (r *rig) fails(verb string, err error) (again func()) {
	on := true
	r.client.PrependReactor(verb, "events", func(clienttesting.Action) (bool, runtime.Object, error) { return on, nil, err })
	return func() { on = false }
}

func (r *rig) events(t *testing.T) map[string]int32 {
	t.Helper()
	list, err := r.client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int32{}
	for _, e := range list.Items {
		out[e.InvolvedObject.Name+" "+e.Reason] += e.Count
	}
	return out
}

func (r *rig) inspection() Inspection {
	in, _ := r.actor.(supervisors.Inspector).Inspect().(Inspection)
	return in
}

// While pods wait for the runtime, Events wait, for a known time, and none is lost.
func TestEvents_Yield(t *testing.T) {
	busy := true
	r := newRig(t)
	r.actor.(*actor).opts.Busy = func() bool { return busy }
	written := func(when, want string) {
		t.Helper()
		if r.RunWork(); fmt.Sprint(r.events(t)) != want {
			t.Errorf("%s there are %v, want %s", when, r.events(t), want)
		}
	}
	r.RunWork() // the start of the agent is written before
	r.Send(messages.PodAddress("u"), said("web", "a"))
	written("while it is busy", "map[node1 Starting:1]")
	r.Advance(yieldFor - time.Second)
	written("shortly before the end", "map[node1 Starting:1]")
	r.Advance(time.Second)
	written("at the end", "map[node1 Starting:1 web BackOff:1]")
	r.Send(messages.PodAddress("u"), said("db", "b"))
	written("while it is busy again", "map[node1 Starting:1 web BackOff:1]")
	busy = false
	r.Advance(yieldPause)
	written("afterwards", "map[db BackOff:1 node1 Starting:1 web BackOff:1]")
	busy = true
	for i := range maxWaiting + 1 {
		r.Send(messages.PodAddress("u"), said(fmt.Sprint("pod-", i), "c"))
	}
	if r.RunWork(); r.inspection().Dropped > 0 || r.inspection().Waiting == 0 || r.inspection().Waiting > maxWaiting/2 {
		t.Errorf("after many more: got %+v, want none dropped, and at most half of the queue", r.inspection())
	}
}

func TestEventsAreWritten(t *testing.T) {
	r := newRig(t)
	for range 3 {
		r.Send(messages.PodAddress("u"), said("web", "again"))
		r.RunWork()
	}
	if got := r.events(t); fmt.Sprint(got) != "map[node1 Starting:1 web BackOff:3]" {
		t.Errorf("there are %v", got)
	}
	if in := r.inspection(); in.Written != 4 || in.Waiting != 0 || in.Recorded != 4 {
		t.Errorf("it says %+v", in)
	}
	second := supervisortest.New(t, messages.Events, r.make("events"))
	if second.RunWork(); r.events(t)["node1 Starting"] != 1 {
		t.Error("an actor that was restarted says that the agent was started")
	}
}

// The status of an error decides whether a write is retried.
func TestWhatTheServerRefusesIsDropped(t *testing.T) {
	group := schema.GroupResource{Resource: "events"}
	ending := apierrors.NewForbidden(group, "x", errors.New("it is being terminated"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: v1.NamespaceTerminatingCause}}
	for _, c := range []struct {
		err   error
		again bool
	}{
		{ending, false},
		{apierrors.NewForbidden(group, "x", errors.New("no")), false},
		{apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "gone"), false},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, "x", nil), false},
		{apierrors.NewBadRequest("what"), false},
		{apierrors.NewUnauthorized("who"), true},
		{apierrors.NewTooManyRequests("wait", 1), true},
		{apierrors.NewInternalError(errors.New("ouch")), true},
		{apierrors.NewServiceUnavailable("not now"), true},
		{apierrors.NewTimeoutError("slow", 1), true},
		{apierrors.NewGenericServerResponse(http.StatusBadGateway, "create", group, "x", "", 0, true), true},
		{errors.New("dial tcp: connection refused"), true},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			r := newRig(t)
			again := r.fails("create", c.err)
			r.Send(messages.Pods, said("web", "hello"))
			r.RunWork()
			in := r.inspection()
			if waits := in.Waiting > 0; waits != c.again || (in.Refused > 0) == c.again || (in.Trouble != "") != c.again {
				t.Fatalf("it says %+v", in)
			}
			// A node without the permission is also reported.
			if sent := len(r.state.Problems()) > 0; sent != (c.again || apierrors.IsForbidden(c.err) && c.err != error(ending)) {
				t.Errorf("health says %q", r.state.Problems())
			}
			again()
			r.Advance(time.Minute)
			r.Send(messages.Pods, said("other", "hello"))
			r.RunWork()
			if p := r.state.Problems(); len(p) > 0 {
				t.Errorf("health says %q later", p)
			}
			if got := r.events(t); (got["web BackOff"] == 1) != c.again {
				t.Errorf("there are %v", got)
			}
		})
	}
}

// A report of refused events expires, unless a later write replaces it. A restarted actor does not report it.
func TestARefusalIsOldNewsInTheEnd(t *testing.T) {
	r := newRig(t)
	r.fails("create", apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "x", errors.New("no")))
	refused := func(pod string) {
		r.Send(messages.Pods, said(pod, "hello"))
		r.RunWork()
	}
	refused("web")
	r.Advance(refusalLogged - time.Minute)
	refused("other")
	r.Advance(refusalLogged - time.Minute)
	if p := r.state.Problems(); len(p) != 1 {
		t.Errorf("health says %q, of what was refused last", p)
	}
	r.Advance(2 * time.Minute)
	if p := r.state.Problems(); len(p) > 0 {
		t.Errorf("health says %q, of what is long ago", p)
	}
	refused("third")
	supervisortest.New(t, messages.Events, r.make("events"))
	if p := r.state.Problems(); len(p) > 0 {
		t.Errorf("health says %q, of an actor that is no more", p)
	}
}

// Where all that waited has expired nothing is in trouble any more.
func TestTroubleEndsWithWhatWaited(t *testing.T) {
	r := newRig(t)
	r.fails("create", errors.New("dial tcp: connection refused"))
	r.Send(messages.Pods, said("web", "hello"))
	r.RunWork()
	r.Send(messages.Events, refusalExpired{}) // of a refusal before, and late
	if p := r.state.Problems(); len(p) != 1 {
		t.Fatalf("health says %q", p)
	}
	for range 2 * expiry / time.Minute {
		r.Advance(time.Minute)
		r.RunWork()
	}
	if p, in := r.state.Problems(), r.inspection(); len(p) > 0 || in.Trouble != "" || in.Waiting > 0 {
		t.Errorf("health says %q, the actor %+v", p, in)
	}
}

// An Event that has expired there is made again, with its count.
func TestAnEventThatIsGoneIsMadeAgain(t *testing.T) {
	r := newRig(t)
	r.Send(messages.Pods, said("web", "hello"))
	r.RunWork()
	if err := r.client.Tracker().Delete(v1.SchemeGroupVersion.WithResource("events"), "default",
		nameOf(t, r, "web")); err != nil {
		t.Fatal(err)
	}
	r.Send(messages.Pods, said("web", "hello"))
	r.RunWork()
	if got := r.events(t); got["web BackOff"] != 2 {
		t.Errorf("there are %v", got)
	}
}

// The answer to a creation was lost, and the same happened again meanwhile: the Event is found, and counted.
func TestALostAnswerMakesNoSecondEvent(t *testing.T) {
	r := newRig(t)
	r.RunWork()
	lost := true
	r.client.PrependReactor("create", "events", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if !lost {
			return false, nil, nil
		}
		lost = false
		if err := r.client.Tracker().Add(a.(clienttesting.CreateAction).GetObject()); err != nil {
			t.Error(err)
		}
		return true, nil, errors.New("unexpected EOF")
	})
	r.Send(messages.Pods, said("web", "hello"))
	r.Send(messages.Pods, said("web", "hello"))
	r.RunWork()
	r.Advance(time.Minute)
	r.RunWork()
	if got := r.events(t); got["web BackOff"] != 2 {
		t.Errorf("there are %v", got)
	}
	if in := r.inspection(); in.Waiting != 0 || in.Refused != 0 {
		t.Errorf("it says %+v", in)
	}
}

// While the server is gone one try is made at a time, and not for each event that comes.
func TestAServerThatIsGoneIsLeftAlone(t *testing.T) {
	r := newRig(t)
	tries := 0
	r.client.PrependReactor("*", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		tries++
		return true, nil, errors.New("connection refused")
	})
	for i := range 50 {
		r.Send(messages.Pods, said(fmt.Sprint("pod", i), "hello"))
		r.RunWork()
	}
	if tries != 1 {
		t.Errorf("it was tried %d times", tries)
	}
	r.Advance(10 * time.Minute)
	r.RunWork()
	if in := r.inspection(); in.Waiting != 51 || in.RetryAt == nil {
		t.Errorf("it says %+v", in)
	}
}

func nameOf(t *testing.T, r *rig, object string) string {
	t.Helper()
	list, err := r.client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.InvolvedObject.Name == object {
			return e.Name
		}
	}
	t.Fatalf("no event of %s", object)
	return ""
}

func TestEvents_AtStart(t *testing.T) {
	r, looked := newRig(t), 0
	construct := New(Options{Client: r.client.CoreV1(), NodeName: "node1", State: r.state, Random: func() float64 { return 0 },
		AtStart: func() []messages.RecordEvent {
			looked++
			return []messages.RecordEvent{messages.NodeEvent("node1", v1.EventTypeWarning, "CgroupV1", "old", time.Unix(1, 0))}
		}})
	for range 2 { // the second actor is a restart
		r.Kit = supervisortest.New(t, messages.Events, construct("events"))
		r.RunWork()
		r.RunWork()
	}
	if got := r.events(t); got["node1 CgroupV1"] != 1 || looked != 1 {
		t.Errorf("there are %v after %d looks, want one of each", got, looked)
	}
}
