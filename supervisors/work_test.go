package supervisors

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/playlet-dev/playlet/messages"
)

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startWorker runs a tree of one actor, and stops it at the end of the test.
func startWorker(t *testing.T, chaos Interceptor, receive func(ctx Context, msg any)) (*System, *logBuffer) {
	t.Helper()
	log := &logBuffer{}
	s, err := Start(Options{
		Tree: &Row{Kind: "node", Strategy: lenient, Children: []Row{{Kind: "worker", Strategy: lenient}}},
		Constructors: map[Kind]Constructor{"node": func(string) Actor { return &probe{func(Context, any) {}} },
			"worker": func(string) Actor { return &probe{receive} }},
		Log: slog.New(slog.NewTextHandler(log, nil)), Interceptor: chaos,
	})
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
	return s, log
}

type dropEverything struct{}

func (dropEverything) Before(Delivery) Verdict { return Verdict{Effect: Drop} }
func (dropEverything) After(Delivery) Verdict  { return Verdict{} }

// Messages of an actor to itself can only be lost with the actor: they are never sent again.
func TestUndroppable_ResultsTimersAndFirstMessage(t *testing.T) {
	type result struct{}
	type tick struct{}
	in := newInbox()
	s, _ := startWorker(t, dropEverything{}, func(ctx Context, msg any) {
		in.put(addressedMessage{ctx.Self(), msg})
		switch msg.(type) {
		case messages.Started:
			ctx.Do(Work{Name: "w", Timeout: time.Minute, Run: func(context.Context) any { return result{} }})
		case result:
			ctx.After(time.Millisecond, tick{})
		}
	})
	in.await(t, 1, "starts", is[messages.Started]("worker"))
	s.Tell("worker", ping{})
	in.await(t, 1, "ticks", is[tick]("worker"))
	if n := in.count(is[ping]("worker")); n != 0 {
		t.Error("the message from outside was not dropped")
	}
}

func TestWorkLogsAsItsActor(t *testing.T) {
	in := newInbox()
	_, log := startWorker(t, nil, func(ctx Context, msg any) {
		in.put(addressedMessage{ctx.Self(), msg})
		if _, ok := msg.(messages.Started); ok {
			ctx.Do(Work{Name: "w", Timeout: time.Minute,
				Run: func(c context.Context) any { LogOf(c).Info("at work"); return ping{} }})
		}
	})
	in.await(t, 1, "results", is[ping]("worker"))
	if got := log.String(); !strings.Contains(got, `msg="at work" actor=worker flow=`) {
		t.Errorf("the log says %q", got)
	}
}

// A panic in work is logged even when its actor has ended, and no actor can fail because of it.
func TestWorkPanic_IsReportedAfterTheActorEnds(t *testing.T) {
	in, release := newInbox(), make(chan struct{})
	s, log := startWorker(t, nil, func(ctx Context, msg any) {
		in.put(addressedMessage{ctx.Self(), msg})
		switch msg.(type) {
		case ping:
			ctx.Do(Work{Name: "late", Timeout: time.Minute, Run: func(context.Context) any { <-release; panic("too late") }})
			panic("boom")
		default:
		}
	})
	in.await(t, 1, "starts", is[messages.Started]("worker"))
	s.Tell("worker", ping{})
	in.await(t, 2, "starts", is[messages.Started]("worker"))
	close(release)
	for s.Counters.Stale.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	if got := log.String(); !strings.Contains(got, `msg="panic in work"`) || !strings.Contains(got, "too late") {
		t.Errorf("the log says %q", got)
	}
}

// Work, its calls and its result make a chain; routine work leaves its calls out.
func TestWorkAndItsCallsAreRecorded(t *testing.T) {
	in := newInbox()
	s, _ := startWorker(t, nil, func(ctx Context, msg any) {
		in.put(addressedMessage{ctx.Self(), msg})
		switch msg.(type) {
		case messages.ReadPod:
			for _, name := range []string{"read", "probe"} {
				ctx.Do(Work{Name: name, Timeout: time.Minute, Routine: name == "probe", Run: func(c context.Context) any {
					c = context.WithoutCancel(c) // as in an operation, which outlives its caller
					RecordCall(c, Call{To: messages.Runtime, Name: "PodSandboxStatus", Digest: name, Asked: time.Now(), Began: time.Now(), Took: time.Second})
					return ping{}
				}})
			}
		default:
		}
	})
	in.await(t, 1, "starts", is[messages.Started]("worker"))
	RecordCall(t.Context(), Call{Name: "of nobody's work"})
	s.Tell("worker", messages.ReadPod{UID: "u"})
	in.await(t, 2, "results", is[ping]("worker"))
	s.Kill("worker", "the recorder outlives it")
	in.await(t, 2, "starts", is[messages.Started]("worker"))
	by := map[string]Entry{}
	for _, e := range s.Recorder().Last("u") {
		by[e.Message+e.Digest] = e
	}
	asked, work, call := by["ReadPod"], by["read"], by["PodSandboxStatusread"]
	if work.Cause != asked.ID || call.Cause != work.ID || call.Kind != OfCall || work.Kind != OfWork || call.Took != time.Second ||
		call.From != "worker" || call.To != messages.Runtime || asked.ID == 0 {
		t.Errorf("asked %v\nwork %v\ncall %v", asked, work, call)
	}
	if e, there := by["PodSandboxStatusprobe"]; there {
		t.Errorf("a call of routine work: %v", e)
	}
	if r, there := by["ping"]; !there || by["probe"].ID != r.Cause && work.ID != r.Cause {
		t.Errorf("the result is %v", r)
	}
}

