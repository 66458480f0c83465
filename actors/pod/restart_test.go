package pod

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/messages"
)

// asksRestart requests a restart of the present containers of these names, and returns the answer, or nil.
func (w *world) asksRestart(names ...string) *messages.RestartTaken {
	ids := map[string]string{}
	for _, name := range names {
		ids[name] = w.newestID(name)
	}
	return w.sendsRestart(ids)
}

func (w *world) sendsRestart(ids map[string]string) (answer *messages.RestartTaken) {
	for _, e := range w.machine.Step(w.now, messages.RestartContainers{UID: string(w.pod.UID), IDs: ids}) {
		if r, ok := e.(Reply); ok {
			taken := r.Msg.(messages.RestartTaken)
			answer = &taken
			continue
		}
		w.effect(e)
	}
	return answer
}

func (w *world) newestID(name string) string {
	id, attempt := "", -1
	for _, f := range w.containers {
		if f.Name == name && int(f.Attempt) > attempt {
			id, attempt = f.ID, int(f.Attempt)
		}
	}
	return id
}

// attempts returns the restart counts of the running containers.
func (w *world) attempts() map[string]uint32 {
	out := map[string]uint32{}
	for _, f := range w.containers {
		if f.State == messages.ContainerRunning {
			out[f.Name] = f.Attempt
		}
	}
	return out
}

func TestARestartThatIsAskedFor(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 1, 2))
	w.exit = func(name string, _ uint32) (int32, bool) { return 0, name[0] == 'i' }
	w.step(nil)
	if answer := w.sendsRestart(map[string]string{"c0": "x"}); answer != nil {
		t.Errorf("before it knows of its pod it answers %+v", answer)
	}
	w.settle()
	ids := map[string]string{"c0": w.newestID("c0")}
	if got := w.sendsRestart(ids); got == nil || got.Refused != "" || !slices.Equal(got.Containers, []string{"c0"}) {
		t.Fatalf("%+v", got)
	}
	w.sendsRestart(ids) // sent twice
	w.settle()
	if got := w.sendsRestart(ids); got == nil || got.Refused != "" || len(got.Containers) > 0 {
		t.Errorf("once more, when all is done: %+v", got)
	}
	w.settle()
	check(t, w)
	if got := w.attempts(); !maps.Equal(got, map[string]uint32{"c0": 1, "c1": 0}) {
		t.Errorf("started again: %v", got)
	}
	if step := w.machine.Container("c0").Backoff.Step; step != 0 {
		t.Errorf("it counts as a failure: step %d", step)
	}
}

// goesOn advances the world until the container c0 is in the expected state.
func (w *world) goesOn(t *testing.T, until func(c *known.Container) bool) {
	t.Helper()
	for range 500 {
		if c := w.machine.Container("c0"); c != nil && until(c) {
			return
		}
		w.live()
		switch {
		case len(w.pending) > 0:
			next := w.pending[0]
			w.pending = w.pending[1:]
			w.step(next)
		case !w.probeOnce():
			w.now = w.nextTime()
			w.step(nil)
		}
	}
	t.Fatalf("it never came to that: %+v", w.machine.Container("c0"))
}

// A container that is being stopped for a probe restarts at once, too, and not after the back-off of such an end.
func TestARestartOfWhatIsBeingStopped(t *testing.T) {
	w := newWorld(probedPod(v1.RestartPolicyAlways, messages.Liveness))
	w.sick = map[string]bool{"c0/liveness": true}
	w.step(nil)
	w.goesOn(t, func(c *known.Container) bool { return c.Attempt == 2 && c.Stage() == messages.StageStopping })
	if got := w.asksRestart("c0"); got == nil || !slices.Equal(got.Containers, []string{"c0"}) {
		t.Fatalf("%+v", got)
	}
	w.sick = nil
	w.startsAtOnce(t)
}

// startsAtOnce waits until the world is idle: the fourth attempt of c0 runs, without a back-off before it.
func (w *world) startsAtOnce(t *testing.T) {
	t.Helper()
	w.settle()
	check(t, w)
	if got := w.attempts(); !maps.Equal(got, map[string]uint32{"c0": 3}) {
		t.Fatalf("running %v", got)
	}
	if wait := w.containers[0].StartedAt.Sub(w.containers[1].FinishedAt); wait >= time.Second {
		t.Errorf("it is started %v after its end", wait)
	}
}

// A container in back-off starts at once.
func TestARestartEndsABackOff(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.exit = func(_ string, attempt uint32) (int32, bool) { return 3, attempt < 3 }
	w.step(nil)
	w.goesOn(t, func(c *known.Container) bool {
		return c.Attempt == 2 && c.Exited() != nil && c.Exited().Attempt == 2 && c.Stage() == messages.StageIdle && len(w.pending) == 0
	})
	if got := w.asksRestart("c0"); got == nil || got.Refused != "" {
		t.Fatalf("%+v", got)
	}
	w.startsAtOnce(t)
}

func TestRestartsThatAreRefused(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	for name, c := range map[string]struct {
		policy v1.RestartPolicy
		change func(*v1.Pod)
		ask    string
		want   string
	}{
		"a job":             {policy: v1.RestartPolicyNever, ask: "c0", want: "runs once: with restartPolicy Never"},
		"on failure":        {policy: v1.RestartPolicyOnFailure, ask: "c0", want: "runs once: with restartPolicy OnFailure"},
		"an init container": {policy: v1.RestartPolicyAlways, ask: "init0", want: "runs to its end"},
		"another":           {policy: v1.RestartPolicyAlways, ask: "nope", want: `no container "nope"`},
		"one for debugging": {policy: v1.RestartPolicyAlways, ask: "debug", want: "is ephemeral",
			change: func(p *v1.Pod) { *p = *debugged(p, "debug", "c0") }},
		"one that stays, in a pod that has ended": {policy: v1.RestartPolicyNever, ask: "c0", want: "the pod has ended",
			change: func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(1)) }},
		"one that always restarts, in a pod that does not": {policy: v1.RestartPolicyNever, ask: "c0",
			change: func(p *v1.Pod) { p.Spec.Containers[0].RestartPolicy = &always }},
	} {
		t.Run(name, func(t *testing.T) {
			pod := testPod(c.policy, 1, 1)
			if c.change != nil {
				c.change(pod)
			}
			w := newWorld(pod)
			w.exit = func(name string, _ uint32) (int32, bool) { return 0, name[0] == 'i' }
			w.step(nil)
			w.settle()
			got := w.asksRestart(c.ask)
			if got == nil || (c.want == "") != (got.Refused == "") || !strings.Contains(got.Refused, c.want) {
				t.Errorf("%+v, want %q", got, c.want)
			}
		})
	}
}
