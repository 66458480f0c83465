package supervisors

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/playlet-dev/playlet/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// probe is an actor with a behaviour written by a test.
type probe struct{ receive func(ctx Context, msg any) }

func (p *probe) Receive(ctx Context, msg any) { p.receive(ctx, msg) }

func (p *probe) Inspect() any { return "detail" }

// inbox collects the reports of test actors, and waits for them.
type inbox struct {
	mu   sync.Mutex
	got  []any
	more chan struct{}
}

func newInbox() *inbox { return &inbox{more: make(chan struct{}, 1)} }

func (i *inbox) put(v any) {
	i.mu.Lock()
	i.got = append(i.got, v)
	i.mu.Unlock()
	select {
	case i.more <- struct{}{}:
	default:
	}
}

func (i *inbox) count(match func(any) bool) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := 0
	for _, v := range i.got {
		if match(v) {
			n++
		}
	}
	return n
}

// await waits until n collected values match.
func (i *inbox) await(t *testing.T, n int, what string, match func(any) bool) {
	t.Helper()
	deadline := time.After(5 * time.Minute)
	for i.count(match) < n {
		select {
		case <-i.more:
		case <-deadline:
			t.Fatalf("%d of %d %s came", i.count(match), n, what)
		}
	}
}

type ping struct{}
type boom struct{}
type addressedMessage struct {
	actor messages.Address
	msg   any
}

// family is a small tree: a root, a static service, and a keeper of dynamic children.
func family(then Outcome, panics int) *Row {
	return &Row{Kind: "node", Strategy: Strategy{Panics: 3, Within: time.Minute, Then: Escalate}, Children: []Row{
		{Kind: "service", Clients: []messages.Address{"keeper"},
			Strategy: Strategy{Panics: 100, Within: time.Minute, Then: Escalate}},
		{Kind: "keeper", Strategy: Strategy{Panics: 3, Within: time.Minute, Then: Escalate}, Children: []Row{
			{Kind: "kid", Dynamic: true, Strategy: Strategy{Panics: panics, Within: time.Minute, Then: then}},
		}},
	}}
}

// startFamily runs the tree. Every actor reports its messages and panics on boom; the keeper spawns the kids a and b.
func startFamily(t *testing.T, tree *Row, in *inbox, fatal func(error), more func(ctx Context, msg any) bool) *System {
	t.Helper()
	make := func(string) Actor {
		return &probe{func(ctx Context, msg any) {
			in.put(addressedMessage{ctx.Self(), msg})
			if more != nil && more(ctx, msg) {
				return
			}
			switch msg.(type) {
			case messages.Started:
				if ctx.Self() == "keeper" {
					ctx.Spawn("a")
					ctx.Spawn("b")
				}
			case boom:
				panic("boom")
			case ping:
				ctx.Reply("pong from " + ctx.Self().String())
			}
		}}
	}
	s, err := Start(Options{Tree: tree, Constructors: map[Kind]Constructor{"node": make, "service": make, "keeper": make,
		"kid": make}, Fatal: fatal})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return s
}

func is[T any](actor messages.Address) func(any) bool {
	return func(v any) bool {
		n, ok := v.(addressedMessage)
		if !ok || n.actor != actor {
			return false
		}
		_, ok = n.msg.(T)
		return ok
	}
}

