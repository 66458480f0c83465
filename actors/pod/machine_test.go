package pod

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

func check(t interface{ Errorf(string, ...any) }, w *world) {
	if len(w.violations) > 0 {
		t.Errorf("%s\nafter\n%s", strings.Join(w.violations, "\n"), strings.Join(w.trace, "\n"))
	}
}

func TestAPodRuns(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 2, 2))
	w.exit = func(name string, _ uint32) (int32, bool) { return 0, name[0] == 'i' }
	w.step(nil)
	w.settle()
	check(t, w)
	if got := w.runningNames(); !slices.Equal(got, []string{"c0", "c1"}) {
		t.Errorf("running: %v", got)
	}
	if want := []Phase{Reading, Preparing, Initializing, Running}; !slices.Equal(w.phases, want) {
		t.Errorf("phases %v, want %v", w.phases, want)
	}
	if w.status.Phase != v1.PodRunning || w.status.PodIP != "10.88.0.2" {
		t.Errorf("status %v %v", w.status.Phase, w.status.PodIP)
	}
	for _, c := range w.status.Conditions {
		if c.Status != v1.ConditionTrue {
			t.Errorf("condition %s is %s: %s", c.Type, c.Status, c.Message)
		}
	}
}

func TestARestartedActorAdoptsAndTouchesNothing(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 1, 2))
	w.exit = func(name string, _ uint32) (int32, bool) { return 0, name[0] == 'i' }
	w.step(nil)
	w.settle()
	before := slices.Clone(w.containers)
	w.restart()
	w.settle()
	check(t, w)
	if len(before) != len(w.containers) {
		t.Fatalf("%d containers became %d", len(before), len(w.containers))
	}
	for i := range before {
		if before[i].ID != w.containers[i].ID || before[i].State != w.containers[i].State {
			t.Errorf("%+v became %+v", before[i], w.containers[i])
		}
	}
	if w.status.Phase != v1.PodRunning || w.status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("status %+v", w.status)
	}
}

func TestRestartPolicy(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy v1.RestartPolicy
		code   int32
		phase  v1.PodPhase
		again  bool
	}{
		{"Never, success", v1.RestartPolicyNever, 0, v1.PodSucceeded, false},
		{"Never, failure", v1.RestartPolicyNever, 3, v1.PodFailed, false},
		{"OnFailure, success", v1.RestartPolicyOnFailure, 0, v1.PodSucceeded, false},
		{"OnFailure, failure", v1.RestartPolicyOnFailure, 3, v1.PodRunning, true},
		{"Always, success", v1.RestartPolicyAlways, 0, v1.PodRunning, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(testPod(c.policy, 0, 1))
			w.exit = func(_ string, attempt uint32) (int32, bool) { return c.code, attempt < 2 }
			w.step(nil)
			w.settle()
			check(t, w)
			if w.status.Phase != c.phase {
				t.Errorf("phase %s, want %s", w.status.Phase, c.phase)
			}
			if again := len(w.containers) > 1; again != c.again {
				t.Errorf("started %d times", len(w.containers))
			}
			if !c.again && (w.ended == nil || w.ended.Gone) {
				t.Errorf("its end: %+v", w.ended)
			}
			if w.holds == !c.again {
				t.Errorf("its images are kept for it: %v", w.holds)
			}
		})
	}
}

