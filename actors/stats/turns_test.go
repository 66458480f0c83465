package stats

import (
	"context"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/playlet-dev/playlet/messages"
)

// Any number of walks that do not end leave the places to others.
func TestActor_EndlessWalks_HoldUpNoOthers(t *testing.T) {
	r := newRig(t)
	var pods []*v1.Pod
	for i := range longWalks + walkers + urgentWalkers {
		pods = append(pods, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("endless", i)), Name: "p", Namespace: "evil"}})
	}
	hang := make(chan struct{})
	defer close(hang)
	kit := r.actor
	kit.Send(messages.Node, messages.MeasureUsage{Pods: pods})
	for _, p := range pods {
		began := make(chan struct{})
		w := r.usage.walk(p, func(*podWalk) { close(began); <-hang }, nil)
		go w.files.Get(context.Background()) //nolint:errcheck // the test's end
		<-began
		kit.Work = kit.Work[1:]
		kit.Send(messages.Stats, walkResult{p.UID, false})
	}
	if n := len(kit.Work); n != 0 {
		t.Fatalf("%d endless walks are begun again", n)
	}
	good := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "good", Name: "good", Namespace: "good"}}
	kit.Send(messages.Node, messages.MeasureUsage{Pods: append(pods, good)})
	kit.RunWork()
	if r.usage.of("good") == nil {
		t.Error("the pod beside endless ones is not measured")
	}
}

// The pods of a namespace with many wait while another one has none walked.
func TestActor_WalksNamespacesInTurn(t *testing.T) {
	r := newRig(t)
	var pods []*v1.Pod
	for i := range 5 {
		pods = append(pods, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("many", i)), Name: "p", Namespace: "many"}})
	}
	pods = append(pods, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "one", Name: "p", Namespace: "one"}})
	r.actor.Send(messages.Node, messages.MeasureUsage{Pods: pods})
	for range walkers {
		r.actor.RunOne(r.actor.Work[0])
		r.actor.Work = r.actor.Work[1:]
	}
	if r.usage.of("one") == nil {
		t.Error("the pod of the other namespace is not among the first")
	}
}

// Long walks take turns, the namespace with the fewest first, and one that hangs loses its place.
func TestTurns(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(begin)
	turns := newTurns(1, clock.Now)
	walks := map[string]*podWalk{}
	ctx, cancel := context.WithCancel(t.Context())
	passed := make(chan string, 9)
	wait := func(name, namespace string, waiting int) {
		t.Helper()
		if walks[name] == nil {
			walks[name] = &podWalk{namespace: namespace}
		}
		go func() {
			turns.pass(ctx, walks[name])
			passed <- name
		}()
		for {
			turns.mu.Lock()
			n := len(turns.waiting)
			turns.mu.Unlock()
			if n == waiting {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	expect := func(want string) {
		t.Helper()
		if got := <-passed; got != want {
			t.Fatalf("the turn is of %s, want %s", got, want)
		}
	}
	wait("a", "n", 0)
	expect("a")
	wait("b", "n", 1)
	turns.pass(ctx, walks["a"]) // its time is not over
	clock.SetTime(begin.Add(turnTime))
	wait("a", "n", 1)
	expect("b")
	clock.SetTime(begin.Add(turnTime + hangAge)) // b hangs
	turns.mu.Lock()
	turns.grant()
	turns.mu.Unlock()
	expect("a")
	wait("c", "n", 1)
	wait("d", "m", 2)
	turns.mu.Lock()
	turns.places = 2
	turns.grant()
	turns.mu.Unlock()
	expect("d")
	turns.leave(walks["a"])
	expect("c")
	wait("e", "n", 1)
	cancel()
	expect("e")
	if len(turns.waiting) != 0 {
		t.Error("a walk whose pod is gone waits")
	}
}
