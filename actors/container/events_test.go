package container

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// recorded returns the Events recorded since the last call, as "Reason: message".
func recorded(k *supervisortest.Kit) (out []string) {
	for _, m := range k.Take() {
		if e, ok := m.Msg.(messages.RecordEvent); ok {
			if m.To != messages.Events || e.Object.Name != "web" || e.Object.FieldPath != "spec.containers{c}" || e.At.IsZero() {
				k.TB.Errorf("to %s: %+v", m.To, e)
			}
			out = append(out, e.Reason+": "+e.Message)
		}
	}
	return out
}

func sameEvents(t *testing.T, what string, k *supervisortest.Kit, want ...string) {
	t.Helper()
	if got := recorded(k); !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// plain returns a rig with a container without hooks.
func plain(t *testing.T) *hookRig {
	r := newHookRig(t)
	r.h.Events = true
	r.desired.Container.Lifecycle = nil
	return r
}

func (r *hookRig) stopOf(fact messages.ContainerFact, why string) messages.StopContainer {
	return messages.StopContainer{UID: "u1", Name: "c", Pod: r.desired.Pod, Spec: r.desired.Container, Fact: fact, Grace: time.Second,
		Cause: messages.Cause{Text: why}}
}

func (r *hookRig) fact(state messages.ContainerState) messages.ContainerFact {
	c := r.r.Snapshot().Containers[0]
	return messages.ContainerFact{ID: c.ID, Name: "c", SandboxID: r.desired.Sandbox.ID, State: state}
}

// Each change is recorded once. Changes made by another actor and repeated requests are not recorded.
func TestEventsOfAContainer(t *testing.T) {
	r := plain(t)
	k := r.actor()
	k.Send("pods/u1", r.desired)
	k.RunWork()
	k.Send("pods/u1", r.desired)
	sameEvents(t, "a start", k, "Created: Container created", "Started: Container started")

	adopts := r.actor()
	w, fact := r.desired, r.fact(messages.ContainerRunning)
	w.Adopt = &fact
	adopts.Send("pods/u1", w)
	adopts.RunWork()
	sameEvents(t, "an adoption", adopts)
	finds := r.actor()
	finds.Send("pods/u1", r.desired)
	finds.RunWork()
	if got := recorded(finds); slices.Contains(got, "Started: Container started") {
		t.Errorf("it is started that was found: %q", got)
	}

	stop := r.stopOf(fact, "its manifest is gone")
	adopts.Send("pods/u1", stop)
	adopts.Send("pods/u1", stop)
	adopts.RunWork()
	adopts.Send("pods/u1", stop)
	sameEvents(t, "its end", adopts, "Killing: Stopping container c")
}

// The words of the Event have the cause, or the sentence on it follows, never both.
func TestKilling_NoRepetition(t *testing.T) {
	probed := messages.StopContainer{Name: "c", Cause: messages.Cause{Code: messages.CauseProbeFailed, Name: "liveness"},
		Explained: "container c is being killed because its liveness probe failed: HTTP 500"}
	removed := messages.StopContainer{Name: "c", Explained: "the pod is ending because it was removed"}
	for want, m := range map[string]messages.StopContainer{
		"Container c failed liveness probe, will be restarted":           probed,
		"Stopping container c; the pod is ending because it was removed": removed,
	} {
		if got := killing(m); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// An actor that joins a stop in progress does not record it again.
func TestAStopThatIsJoinedIsNoNews(t *testing.T) {
	r := plain(t)
	k := r.actor()
	k.Send("pods/u1", r.desired)
	k.RunWork()
	stop := r.stopOf(r.fact(messages.ContainerRunning), "its manifest is gone")
	began, end := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = r.h.Ops.Do(t.Context(), stopPrefix(stop)+"1", time.Minute, func(context.Context) (any, error) {
			close(began)
			<-end
			return stopResult{id: stop.Fact.ID, fact: stop.Fact}, nil
		})
	}()
	<-began
	again := r.actor()
	again.Send("pods/u1", stop)
	sameEvents(t, "a stop that is joined", again)
	close(end)
	<-ended
}

// The Event of a failed create or start has the reason, with the container's name instead of its ID.
func TestEventsOfAFailedStart(t *testing.T) {
	r := plain(t)
	r.r.Inject(sim.Fault{Call: "CreateContainer", Times: 1, Kind: sim.Error, Err: errors.New("no room")})
	k := r.actor()
	k.Send("pods/u1", r.desired)
	k.RunWork()
	if got := recorded(k); len(got) != 1 || !strings.HasPrefix(got[0], "Failed: Error: ") ||
		!strings.HasSuffix(got[0], "no room") {
		t.Errorf("a failed creation: %q", got)
	}
	k.Send("pods/u1", r.desired)
	sameEvents(t, "told once more", k)
	r.desired.Generation++
	r.r.Inject(sim.Fault{Call: "StartContainer", Times: 1, Kind: sim.Error, Err: errors.New("no such command")})
	k.Send("pods/u1", r.desired)
	k.RunWork()
	got := recorded(k)
	if len(got) != 2 || got[0] != "Created: Container created" || !strings.HasSuffix(got[1], "no such command") {
		t.Fatalf("a failed start: %q", got)
	}
	if id := r.r.Snapshot().Containers[0].ID; strings.Contains(got[1], id) {
		t.Errorf("it names the ID: %s", got[1])
	}
	if n, err := testutil.GatherAndCount(metrics.Registry, "kubelet_started_containers_errors_total"); err != nil || n < 2 {
		t.Errorf("starts that failed have %d codes in the metrics, want 2: %v", n, err)
	}
}

// Events never contain a hook's output, which may be a secret.
func TestEventsOfHooks(t *testing.T) {
	r := newHookRig(t)
	r.h.Events, r.code = true, 1
	k := r.actor()
	k.Send("pods/u1", r.desired)
	k.RunWork()
	sameEvents(t, "a post-start hook", k, "Created: Container created", "Started: Container started",
		"FailedPostStartHook: PostStartHook failed; container c: its post-start hook failed: the command ended with code 1",
		"Killing: FailedPostStartHook")

	r = plain(t)
	r.code = 1
	k = r.actor()
	k.Send("pods/u1", r.desired)
	k.RunWork()
	k.Take()
	r.desired.Container.Lifecycle = &v1.Lifecycle{PreStop: command("leave", "--password=secret")}
	k.Send("pods/u1", r.stopOf(r.fact(messages.ContainerRunning), "the pod has finished"))
	k.RunWork()
	sameEvents(t, "a pre-stop hook", k, "Killing: Stopping container c", "FailedPreStopHook: PreStopHook failed")
}

// A standalone node has no events actor: no Events are sent.
func TestNoEventsOnAStandaloneNode(t *testing.T) {
	r := plain(t)
	r.h.Events = false
	k := r.actor()
	k.Send("pods/u1", r.desired)
	k.RunWork()
	k.Send("pods/u1", r.stopOf(r.fact(messages.ContainerRunning), "the pod has finished"))
	k.RunWork()
	sameEvents(t, "a life", k)
}

// A failed stop is recorded once, as an Event of the pod.
func TestAContainerThatCannotBeEnded(t *testing.T) {
	r := plain(t)
	k := r.actor()
	k.Send("pods/u1", r.desired)
	k.RunWork()
	fact := r.fact(messages.ContainerRunning)
	r.r.Inject(sim.Fault{Call: "StopContainer", Times: 2, Kind: sim.Error, Err: errors.New("container " + fact.ID + " is stuck")})
	k.Take()
	for range 2 {
		k.Send("pods/u1", r.stopOf(fact, "the pod has finished"))
		k.RunWork()
	}
	var sent []messages.RecordEvent
	for _, m := range k.Take() {
		if e, ok := m.Msg.(messages.RecordEvent); ok && e.Reason == messages.EventFailedKillPod {
			sent = append(sent, e)
		}
	}
	if len(sent) != 1 || sent[0].Object.FieldPath != "" || !strings.HasSuffix(sent[0].Message, "container c is stuck") ||
		!strings.Contains(sent[0].Message, "; the runtime cannot stop container c: StopContainer ") ||
		sent[0].Type != v1.EventTypeWarning {
		t.Errorf("told %+v", sent)
	}
}