// A container's own restartPolicy overrides the pod's, and the first of its rules that matches the exit code overrides both
// (KEP-5307).
func TestRestartPolicyOfOneContainer(t *testing.T) {
	rule := func(op v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) v1.ContainerRestartRule {
		return v1.ContainerRestartRule{Action: v1.ContainerRestartRuleActionRestart,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}
	}
	const in, notIn = v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
	const always, onFailure, never = v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure,
		v1.ContainerRestartPolicyNever
	for _, c := range []struct {
		name  string
		pod   v1.RestartPolicy
		own   v1.ContainerRestartPolicy
		rules []v1.ContainerRestartRule
		code  int32
		phase v1.PodPhase
		again bool
	}{
		{"never, in a pod that always does", v1.RestartPolicyAlways, never, nil, 3, v1.PodFailed, false},
		{"never, and all is well", v1.RestartPolicyAlways, never, nil, 0, v1.PodSucceeded, false},
		{"always, in a pod that never does", v1.RestartPolicyNever, always, nil, 0, v1.PodRunning, true},
		{"on failure, in a pod that always does", v1.RestartPolicyAlways, onFailure, nil, 0, v1.PodSucceeded, false},
		{"on failure, in a pod that never does", v1.RestartPolicyNever, onFailure, nil, 3, v1.PodRunning, true},
		{"a rule for this code", v1.RestartPolicyNever, never, []v1.ContainerRestartRule{rule(in, 2, 3)}, 3, v1.PodRunning, true},
		{"a rule for another one", v1.RestartPolicyAlways, never, []v1.ContainerRestartRule{rule(in, 2)}, 3, v1.PodFailed, false},
		{"a rule for others than this one", v1.RestartPolicyNever, never, []v1.ContainerRestartRule{rule(notIn, 3)}, 3,
			v1.PodFailed, false},
		{"a rule for others, such as this one", v1.RestartPolicyNever, never, []v1.ContainerRestartRule{rule(notIn, 2)}, 3,
			v1.PodRunning, true},
		{"a rule for success", v1.RestartPolicyNever, onFailure, []v1.ContainerRestartRule{rule(in, 2), rule(in, 0)}, 0,
			v1.PodRunning, true},
	} {
		for _, init := range []bool{false, true} {
			if init && (c.own == always || c.code == 0) {
				continue // a sidecar; and a container that succeeds is done, whatever its policy
			}
			t.Run(fmt.Sprintf("%s, init %v", c.name, init), func(t *testing.T) {
				pod := testPod(c.pod, 0, 1)
				spec := &pod.Spec.Containers[0]
				if init {
					pod = testPod(c.pod, 1, 1)
					spec = &pod.Spec.InitContainers[0]
				}
				spec.RestartPolicy, spec.RestartPolicyRules = &c.own, c.rules
				w := newWorld(pod)
				w.exit = func(name string, attempt uint32) (int32, bool) { return c.code, name == spec.Name && attempt < 2 }
				w.step(nil)
				w.settle()
				check(t, w)
				want := c.phase
				if init && c.again {
					want = v1.PodPending // it is restarted until it succeeds, which it does not
				}
				if w.status.Phase != want {
					t.Errorf("phase %s, want %s", w.status.Phase, want)
				}
				times := 0
				for _, f := range w.containers {
					if f.Name == spec.Name {
						times++
					}
				}
				if (times > 1) != c.again {
					t.Errorf("started %d times", times)
				}
			})
		}
	}
}

// One container that restarts keeps a pod alive while another has ended for good.
func TestOneContainerEndsForGood(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, 0, 2)
	pod.Spec.Containers[1].RestartPolicy = new(v1.ContainerRestartPolicyNever)
	w := newWorld(pod)
	w.exit = func(_ string, attempt uint32) (int32, bool) { return 3, attempt < 1 }
	w.step(nil)
	w.settle()
	check(t, w)
	first, second := w.status.ContainerStatuses[0], w.status.ContainerStatuses[1]
	if w.status.Phase != v1.PodRunning || first.State.Running == nil || first.RestartCount != 1 ||
		second.State.Terminated == nil || second.RestartCount != 0 {
		t.Errorf("phase %s, %+v and %+v", w.status.Phase, first.State, second.State)
	}
}

func TestBackOffIsTheKubelets(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.exit = func(_ string, attempt uint32) (int32, bool) { return 1, attempt < 8 }
	w.step(nil)
	w.settle()
	check(t, w)
	var waits []time.Duration
	for i := len(w.containers) - 1; i > 0; i-- {
		waits = append(waits, w.containers[i-1].StartedAt.Sub(w.containers[i].FinishedAt).Truncate(time.Millisecond))
	}
	want := []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second,
		300 * time.Second, 300 * time.Second}
	if !slices.Equal(waits, want) {
		t.Errorf("waits %v, want %v", waits, want)
	}
}

func TestLostSandbox_RunsInitAgain(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 1, 1))
	w.exit = func(name string, _ uint32) (int32, bool) { return 0, name[0] == 'i' }
	w.step(nil)
	w.settle()
	first := w.sandboxes[0].ID
	w.sandboxes[0].Ready = false
	w.send(w.observed())
	w.settle()
	check(t, w)
	if w.sandboxes[0].ID == first || w.sandboxes[0].Attempt != 1 {
		t.Errorf("sandboxes %+v", w.sandboxes)
	}
	inits := 0
	for _, c := range w.containers {
		if c.Name == "init0" {
			inits++
		}
	}
	if inits != 2 || !slices.Equal(w.runningNames(), []string{"c0"}) {
		t.Errorf("init ran %d times, running %v", inits, w.runningNames())
	}
}