func ask(t *testing.T, s *System, to messages.Address) any {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	answer, err := s.Ask(ctx, to, ping{})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// Whoever asks for a service as soon as the tree is started finds it.
func TestServicesAreThereWhenTheTreeIsStarted(t *testing.T) {
	s := startFamily(t, family(Escalate, 3), newInbox(), nil, func(ctx Context, msg any) bool {
		if _, ok := msg.(messages.Started); ok && ctx.Self() == messages.Node {
			time.Sleep(10 * time.Millisecond) // the root is slow, and spawns them then
		}
		return false
	})
	if s.KindOf("service") == "" || ask(t, s, "service") != "pong from service" {
		t.Error("a service is not there")
	}
}

func TestAPanicRestartsTheActorUnderItsName(t *testing.T) {
	in := newInbox()
	s := startFamily(t, family(Escalate, 5), in, nil, nil)
	in.await(t, 1, "starts of a", is[messages.Started]("keeper/a"))
	in.await(t, 1, "starts of b", is[messages.Started]("keeper/b"))
	s.Tell("keeper/a", boom{})
	in.await(t, 2, "starts of a", is[messages.Started]("keeper/a"))
	in.await(t, 1, "words to the keeper that a started again", func(v any) bool {
		n, ok := v.(addressedMessage)
		c, isStart := n.msg.(messages.ChildStarted)
		return ok && isStart && n.actor == "keeper" && c.Name == "a" && c.Again
	})
	if got := ask(t, s, "keeper/a"); got != "pong from keeper/a" {
		t.Errorf("the restarted actor answered %v", got)
	}
	if n := in.count(is[messages.Started]("keeper/b")); n != 1 {
		t.Errorf("its sibling started %d times", n)
	}
}

func TestARestartedServiceIsAnnouncedToItsClients(t *testing.T) {
	in := newInbox()
	s := startFamily(t, family(Escalate, 5), in, nil, nil)
	in.await(t, 1, "starts of the service", is[messages.Started]("service"))
	in.await(t, 1, "starts of the keeper", is[messages.Started]("keeper"))
	s.Tell("service", boom{})
	in.await(t, 2, "starts of the service", is[messages.Started]("service"))
	in.await(t, 1, "announcements", is[messages.ServiceStarted]("keeper"))
}

func TestPanics_QuarantineOneChildAlone(t *testing.T) {
	in := newInbox()
	s := startFamily(t, family(Quarantine, 2), in, nil, nil)
	for i := 1; i <= 3; i++ {
		in.await(t, i, "starts of a", is[messages.Started]("keeper/a"))
		s.Tell("keeper/a", boom{})
	}
	in.await(t, 1, "starts of b", is[messages.Started]("keeper/b"))
	in.await(t, 1, "words of the quarantine", is[messages.ChildQuarantined]("keeper"))
	q, ok := s.Quarantined()["keeper/a"]
	if !ok || q.Reason != "boom" {
		t.Errorf("quarantined: %v", s.Quarantined())
	}
	if got := ask(t, s, "keeper/b"); got != "pong from keeper/b" {
		t.Errorf("its sibling answered %v", got)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	var none *ErrNoAnswer
	if _, err := s.Ask(ctx, "keeper/a", ping{}); !errors.As(err, &none) || none.Actor != "keeper/a" {
		t.Errorf("asking the quarantined actor: %v", err)
	}
}

func TestEscalationEndsAtTheRoot(t *testing.T) {
	in, fatal := newInbox(), make(chan error, 1)
	s := startFamily(t, family(Escalate, 0), in, func(err error) { fatal <- err }, nil)
	done := make(chan struct{})
	go func() { // each panic of the kid escalates to the keeper; the keeper's fourth ends the root
		defer close(done)
		for i := 1; i <= 4; i++ {
			in.await(t, i, "starts of a", is[messages.Started]("keeper/a"))
			s.Tell("keeper/a", boom{})
		}
	}()
	select {
	case err := <-fatal:
		if !strings.Contains(err.Error(), "keeper") {
			t.Errorf("the reason does not name who fell: %v", err)
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("the root did not give up")
	}
	<-done
}

func TestEarlierLife_ResultsAndTimersAreDropped(t *testing.T) {
	in, release := newInbox(), make(chan struct{})
	type late struct{}
	s := startFamily(t, family(Escalate, 5), in, nil, func(ctx Context, msg any) bool {
		if _, ok := msg.(ping); ok && ctx.Self() == "keeper/a" {
			ctx.Do(Work{Name: "slow", Timeout: time.Minute, Run: func(context.Context) any { <-release; return late{} }})
			return false
		}
		return false
	})
	in.await(t, 1, "starts of a", is[messages.Started]("keeper/a"))
	ask(t, s, "keeper/a")
	s.Tell("keeper/a", boom{})
	// The worker ignores its context, so the restart waits its grace for it and goes on without it.
	in.await(t, 2, "starts of a", is[messages.Started]("keeper/a"))
	close(release)
	for s.Counters.Stale.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	if n := in.count(is[late]("keeper/a")); n != 0 {
		t.Errorf("the late result arrived %d times", n)
	}
}

func TestWorkPanic_RestartsTheActor(t *testing.T) {
	in := newInbox()
	s := startFamily(t, family(Escalate, 5), in, nil, func(ctx Context, msg any) bool {
		if _, ok := msg.(ping); ok && ctx.Self() == "keeper/a" {
			ctx.Do(Work{Name: "broken", Timeout: time.Minute, Run: func(context.Context) any { panic("in work") }})
		}
		return false
	})
	in.await(t, 1, "starts of a", is[messages.Started]("keeper/a"))
	s.Tell("keeper/a", ping{})
	in.await(t, 2, "starts of a", is[messages.Started]("keeper/a"))
}

func TestStopFreesTheName(t *testing.T) {
	in := newInbox()
	s := startFamily(t, family(Escalate, 5), in, nil, func(ctx Context, msg any) bool {
		switch msg.(type) {
		case ping:
			if ctx.Self() == "keeper" {
				ctx.Stop("a")
			}
		case messages.ChildStopped:
			ctx.Spawn("a")
		}
		return false
	})
	in.await(t, 1, "starts of a", is[messages.Started]("keeper/a"))
	in.await(t, 1, "starts of the keeper", is[messages.Started]("keeper"))
	ask(t, s, "keeper")
	in.await(t, 2, "starts of a", is[messages.Started]("keeper/a"))
	if got := ask(t, s, "keeper/a"); got != "pong from keeper/a" {
		t.Errorf("answered %v", got)
	}
}

func TestFlowAndCauseFollowMessagesResultsAndTimers(t *testing.T) {
	in := newInbox()
	type result struct{}
	type tick struct{}
	s := startFamily(t, family(Escalate, 5), in, nil, func(ctx Context, msg any) bool {
		if ctx.Self() != "keeper/a" {
			return false
		}
		switch msg.(type) {
		case messages.ReadPod:
			ctx.Do(Work{Name: "w", Timeout: time.Minute, Run: func(context.Context) any { return result{} }})
		case result:
			ctx.After(time.Millisecond, tick{})
		case tick:
			ctx.Tell("keeper/b", ping{})
		}
		return false
	})
	in.await(t, 1, "starts of b", is[messages.Started]("keeper/b"))
	s.Tell("keeper/a", messages.ReadPod{UID: "u1"})
	in.await(t, 1, "pings at b", is[ping]("keeper/b"))
	for _, a := range []messages.Address{"keeper/a", "keeper/b"} {
		ask(t, s, a) // a barrier: earlier messages have been recorded
	}
	story := s.Recorder().Last("u1")
	// A message may be handled, and recorded, before the handling of its cause has ended.
	slices.SortFunc(story, func(a, b Entry) int { return cmp.Compare(a.ID, b.ID) })
	if len(story) < 4 {
		t.Fatalf("the pod's story has %d entries: %v", len(story), story)
	}
	for i, e := range story[:4] {
		if e.Flow != story[0].Flow {
			t.Errorf("entry %d has flow %v, the first %v", i, e.Flow, story[0].Flow)
		}
		if i > 0 && e.Cause != story[i-1].ID {
			t.Errorf("entry %d (%s) has cause %d, the one before has ID %d", i, e.Message, e.Cause, story[i-1].ID)
		}
	}
}

func TestInspectionIsAnsweredByEveryActor(t *testing.T) {
	in := newInbox()
	s := startFamily(t, family(Escalate, 5), in, nil, nil)
	in.await(t, 1, "starts of b", is[messages.Started]("keeper/b"))
	for _, a := range s.Actors() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		answer, err := s.Ask(ctx, a, messages.GetInspection{})
		cancel()
		i, ok := answer.(messages.Inspection)
		if err != nil || !ok || i.Path != a.String() || i.Detail != "detail" {
			t.Errorf("%s: %+v, %v", a, answer, err)
		}
	}
}

func TestARowWithoutAConstructorIsFound(t *testing.T) {
	_, err := Start(Options{Tree: family(Escalate, 1), Constructors: map[Kind]Constructor{"node": nil, "keeper": nil,
		"service": nil}})
	if err == nil || !strings.Contains(err.Error(), "keeper/kid") {
		t.Errorf("error: %v", err)
	}
}

func TestInterceptor_DropsMessagesAndKillsActors(t *testing.T) {
	in := newInbox()
	s := startFamily(t, family(Escalate, 5), in, nil, nil)
	in.await(t, 1, "starts of a", is[messages.Started]("keeper/a"))
	s.Kill("keeper/a", "test")
	in.await(t, 2, "starts of a", is[messages.Started]("keeper/a"))
}
