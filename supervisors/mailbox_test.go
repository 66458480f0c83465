package supervisors

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/asynkron/protoactor-go/actor"
)

// recordingMailbox records the calls of its methods.
type recordingMailbox struct {
	mu   sync.Mutex
	seen []string
}

func (n *recordingMailbox) note(s string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen = append(n.seen, s)
}

func (n *recordingMailbox) PostUserMessage(m any)   { n.note(fmt.Sprint("user ", m)) }
func (n *recordingMailbox) PostSystemMessage(m any) { n.note(fmt.Sprint("system ", m)) }
func (n *recordingMailbox) RegisterHandlers(actor.MessageInvoker, actor.Dispatcher) {
	n.note("handlers")
}
func (n *recordingMailbox) Start()                { n.note("start") }
func (n *recordingMailbox) UserMessageCount() int { return 0 }

// A message for an actor that is registered, but not started, is handled after Started.
func TestMessagesWaitForTheSpawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &recordingMailbox{}
		g := newSpawnMailbox(inner)
		check := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if !slices.Equal(inner.seen, want) {
				t.Errorf("the mailbox saw %q, want %q", inner.seen, want)
			}
		}
		go g.PostUserMessage("early")
		check()
		g.RegisterHandlers(nil, nil)
		check("handlers")
		g.PostSystemMessage("started")
		check("handlers", "system started")
		g.Start()
		check("handlers", "system started", "start", "user early")
		g.PostUserMessage("late")
		check("handlers", "system started", "start", "user early", "user late")
	})
}

// An actor can receive messages as soon as its name is registered: the sender does not panic, and Started comes first.
// protoactor calls its initializers at that moment.
func TestSendingDuringASpawn(t *testing.T) {
	as := quietSystem()
	defer as.Shutdown()
	panicked, seen := make(chan any, 1), make(chan string, 9)
	pid := as.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		switch m := ctx.Message().(type) {
		case *actor.Started:
			seen <- "started"
		case string:
			seen <- m
		}
	}, actor.WithMailbox(func() actor.Mailbox { return newSpawnMailbox(actor.Unbounded()()) }), actor.WithOnInit(func(ctx actor.Context) {
		to := ctx.Self()
		go func() {
			defer func() { panicked <- recover() }()
			as.Root.Send(to, "early")
		}()
		for range 1000 {
			runtime.Gosched() // by now the sender, most likely, is at it
		}
	})))
	defer as.Root.Stop(pid)
	if p := <-panicked; p != nil {
		t.Fatalf("the sender panicked: %v", p)
	}
	if first, second := <-seen, <-seen; first != "started" || second != "early" {
		t.Errorf("the actor was told %q, then %q", first, second)
	}
}