func TestInitFailure_FailsAPodThatNeverRestarts(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyNever, 1, 1))
	w.exit = func(string, uint32) (int32, bool) { return 7, true }
	w.step(nil)
	w.settle()
	check(t, w)
	if w.status.Phase != v1.PodFailed || len(w.containers) != 1 {
		t.Errorf("phase %s, containers %+v", w.status.Phase, w.containers)
	}
}

func TestAnEndedPodLeavesNothing(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 3))
	w.step(nil)
	w.settle()
	w.ending = &messages.Ending{Reason: "test"}
	w.send(w.desired())
	w.settle()
	check(t, w)
	if len(w.containers)+len(w.sandboxes) > 0 || w.mounted || !w.foldersOut || w.ended == nil || !w.ended.Gone {
		t.Errorf("left: %v %v, mounted %v, folders removed %v, ended %+v", w.containers, w.sandboxes, w.mounted, w.foldersOut,
			w.ended)
	}
}

func TestOnlyTheChangedContainerIsReplaced(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 2))
	w.step(nil)
	w.settle()
	kept := ""
	for _, c := range w.containers {
		if c.Name == "c1" {
			kept = c.ID
		}
	}
	w.pod = w.pod.DeepCopy()
	w.pod.Spec.Containers[0].Image = "another"
	w.send(w.desired())
	w.settle()
	check(t, w)
	for _, c := range w.containers {
		if c.State == messages.ContainerRunning && c.Name == "c1" && c.ID != kept {
			t.Errorf("c1 was replaced")
		}
		if c.State == messages.ContainerRunning && c.Name == "c0" && (c.Image != "another" || c.Attempt != 1) {
			t.Errorf("c0 runs %s, attempt %d", c.Image, c.Attempt)
		}
	}
	if !slices.Equal(w.runningNames(), []string{"c0", "c1"}) {
		t.Errorf("running %v", w.runningNames())
	}
}

func TestActiveDeadline(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, 0, 1)
	pod.Spec.ActiveDeadlineSeconds = new(int64(30))
	w := newWorld(pod)
	w.step(nil)
	w.settle()
	check(t, w)
	if w.status.Phase != v1.PodFailed || w.status.Reason != messages.ReasonDeadlineExceeded || len(w.runningNames()) > 0 {
		t.Errorf("status %s %s, running %v", w.status.Phase, w.status.Reason, w.runningNames())
	}
}

func TestSidecarsAreStoppedLastAndInReverse(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, 2, 2)
	for i := range pod.Spec.InitContainers {
		pod.Spec.InitContainers[i].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	}
	w := newWorld(pod)
	w.step(nil)
	w.settle()
	if got := w.runningNames(); !slices.Equal(got, []string{"c0", "c1", "init0", "init1"}) {
		t.Fatalf("running %v", got)
	}
	w.ending = &messages.Ending{Reason: "test"}
	w.send(w.desired())
	w.settle()
	check(t, w)
	if want := []string{"c0", "c1", "init1", "init0"}; !slices.Equal(w.stops, want) {
		t.Errorf("stopped %v, want %v", w.stops, want)
	}
}

