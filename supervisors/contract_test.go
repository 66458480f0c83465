package supervisors

import (
	"log/slog"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// These tests hold the properties of protoactor that this package relies on. An upgrade that changes one fails here.

func quietSystem() *actor.ActorSystem {
	return actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
}

// watcher reports Terminated and lets the test decide about failures.
type watcher struct {
	child    *actor.Props
	spawned  chan *actor.PID
	ended    chan *actor.PID
	failures chan any
}

func (w *watcher) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		pid, err := ctx.SpawnNamed(w.child, "kid")
		if err != nil {
			panic(err)
		}
		w.spawned <- pid
	case *actor.Terminated:
		w.ended <- m.Who
	case string:
		_, err := ctx.SpawnNamed(w.child, "kid")
		ctx.Respond(err == nil)
	}
}

func (w *watcher) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics,
	reason any, _ any) {
	w.failures <- reason
	sup.StopChildren(child)
}

func TestProtoactor_ParentLearnsOfEndOnce(t *testing.T) {
	as := quietSystem()
	defer as.Shutdown()
	child := actor.PropsFromFunc(func(ctx actor.Context) {
		if _, ok := ctx.Message().(string); ok {
			panic("fall")
		}
	})
	w := &watcher{child: child, spawned: make(chan *actor.PID, 4), ended: make(chan *actor.PID, 4), failures: make(chan any, 4)}
	parent, err := as.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return w }), "parent")
	if err != nil {
		t.Fatal(err)
	}
	kid := <-w.spawned
	if kid.Id != "parent/kid" {
		t.Errorf("the child's ID is %q", kid.Id)
	}
	as.Root.Send(kid, "x")
	if r := <-w.failures; r != "fall" {
		t.Errorf("reason %v", r)
	}
	if who := <-w.ended; who.Id != kid.Id {
		t.Errorf("ended: %v", who)
	}
	// The name is free now.
	ok, err := as.Root.RequestFuture(parent, "again", 5*time.Second).Result()
	if err != nil || ok != true {
		t.Errorf("the name was not free after Terminated: %v %v", ok, err)
	}
	<-time.After(0)
	if n := len(w.ended); n != 0 {
		t.Errorf("%d further Terminated", n)
	}
	stopAndWait(t, as, parent)
}

func TestProtoactor_OrderedDeliveryUntilStopped(t *testing.T) {
	as := quietSystem()
	defer as.Shutdown()
	var got []int
	seen := make(chan struct{})
	pid := as.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		if n, ok := ctx.Message().(int); ok {
			got = append(got, n)
			if n == 99 {
				close(seen)
			}
		}
	}))
	for i := range 100 {
		as.Root.Send(pid, i)
	}
	<-seen
	for i, n := range got {
		if i != n {
			t.Fatalf("message %d came as number %d", n, i)
		}
	}
	stopAndWait(t, as, pid)
}

func TestProtoactorStopIsHandledBySuspendedActors(t *testing.T) {
	as := quietSystem()
	defer as.Shutdown()
	w := &watcher{
		child:   actor.PropsFromFunc(func(ctx actor.Context) { panicOnString(ctx) }),
		spawned: make(chan *actor.PID, 1), ended: make(chan *actor.PID, 1), failures: make(chan any, 1),
	}
	parent, err := as.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return w }), "p2")
	if err != nil {
		t.Fatal(err)
	}
	as.Root.Send(<-w.spawned, "x") // its mailbox is suspended by the failure, and it still stops
	<-w.failures
	<-w.ended
	stopAndWait(t, as, parent)
}

func panicOnString(ctx actor.Context) {
	if _, ok := ctx.Message().(string); ok {
		panic("x")
	}
}

func stopAndWait(t *testing.T, as *actor.ActorSystem, pid *actor.PID) {
	t.Helper()
	if err := as.Root.StopFuture(pid).Wait(); err != nil {
		t.Errorf("stopping: %v", err)
	}
}
