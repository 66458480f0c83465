package container

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/hooks"
	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/actors/internal/host/hosttest"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// drainingContainer is a running container with a pre-stop hook that counts its runs and ends when it is released.
type drainingContainer struct {
	h       *host.Host
	r       *sim.Runtime
	stop    messages.StopContainer
	begun   chan struct{}
	release chan struct{}
}

func newDraining(t *testing.T) *drainingContainer {
	d := &drainingContainer{begun: make(chan struct{}, 10), release: make(chan struct{})}
	d.h, d.r = hosttest.Simulated(t, sim.Options{Preload: []string{"image"}, Script: sim.Script{
		Exec: func(ctx context.Context, _ sim.Target, _ []string) sim.ExecResult {
			d.begun <- struct{}{}
			select {
			case <-d.release:
			case <-ctx.Done():
			}
			return sim.ExecResult{}
		},
	}})
	d.stop = hooked(t, d.h, command("drain"))
	return d
}

func (d *drainingContainer) actor(t *testing.T) *supervisortest.Kit {
	return supervisortest.New(t, "pods/u1/c", New(d.h)("c"))
}

// asks sends a StopContainer to the actor, runs its work, and returns its messages to the pod.
func (d *drainingContainer) asks(k *supervisortest.Kit, hookOnly bool) string {
	m := d.stop
	m.HookOnly = hookOnly
	k.Send("pods/u1", m)
	k.RunWork()
	return sent(k)
}

// The hook runs on request, and the signal waits. The stop that follows does not run the hook again, whether it reaches the
// same actor, a restarted actor, or another agent.
func TestPreStop_RunsOnceBeforeTheTurn(t *testing.T) {
	for name, next := range map[string]func(d *drainingContainer, k *supervisortest.Kit) *supervisortest.Kit{
		"the same actor":    func(_ *drainingContainer, k *supervisortest.Kit) *supervisortest.Kit { return k },
		"a restarted actor": func(d *drainingContainer, _ *supervisortest.Kit) *supervisortest.Kit { return d.actor(t) },
		"a restarted agent": func(d *drainingContainer, _ *supervisortest.Kit) *supervisortest.Kit {
			d.h.Ops = cri.NewOperations()
			return d.actor(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDraining(t)
			close(d.release)
			k := d.actor(t)
			for range 2 { // a repeated request
				if got := d.asks(k, true); got != "" || len(d.begun) != 1 || len(d.r.Calls("StopContainer")) != 0 {
					t.Fatalf("before its turn: told %q, %d hooks, %d stops", got, len(d.begun), len(d.r.Calls("StopContainer")))
				}
			}
			k = next(d, k)
			if got := d.asks(k, false); got != "ended" || len(d.begun) != 1 || len(d.r.Calls("StopContainer")) != 1 {
				t.Errorf("at its turn: told %q, %d hooks, %d stops", got, len(d.begun), len(d.r.Calls("StopContainer")))
			}
		})
	}
}

// A container that ends while it waits for its turn has ended.
func TestAContainerEndsBeforeItsTurn(t *testing.T) {
	d := newDraining(t)
	close(d.release)
	k := d.actor(t)
	d.asks(k, true)
	over := d.stop.Fact
	over.State = messages.ContainerExited
	k.Send("pods/u1", adopting(messages.RunContainer{Pod: d.stop.Pod}, over))
	if got := sent(k); got != "ended" {
		t.Errorf("it told %q", got)
	}
}

// The container's turn may come while the hook runs: the stop waits for the hook before it sends the signal.
func TestTheTurnComesWhileTheHookRuns(t *testing.T) {
	d := newDraining(t)
	hook, end := make(chan bool, 1), make(chan stopResult, 1)
	go func() { hook <- hooks.PreStop(context.Background(), d.h, d.stop, d.h.NewGrace(d.stop.Grace)).Failed }()
	<-d.begun
	go func() { end <- stop(context.Background(), d.h, d.stop) }()
	for d.h.Ops.Waiting(host.PreStopKey(d.stop.UID, d.stop.Fact.ID)) < 2 {
		time.Sleep(time.Millisecond)
	}
	close(d.release)
	if <-hook {
		t.Error("the hook failed")
	}
	if done := <-end; done.failed != nil || done.hook.Failed || len(d.begun) != 0 || len(d.r.Calls("StopContainer")) != 1 {
		t.Errorf("%+v, %d more hooks, %d stops", done, len(d.begun), len(d.r.Calls("StopContainer")))
	}
}