// All pre-stop hooks run when the pod's termination begins; sidecars wait for their turn, but no longer than the grace period.
func TestTermination_HooksRunTogetherWithinTheGrace(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, 2, 1)
	for i := range pod.Spec.InitContainers {
		pod.Spec.InitContainers[i].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	}
	w := newWorld(pod)
	w.step(nil)
	w.settle()
	facts := map[string]messages.ContainerFact{}
	for _, f := range w.containers {
		f.State, f.FinishedAt = messages.ContainerExited, w.now
		facts[f.Name] = f
	}
	begin := func() *alone {
		w.restart()
		w.settle()
		a := &alone{now: w.now, machine: w.machine}
		a.hears(messages.PodWanted{Pod: pod, Generation: 2, Ending: &messages.Ending{Since: w.now}})
		return a
	}
	says := func(a *alone, when string, want ...string) {
		t.Helper()
		var got []string
		for _, s := range sentOf[messages.StopContainer](a.take()) {
			text := s.Name + " ends in " + s.Grace.String()
			if s.HookOnly {
				text = s.Name + " waits for " + s.Grace.String()
			} else if s.NoHook {
				text += " without hook"
			}
			got = append(got, text)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	a := begin()
	says(a, "at once", "c0 ends in 5s", "init0 waits for 5s", "init1 waits for 5s")
	a.passes(time.Second)
	a.hears(a.ended(facts["c0"]))
	says(a, "the regular one is over", "init1 ends in 4s")
	a.passes(time.Second)
	a.hears(a.ended(facts["init1"]))
	says(a, "the last sidecar is over", "init0 ends in 3s")

	a = begin()
	says(a, "again", "c0 ends in 5s", "init0 waits for 5s", "init1 waits for 5s")
	wakes := effects[Wake](a.machine.Step(a.now, nil))
	if len(wakes) != 1 || wakes[0].At.Sub(a.now) != 5*time.Second {
		t.Fatalf("it wakes %+v", wakes)
	}
	a.passes(5 * time.Second)
	says(a, "the grace period is over, and a regular one is left")
	a.hears(a.ended(facts["c0"]))
	says(a, "the regular one has ended late", "init0 ends in 2s without hook", "init1 ends in 2s without hook")

	a = begin()
	a.take()
	a.passes(4 * time.Second)
	away := messages.PodFacts{UID: "u1", ReadAt: a.now, Away: 3 * time.Second, Sandboxes: w.sandboxes, Containers: w.containers}
	a.hears(messages.PodObserved{Facts: away}, a.ended(facts["c0"]))
	says(a, "the runtime was away", "init1 ends in 4s")

	a = begin()
	a.take()
	away.ReadAt, away.Away = a.now, 5*time.Hour
	a.hears(messages.PodObserved{Facts: away}, a.ended(facts["c0"]))
	says(a, "the runtime was away before the pod ended", "init1 ends in 5s")

	a = begin()
	a.take()
	a.hears(messages.PodWanted{Pod: pod, Generation: 3, Ending: &messages.Ending{Since: w.now, Grace: new(int64(2))}})
	says(a, "less time", "c0 ends in 2s", "init0 waits for 2s", "init1 waits for 2s")

	// The same applies to a pod that the node ends.
	w.restart()
	w.settle()
	a = &alone{now: w.now, machine: w.machine}
	for _, grace := range []int64{5, 2} {
		a.take()
		a.hears(messages.PodWanted{Pod: pod, Generation: uint64(10 - grace), Fail: &messages.PodFailure{
			Reason: messages.EventEvicted, Grace: &grace}})
	}
	says(a, "evicted with less time", "c0 ends in 2s", "init0 waits for 2s", "init1 waits for 2s")
}

func TestAReadingThatIsOvertakenIsNotTaken(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.step(nil)
	w.settle()
	old := w.observed()
	old.Facts.ReadAt = w.now.Add(-time.Hour)
	old.Facts.Sandboxes = nil
	w.step(old)
	if w.machine.Current() == nil {
		t.Error("an old reading took the sandbox away")
	}
}

// A start that the death of the agent interrupted is repeated with the same attempt, at once, under any restartPolicy.
func TestInterruptedStart_IsRepeatedUncounted(t *testing.T) {
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyNever} {
		w := newWorld(testPod(policy, 0, 1))
		w.sandboxes = []messages.SandboxFact{{ID: "s0", Ready: true, CreatedAt: w.now, IPs: []string{"10.88.0.2"}}}
		w.containers = []messages.ContainerFact{{
			ID: "left", Name: "c0", SandboxID: "s0", State: messages.ContainerExited, CreatedAt: w.now, FinishedAt: w.now,
			ExitCode: 128, Reason: messages.ReasonStartError, Message: "failed to create containerd task: context canceled",
			Image: "image",
		}}
		w.step(nil)
		w.settle()
		check(t, w)
		if len(w.containers) != 1 || w.containers[0].ID == "left" || w.containers[0].State != messages.ContainerRunning ||
			w.containers[0].Attempt != 0 {
			t.Errorf("%s: containers %+v", policy, w.containers)
		}
		if w.status.Phase != v1.PodRunning || w.status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s: status %+v", policy, w.status)
		}
	}
}

