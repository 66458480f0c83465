package registration

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// until waits for a word of the watch.
func until(t *testing.T, w *Watch, ok func(Observation) bool) Observation {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // reached only when it hangs
	defer cancel()
	for s := (Observation{}); ; {
		next := w.Next(ctx, s.Version)
		if ok(next) {
			return next
		}
		if ctx.Err() != nil {
			t.Fatalf("it is not told; the last word is %+v", next)
		}
		s = next
	}
}

func TestTheWatch(t *testing.T) {
	api := fake.NewClientset()
	w := NewWatch(api, "node", slog.New(slog.DiscardHandler))
	defer w.Close()
	until(t, w, func(s Observation) bool { return s.Heard > 0 && s.Node == nil && s.Err == nil })
	if _, err := api.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, w, func(s Observation) bool { return s.Node != nil && s.Node.Name == "node" })
	if err := api.CoreV1().Nodes().Delete(t.Context(), "node", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, w, func(s Observation) bool { return s.Heard > 0 && s.Node == nil })
	for _, a := range api.Actions() { // an agent may ask for no other
		fields := ""
		switch a := a.(type) {
		case clienttesting.ListAction:
			fields = a.GetListRestrictions().Fields.String()
		case clienttesting.WatchAction:
			fields = a.GetWatchRestrictions().Fields.String()
		default:
			continue
		}
		if fields != "metadata.name=node" {
			t.Errorf("%s asks for %q", a.GetVerb(), fields)
		}
	}
}

// A gap in the watch causes a new list. Failures are reported, and the known Node stays.
func TestTheWatchBeginsAnew(t *testing.T) {
	api := fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{"at": "first"}}})
	streams := make(chan *watch.FakeWatcher, 1)
	api.PrependWatchReactor("nodes", func(clienttesting.Action) (bool, watch.Interface, error) {
		stream := watch.NewFake()
		streams <- stream
		return true, stream, nil
	})
	w := NewWatch(api, "node", slog.New(slog.DiscardHandler))
	defer w.Close()
	until(t, w, func(s Observation) bool { return s.Node != nil && s.Node.Labels["at"] == "first" })
	first := <-streams
	if _, err := api.CoreV1().Nodes().Update(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node",
		Labels: map[string]string{"at": "second"}}}, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	first.Error(&metav1.Status{Code: 410, Reason: metav1.StatusReasonExpired})
	until(t, w, func(s Observation) bool { return s.Node.Labels["at"] == "second" })
	second := <-streams
	away := errors.New("the server is away")
	failing := make(chan struct{})
	api.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		select {
		case <-failing:
			return false, nil, nil
		default:
			return true, nil, away
		}
	})
	second.Stop()
	if s := until(t, w, func(s Observation) bool { return s.Err != nil }); !errors.Is(s.Err, away) || s.Node == nil {
		t.Errorf("%+v", s)
	}
	close(failing)
	until(t, w, func(s Observation) bool { return s.Err == nil && s.Node != nil })
	<-streams
}

// A panic in the watch's goroutine is an error of the watch, which begins again.
func TestTheWatchOutlivesAPanic(t *testing.T) {
	api, times := fake.NewClientset(), 0
	api.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if times++; times == 1 {
			panic("broken")
		}
		return false, nil, nil
	})
	w := NewWatch(api, "node", slog.New(slog.DiscardHandler))
	defer w.Close()
	until(t, w, func(s Observation) bool { return s.Err != nil })
	until(t, w, func(s Observation) bool { return s.Heard > 0 && s.Err == nil })
}