// A stop waits for a hook for the shortest grace period requested, and only once. The hook runs on until its container ends.
func TestAHookOutlivesTheGracePeriod(t *testing.T) {
	d := newDraining(t)
	d.stop.Grace = time.Hour
	hook := make(chan bool, 1)
	go func() { hook <- hooks.PreStop(context.Background(), d.h, d.stop, d.h.NewGrace(d.stop.Grace)).Failed }()
	<-d.begun
	shorter := d.stop
	shorter.Grace = time.Millisecond
	if !hooks.PreStop(t.Context(), d.h, shorter, d.h.NewGrace(shorter.Grace)).Failed {
		t.Error("a hook that has not ended in its time has not failed")
	}
	if hooks.PreStop(t.Context(), d.h, d.stop, d.h.NewGrace(d.stop.Grace)).Failed {
		t.Error("a hook that has used its time up has failed again")
	}
	if n := d.h.Ops.Waiting(host.PreStopKey(d.stop.UID, d.stop.Fact.ID)); n != 1 {
		t.Errorf("%d callers wait for the hook, want the first one", n)
	}
	k := d.actor(t)
	over := d.stop.Fact
	over.State = messages.ContainerExited
	k.Send("pods/u1", adopting(messages.RunContainer{Pod: d.stop.Pod}, over))
	<-hook // its grace period is an hour
}

// The end of a container also ends its pre-stop hook: after the hook has used up the grace period, and while a sidecar waits for
// its turn.
func TestTheEndOfTheContainerEndsItsHook(t *testing.T) {
	for _, sidecar := range []bool{false, true} {
		t.Run(fmt.Sprint(sidecar), func(t *testing.T) {
			var log bytes.Buffer
			was := slog.Default()
			slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
			defer slog.SetDefault(was)
			h, _ := hosttest.Simulated(t, sim.Options{Preload: []string{"image"}, Script: sim.Script{
				Default: sim.Sequence{{Term: sim.Term{Ignore: true}}},
				Exec: func(context.Context, sim.Target, []string) sim.ExecResult {
					return sim.ExecResult{Takes: time.Hour}
				},
			}})
			m := hooked(t, h, command("drain"))
			m.Grace = 10 * time.Millisecond
			waits := make(chan bool, 1)
			if sidecar {
				waiting := m
				waiting.Grace, m.NoHook = time.Hour, true
				go func() { waits <- hooks.PreStop(context.Background(), h, waiting, h.NewGrace(waiting.Grace)).Failed }()
				for len(h.Ops.InFlight(host.PreStopKey(m.UID, m.Fact.ID))) == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			if done := stop(t.Context(), h, m); done.failed != nil || done.fact.ExitCode != 137 || done.hook.Failed == sidecar {
				t.Fatalf("got %+v", done)
			}
			if sidecar {
				<-waits
			}
			if err := h.Ops.Settle(t.Context(), host.PreStopKey(m.UID, m.Fact.ID)); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(log.String(), "the command ended with code 137") {
				t.Errorf("the hook was not ended with its container: %s", log.String())
			}
		})
	}
}

// A container with a running post-start hook waits for its turn like any other when its pod ends. The interrupted hook does not
// stop it.
func TestPostStart_CutOffEndsNothing(t *testing.T) {
	r, s := hanging(t)
	k := r.actor()
	k.Send("pods/u1", r.desired)
	k.RunOne(k.Work[0])
	fact := reported(k)
	hook := k.Work[1]
	k.Work = nil
	ended := make(chan any, 1)
	go func() { ended <- hook.Run(t.Context()) }()
	<-s.asked
	k.Send("pods/u1", messages.StopContainer{UID: "u1", Name: "c", Fact: fact, Pod: r.desired.Pod, Spec: r.desired.Container,
		Grace: time.Hour, HookOnly: true})
	k.Send("pods/u1/c", <-ended)
	k.RunWork()
	if got := sent(k); got != "" || len(r.r.Calls("StopContainer")) != 0 {
		t.Errorf("it told %q, and stopped %d times", got, len(r.r.Calls("StopContainer")))
	}
}

// A hook that a frozen runtime has not begun gets its grace period once the runtime answers again. Only then comes the signal.
func TestPreStop_KeepsGraceAfterRuntimeOutage(t *testing.T) {
	d := newDraining(t)
	d.stop.Grace = 5 * time.Second
	thaw := d.r.Inject(sim.Fault{Kind: sim.Hang, Times: -1})
	end := make(chan stopResult, 1)
	go func() { end <- stop(context.Background(), d.h, d.stop) }()
	// The period is over when the runtime is asked whether it is away, or the container is stopped.
	if _, err := d.r.WaitCall(t.Context(), func(e sim.Entry) bool { return e.Call == "Version" || e.Call == "StopContainer" }); err != nil {
		t.Fatal(err)
	}
	time.Sleep(d.stop.Grace / 2) // so that the runtime counts as away
	thaw()
	<-d.begun
	close(d.release)
	if done := <-end; done.failed != nil || done.hook.Failed {
		t.Errorf("got %+v, want a hook that ended in time", done)
	}
	hook, stops := d.r.Calls("ExecSync"), d.r.Calls("StopContainer")
	if len(hook) != 1 || len(stops) != 1 || stops[0].Seq < hook[0].EndSeq {
		t.Errorf("hook %+v, stops %+v, want one stop after the hook", hook, stops)
	}
}
