package runtime

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stream is a scripted source of events, on the subscription's goroutine.
type stream struct {
	mu      sync.Mutex
	opens   int
	opened  func()
	event   func(*runtimeapi.ContainerEventResponse)
	end     chan error
	arrived chan struct{}
	ours    string // the ID of a container that this process ends
}

func newStream() *stream { return &stream{end: make(chan error), arrived: make(chan struct{})} }

func (s *stream) GetContainerEvents(ctx context.Context, opened func(), event func(*runtimeapi.ContainerEventResponse)) error {
	s.mu.Lock()
	s.opens++
	s.opened, s.event = opened, event
	s.mu.Unlock()
	select {
	case s.arrived <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-s.end:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *stream) Ends(id string, _ bool) bool { return s.ours == id }

func stopped(uid string) *runtimeapi.ContainerEventResponse {
	return &runtimeapi.ContainerEventResponse{
		ContainerId: "c-" + uid, ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{Labels: podLabels(uid, "")},
	}
}

// subscribe waits for the first batch, which reports the open subscription.
func subscribe(t *testing.T, e *Events, s *stream) {
	t.Helper()
	got := make(chan Batch)
	go func() { got <- e.Wait(context.Background()) }()
	<-s.arrived
	s.opened()
	if b := <-got; !b.Opened || b.Ended != nil {
		t.Fatalf("%+v", b)
	}
}

func TestEventsAreCoalesced(t *testing.T) {
	s := newStream()
	e := NewEvents(s, slog.New(slog.DiscardHandler))
	defer e.Close()
	if e.Subscribed() {
		t.Error("stands before it began")
	}
	subscribe(t, e, s)
	if !e.Subscribed() {
		t.Error("does not stand")
	}
	started := stopped("v")
	started.ContainerEventType = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	created := stopped("v")
	created.ContainerEventType = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	foreign := stopped("v")
	foreign.PodSandboxStatus.Labels = nil
	deleted := &runtimeapi.ContainerEventResponse{
		ContainerId: "gone", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT,
	}
	for _, ev := range []*runtimeapi.ContainerEventResponse{stopped("w"), started, created, foreign, stopped("u"), deleted,
		stopped("w"), nil} {
		s.event(ev)
	}
	got := e.Wait(context.Background())
	want := Batch{Expected: true, Pods: []string{"u", "w"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// The actors of a pod know of an end that the agent called for. It is no reason to read the pod.
func TestEvents_OwnEnds(t *testing.T) {
	s := newStream()
	e := NewEvents(s, slog.New(slog.DiscardHandler))
	defer e.Close()
	subscribe(t, e, s)
	removed := stopped("u")
	removed.ContainerEventType = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
	for _, ev := range []*runtimeapi.ContainerEventResponse{stopped("u"), removed} {
		s.ours = ev.ContainerId
		s.event(ev)
		if b := e.Wait(t.Context()); !b.Expected || len(b.Pods) > 0 {
			t.Errorf("%s: got %+v", ev.ContainerEventType, b)
		}
		s.ours = "another"
		s.event(ev)
		if b := e.Wait(t.Context()); b.Expected || !reflect.DeepEqual(b.Pods, []string{"u"}) {
			t.Errorf("%s of another: got %+v", ev.ContainerEventType, b)
		}
	}
}

func TestEventsWakeWhoWaits(t *testing.T) {
	s := newStream()
	e := NewEvents(s, slog.New(slog.DiscardHandler))
	defer e.Close()
	subscribe(t, e, s)
	got := make(chan Batch)
	go func() { got <- e.Wait(context.Background()) }()
	s.event(stopped("u"))
	if b := <-got; !reflect.DeepEqual(b.Pods, []string{"u"}) {
		t.Errorf("%+v", b)
	}
}

func TestEventsOutliveWhoWaited(t *testing.T) {
	s := newStream()
	e := NewEvents(s, slog.New(slog.DiscardHandler))
	defer e.Close()
	subscribe(t, e, s)
	s.event(stopped("u"))
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if b := e.Wait(over); !reflect.DeepEqual(b, Batch{}) {
		t.Errorf("one whose time is over took %+v", b)
	}
	if b := e.Wait(context.Background()); !reflect.DeepEqual(b.Pods, []string{"u"}) {
		t.Errorf("%+v", b)
	}
	if s.opens != 1 {
		t.Errorf("%d subscriptions", s.opens)
	}
}

func TestEventsBeginAgainAfterTheirEnd(t *testing.T) {
	s := newStream()
	e := NewEvents(s, slog.New(slog.DiscardHandler))
	defer e.Close()
	subscribe(t, e, s)
	broken := errors.New("broken")
	s.event(stopped("u"))
	s.end <- broken
	b := e.Wait(context.Background())
	if b.Ended == nil { // the event came first; the end follows
		if !reflect.DeepEqual(b.Pods, []string{"u"}) {
			t.Fatalf("%+v", b)
		}
		b = e.Wait(context.Background())
	}
	if !errors.Is(b.Ended, broken) || e.Subscribed() {
		t.Fatalf("%+v", b)
	}
	subscribe(t, e, s)
	if s.opens != 2 {
		t.Errorf("%d subscriptions", s.opens)
	}
}

func TestEventsClosed(t *testing.T) {
	s := newStream()
	e := NewEvents(s, slog.New(slog.DiscardHandler))
	subscribe(t, e, s)
	e.Close()
	e.Close()
	for range 2 {
		if b := e.Wait(context.Background()); b.Ended == nil {
			t.Errorf("%+v", b)
		}
	}
}

// A panic in the subscription's goroutine ends the subscription, and no more. The next wait begins another.
func TestAPanicEndsTheSubscriptionAlone(t *testing.T) {
	s := &panics{stream: newStream(), times: 1}
	e := NewEvents(s, slog.New(slog.DiscardHandler))
	defer e.Close()
	b := e.Wait(context.Background())
	if b.Ended == nil { // its start came first; the end follows
		b = e.Wait(context.Background())
	}
	if b.Ended == nil || e.Subscribed() {
		t.Fatalf("%+v", b)
	}
	subscribe(t, e, s.stream)
}

// panics is a source of events that panics a few times.
type panics struct {
	*stream
	times int
}

func (p *panics) GetContainerEvents(ctx context.Context, opened func(), event func(*runtimeapi.ContainerEventResponse)) error {
	if p.times--; p.times >= 0 {
		opened()
		panic("broken")
	}
	return p.stream.GetContainerEvents(ctx, opened, event)
}

// A killed actor may still wait alongside its successor: its wake-up is passed on.
func TestASuccessorIsWokenBesideItsPredecessor(t *testing.T) {
	s := newStream()
	e := NewEvents(s, slog.New(slog.DiscardHandler))
	defer e.Close()
	subscribe(t, e, s)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the woken goroutine must not run at once
	for range 20 {
		over, cancel := context.WithCancel(context.Background())
		old, next := make(chan Batch, 1), make(chan Batch, 1)
		go func() { old <- e.Wait(over) }()
		for range 100 {
			runtime.Gosched() // until it waits
		}
		go func() { next <- e.Wait(context.Background()) }()
		for range 100 {
			runtime.Gosched()
		}
		s.event(stopped("u"))
		cancel()
		if b := <-old; len(b.Pods) > 0 {
			s.event(stopped("u")) // the killed actor took it in time: the successor gets the next event
		}
		select {
		case <-next:
		case <-time.After(waitLimit):
			t.Fatal("the successor sleeps")
		}
	}
}

const waitLimit = time.Minute
