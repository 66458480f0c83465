package container

import (
	"context"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/hooks"
	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/actors/internal/host/hosttest"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// hookRig is a container with a post-start hook, on a runtime where the hook exits with code.
type hookRig struct {
	t       *testing.T
	h       *host.Host
	r       *sim.Runtime
	code    int32
	runs    int
	desired messages.RunContainer
}

func newHookRig(t *testing.T) *hookRig {
	rig := &hookRig{t: t}
	rig.h, rig.r = hosttest.Simulated(t, sim.Options{Preload: []string{"image"}, Script: sim.Script{
		Exec: func(context.Context, sim.Target, []string) sim.ExecResult {
			rig.runs++
			return sim.ExecResult{Code: rig.code}
		},
	}})
	pod := podOf(v1.Container{Name: "c", Image: "image", Lifecycle: &v1.Lifecycle{PostStart: command("greet")}})
	rig.desired = messages.RunContainer{Pod: pod, Container: &pod.Spec.Containers[0], ImageRef: "image",
		Sandbox: sandbox(t, rig.h, pod, 0), Generation: 1}
	return rig
}

func (r *hookRig) actor() *supervisortest.Kit {
	return supervisortest.New(r.t, "pods/u1/c", New(r.h)("c"))
}

// sent returns the kinds of the reports to the pod, in order, and "ended" if the actor has exited with its container.
func sent(k *supervisortest.Kit) string {
	var out []string
	for _, m := range k.Take() {
		if m, ok := m.Msg.(messages.ContainerReported); ok {
			switch {
			case m.Failed != nil:
				out = append(out, "failed: "+m.Failed.String())
			case m.StopFailed != "":
				out = append(out, "unstopped")
			case m.HookFailed != "":
				out = append(out, "hooking failed")
			case m.Stage == messages.StageHooking:
				out = append(out, "hooking")
			default:
				out = append(out, "started")
			}
		}
	}
	for range k.Exited {
		out = append(out, "ended")
	}
	return strings.Join(out, " ")
}

// adopting returns w with fact as the container to adopt.
func adopting(w messages.RunContainer, fact messages.ContainerFact) messages.RunContainer {
	w.Adopt = &fact
	return w
}

// reported returns the container of the first report.
func reported(k *supervisortest.Kit) messages.ContainerFact {
	return *k.Take()[0].Msg.(messages.ContainerReported).Fact // the first message is a report
}

func TestPostStart_RunsOnceBeforeStarted(t *testing.T) {
	r := newHookRig(t)
	k := r.actor()
	k.Send("pods/u1", r.desired)
	k.RunOne(k.Work[0])
	if got := sent(k); got != "hooking" {
		t.Errorf("before the hook has ended: %s", got)
	}
	k.Send("pods/u1", r.desired)
	if got := sent(k); got != "hooking" {
		t.Errorf("asked again: %s", got)
	}
	k.Work = k.Work[1:]
	k.RunWork()
	k.Send("pods/u1", r.desired)
	if got := sent(k); got != "started started" || r.runs != 1 {
		t.Errorf("after it: %s, %d runs", got, r.runs)
	}
	if _, err := os.Stat(pendingPath(r.h, r.desired)); !os.IsNotExist(err) {
		t.Errorf("the note is left: %v", err)
	}
}

// A failed hook stops the container.
func TestAFailedPostStartHookEndsTheContainer(t *testing.T) {
	r := newHookRig(t)
	r.code = 1
	k := r.actor()
	k.Send("pods/u1", r.desired)
	k.RunWork()
	if got := sent(k); got != "hooking hooking failed ended" || len(r.r.Calls("StopContainer")) != 1 {
		t.Errorf("it told %s, and stopped %d times", got, len(r.r.Calls("StopContainer")))
	}
}

// An agent may die after a hook failed and before it has stopped the container. The next agent stops the container without
// running the hook again.
func TestPostStart_FailureOutlivesTheActor(t *testing.T) {
	r := newHookRig(t)
	r.code = 1
	k := r.actor()
	k.Send("pods/u1", r.desired)
	k.RunOne(k.Work[0])
	k.RunOne(k.Work[1]) // the hook; the stop is not run
	fact := reported(k)

	k = r.actor()
	r.desired.Adopt = &fact
	k.Send("pods/u1", r.desired)
	k.RunWork()
	if got := sent(k); got != "hooking hooking failed ended" || r.runs != 1 {
		t.Errorf("it told %s, and the hook ran %d times", got, r.runs)
	}
}

// A container with a failed hook is stopped later if the runtime cannot stop it at once.
func TestPostStartFailure_EndsTheContainerEventually(t *testing.T) {
	r := newHookRig(t)
	r.code = 1
	r.r.Inject(sim.Fault{Call: "StopContainer", Times: 1, Kind: sim.Error, Err: fs.ErrInvalid})
	k := r.actor()
	k.Send("pods/u1", r.desired)
	k.RunWork()
	k.Send("pods/u1", r.desired)
	if got := sent(k); got != "hooking hooking failed unstopped hooking failed" {
		t.Errorf("while it cannot be stopped: %s", got)
	}
	k.Advance(retryPause)
	k.RunWork()
	if got := sent(k); got != "ended" {
		t.Errorf("then: %s", got)
	}
}

// A hook that was interrupted by the agent's death runs again. A completed hook does not, nor does the hook of a container that
// a kubelet started.
func TestAdoption_RepeatsAnInterruptedPostStart(t *testing.T) {
	for _, cutOff := range []bool{true, false} {
		r := newHookRig(t)
		k := r.actor()
		k.Send("pods/u1", r.desired)
		if k.RunOne(k.Work[0]); !cutOff {
			k.Work = k.Work[1:]
			k.RunWork()
		}
		fact := reported(k)
		runs := r.runs

		k = r.actor()
		r.desired.Adopt = &fact
		k.Send("pods/u1", r.desired)
		k.RunWork()
		want, more := "started", 0
		if cutOff {
			want, more = "hooking started", 1
		}
		if got := sent(k); got != want || r.runs-runs != more {
			t.Errorf("cut off %v: told %s, %d runs more", cutOff, got, r.runs-runs)
		}
	}
}

// A container found by name may have been started or not: its hook runs if the record is its own. The record of another
// container has no effect.
func TestPostStart_RunsForFoundContainer(t *testing.T) {
	r := newHookRig(t)
	k := r.actor()
	k.Send("pods/u1", r.desired)
	k.RunOne(k.Work[0])
	fact := reported(k)
	k = r.actor()
	k.Send("pods/u1", r.desired)
	if k.RunWork(); sent(k) != "hooking started" || r.runs != 1 {
		t.Errorf("%d runs", r.runs)
	}
	if err := noteHook(r.h, r.desired, "another"); err != nil {
		t.Fatal(err)
	}
	k = r.actor()
	r.desired.Adopt = &fact
	k.Send("pods/u1", r.desired)
	if k.RunWork(); sent(k) != "started" || r.runs != 1 {
		t.Errorf("with another's note: %d runs", r.runs)
	}
}

// A container that ends while its hook runs is reported as ended.
func TestAnEndGoesBeforeTheHook(t *testing.T) {
	r := newHookRig(t)
	k := r.actor()
	k.Send("pods/u1", r.desired)
	k.RunOne(k.Work[0])
	fact := reported(k)
	fact.State = messages.ContainerExited
	k.Send("pods/u1", adopting(r.desired, fact))
	k.Work = k.Work[1:]
	k.RunWork()
	if got := sent(k); got != "ended" {
		t.Errorf("it told %s", got)
	}
}

// A hook that hangs is cut off when its container has ended or is being stopped. It does not run at all if the stop was
// requested during the start.
func TestAHookEndsWithItsContainer(t *testing.T) {
	for name, end := range map[string]func(k *supervisortest.Kit, fact messages.ContainerFact, desired messages.RunContainer){
		"it ended": func(k *supervisortest.Kit, fact messages.ContainerFact, desired messages.RunContainer) {
			fact.State = messages.ContainerExited
			k.Send("pods/u1", adopting(desired, fact))
		},
		"it is ended": func(k *supervisortest.Kit, fact messages.ContainerFact, desired messages.RunContainer) {
			k.Send("pods/u1", messages.StopContainer{UID: "u1", Name: "c", Fact: fact, Pod: desired.Pod, Spec: desired.Container,
				Grace: time.Second})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := hanging(t)
			k := r.actor()
			k.Send("pods/u1", r.desired)
			k.RunOne(k.Work[0])
			fact := reported(k)
			hook := k.Work[1]
			k.Work = nil
			ended := make(chan struct{})
			go func() { defer close(ended); hook.Run(t.Context()) }()
			<-s.asked
			end(k, fact, r.desired)
			<-ended // the hook would otherwise run until hooks.Limit
			if k.RunWork(); sent(k) != "ended" {
				t.Error("its end was not told")
			}
		})
	}
	r, _ := hanging(t)
	k := r.actor()
	k.Send("pods/u1", r.desired)
	k.Send("pods/u1", messages.StopContainer{UID: "u1", Name: "c", Pod: r.desired.Pod, Spec: r.desired.Container, Grace: time.Second})
	k.RunWork()
	if got := sent(k); got != "ended" || len(r.r.Calls("StopContainer")) != 1 {
		t.Errorf("ended while it was started: it told %q", got)
	}
}

// server accepts requests and never answers.
type server struct{ asked chan struct{} }

// hanging returns a container with a post-start hook that sends a request to such a server.
func hanging(t *testing.T) (*hookRig, server) {
	t.Helper()
	s := server{make(chan struct{}, 1)}
	quit := make(chan struct{})
	h := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		s.asked <- struct{}{}
		<-quit
	}))
	t.Cleanup(h.Close)
	t.Cleanup(func() { close(quit) })
	r := newHookRig(t)
	r.desired.Container.Lifecycle.PostStart = get("/", "HTTP", h)
	r.desired.Sandbox.IPs = []string{"127.0.0.1"}
	return r, s
}

func TestAGraceThatNoClockHolds(t *testing.T) {
	pod := podOf(v1.Container{Name: "c"})
	pod.Spec.TerminationGracePeriodSeconds = new(int64(math.MaxInt64))
	if got := podspec.GracePeriod(pod.Spec.TerminationGracePeriodSeconds); got < time.Hour || got+hooks.Limit < got {
		t.Errorf("it is %v", got)
	}
}