// Work belongs to the story of its pod, whichever actor started it, and its time counts from the end of its wait.
func TestWorkIsOfItsPod(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(1000, 0))
	done := make(chan struct{}, 3)
	root := &probe{func(ctx Context, msg any) {
		switch msg.(type) {
		case ping:
			for _, pod := range []string{"u", ""} {
				ctx.Do(Work{Name: "for " + pod, Pod: pod, Timeout: time.Minute, Run: func(c context.Context) any {
					RecordCall(c, Call{To: messages.Runtime, Name: "X"})
					if pod != "" {
						clock.Step(time.Second)
						Awaited(c)
						clock.Step(time.Millisecond)
					}
					return pong{}
				}})
			}
		case pong:
			done <- struct{}{}
		}
	}}
	s, err := Start(Options{Tree: &Row{Kind: "node", Strategy: lenient}, Clock: clock,
		Constructors: map[Kind]Constructor{"node": func(string) Actor { return root }}})
	if err != nil {
		t.Fatal(err)
	}
	s.Tell("", ping{})
	<-done
	<-done
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	for _, e := range s.Recorder().Last("") {
		if e.Message == "for u" && (e.Flow.Pod != "u" || !e.Sent.Equal(time.Unix(1001, 0)) || e.Took != time.Millisecond) ||
			e.Message == "for " && e.Flow.Pod != "" {
			t.Errorf("%+v", e)
		}
	}
	if got := s.Recorder().Last("u"); len(got) != 4 { // ping, the work, its call and its result
		t.Errorf("%v", got)
	}
}

type pong struct{}

// A stop hook runs once for each life of the actor, and work that waits ends with it.
func TestOnStop(t *testing.T) {
	var mu sync.Mutex
	stops, ends := 0, 0
	lives := make(chan struct{}, 9)
	count := func(n *int) {
		mu.Lock()
		defer mu.Unlock()
		*n++
	}
	s, log := startWorker(t, nil, func(ctx Context, msg any) {
		switch msg.(type) {
		case messages.Started:
			ctx.OnStop(func() { count(&stops); panic("in the hook") })
			ctx.Do(Work{Name: "Wait", Waits: true, Run: func(ctx context.Context) any {
				<-ctx.Done()
				count(&ends)
				return "over"
			}})
			lives <- struct{}{}
		case string:
			panic("on purpose")
		}
	})
	<-lives
	s.Tell("worker", "fall")
	<-lives // the next life begins when the hooks and work of the first have ended
	mu.Lock()
	defer mu.Unlock()
	if stops != 1 || ends != 1 {
		t.Errorf("got %d calls of the stop hook and %d ends of work after a panic, want one of each", stops, ends)
	}
	if !strings.Contains(log.String(), "panic in a stop hook") {
		t.Error("the panic of the hook is not logged")
	}
}

func TestWork_Check(t *testing.T) {
	run := func(context.Context) any { return 0 }
	for _, c := range []struct {
		work Work
		ok   bool
	}{
		{Work{Timeout: 1, Run: run}, true}, {Work{Waits: true, Run: run}, true}, {Work{Run: run}, false},
		{Work{Timeout: 1, Waits: true, Run: run}, false}, {Work{Timeout: -1, Run: run}, false}, {Work{Timeout: 1}, false},
	} {
		panicked := func() (yes bool) {
			defer func() { yes = recover() != nil }()
			c.work.Check()
			return false
		}()
		if panicked == c.ok {
			t.Errorf("%+v: got accepted %v, want %v", c.work, !panicked, c.ok)
		}
	}
}