// A start that was interrupted after the runtime had created the task may have run the program: it is an end, and with
// restartPolicy Never nothing runs again.
func TestInterruptedTaskStart_IsAnEnd(t *testing.T) {
	for policy, phase := range map[v1.RestartPolicy]v1.PodPhase{v1.RestartPolicyNever: v1.PodFailed, v1.RestartPolicyAlways: v1.PodRunning} {
		w := newWorld(testPod(policy, 0, 1))
		w.sandboxes = []messages.SandboxFact{{ID: "s0", Ready: true, CreatedAt: w.now, IPs: []string{"10.88.0.2"}}}
		w.containers = []messages.ContainerFact{{
			ID: "left", Name: "c0", SandboxID: "s0", State: messages.ContainerExited, CreatedAt: w.now, FinishedAt: w.now,
			ExitCode: 128, Reason: messages.ReasonStartError, Message: `failed to start containerd task "left": context canceled`,
			Image: "image",
		}}
		w.step(nil)
		w.settle()
		check(t, w)
		c := w.status.ContainerStatuses[0]
		end := c.State.Terminated
		if policy == v1.RestartPolicyAlways {
			end = c.LastTerminationState.Terminated
		}
		if w.status.Phase != phase || end == nil || end.ExitCode != 128 || (c.RestartCount > 0) != (policy == v1.RestartPolicyAlways) {
			t.Errorf("%s: got status %+v, want phase %s and exit code 128", policy, w.status, phase)
		}
	}
}

// A start that is interrupted every time, as by a hook of the runtime that times out, counts as an end.
func TestInterruptedStart_FailsAfterRepetitions(t *testing.T) {
	for policy, want := range map[v1.RestartPolicy][]uint32{
		v1.RestartPolicyNever: {0, 0, 0}, v1.RestartPolicyAlways: {0, 0, 0, 1, 2, 3}} {
		a := newReady(testPod(policy, 0, 1))
		var attempts []uint32
		var facts []messages.ContainerFact
		for range 60 {
			image := pulled("c0", "image")
			image.Key.Attempt = a.machine.Container("c0").NextAttempt()
			a.hears(image)
			for _, run := range sentOf[messages.RunContainer](a.take()) {
				attempts = append(attempts, run.Attempt)
				f := messages.ContainerFact{ID: fmt.Sprintf("c0-%d", len(attempts)), Name: "c0", SandboxID: "s1", Attempt: run.Attempt,
					State: messages.ContainerExited, CreatedAt: a.now, FinishedAt: a.now, ExitCode: 128, Image: "image",
					Reason: messages.ReasonStartError, Message: "failed to create containerd task: NRI: context deadline exceeded"}
				facts = append(slices.DeleteFunc(facts, func(o messages.ContainerFact) bool { return o.Attempt == f.Attempt }), f)
				a.hears(messages.ContainerReported{UID: "u1", Name: "c0", Generation: run.Generation, Fact: &f,
					Failed: &messages.Reason{Code: messages.ReasonRunContainer}})
			}
			a.passes(10 * time.Second)
			a.observes(a.sandboxFacts(), facts...)
		}
		if len(attempts) < len(want) || !slices.Equal(attempts[:len(want)], want) {
			t.Errorf("%s: attempts %v, want %v", policy, attempts, want)
		}
		if s := a.machine.status(); policy == v1.RestartPolicyNever && (s.Phase != v1.PodFailed || len(attempts) != len(want)) {
			t.Errorf("it is %s after attempts %v", s.Phase, attempts)
		}
	}
}

// If the runtime cannot remove the rest of an interrupted start, its name stays in use: the next attempt is created.
func TestReservedName_IsSkipped(t *testing.T) {
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyNever} {
		w := newWorld(testPod(policy, 0, 1))
		w.sandboxes = []messages.SandboxFact{{ID: "s0", Ready: true, CreatedAt: w.now, IPs: []string{"10.88.0.2"}}}
		w.containers = []messages.ContainerFact{{
			ID: "left", Name: "c0", SandboxID: "s0", State: messages.ContainerExited, CreatedAt: w.now, FinishedAt: w.now,
			ExitCode: 128, Reason: messages.ReasonStartError, Message: "failed to create containerd task: context canceled",
			Image: "image",
		}}
		w.stuck = map[string]bool{"left": true}
		w.step(nil)
		w.settle()
		check(t, w)
		if len(w.containers) != 2 || w.containers[0].State != messages.ContainerRunning || w.containers[0].Attempt != 1 {
			t.Errorf("%s: containers %+v", policy, w.containers)
		}
		if w.status.Phase != v1.PodRunning {
			t.Errorf("%s: status %+v", policy, w.status)
		}
	}
}
