package pod

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/internal/stoporder"
	"github.com/playlet-dev/playlet/actors/pod/rounds"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// rule returns a rule that acts on an exit code.
func rule(action v1.ContainerRestartRuleAction, code int32) []v1.ContainerRestartRule {
	return []v1.ContainerRestartRule{{Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
		Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{code}}}}
}

// specNamed returns the spec of a container, or nil for ephemeral ones.
func (w *world) specNamed(name string) *v1.Container {
	for _, list := range [][]v1.Container{w.pod.Spec.InitContainers, w.pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// checkRound: only an end by a rule, in the round before, begins a round, after all earlier containers have ended. In the new
// round the init containers succeed before any other is created.
func (w *world) checkRound(m messages.RunContainer) {
	if w.specNamed(m.Container.Name) == nil || !translate.MayRestartAll(&w.pod.Spec) {
		return
	}
	known, begun := uint32(0), m.Round == 0
	for i := range w.containers {
		c := &w.containers[i]
		spec := w.specNamed(c.Name)
		if spec == nil {
			continue
		}
		of, _ := rounds.Marked(c)
		known = max(known, of)
		begun = begun || of == m.Round || of+1 == m.Round && c.State == messages.ContainerExited && translate.RestartsAll(spec, c.ExitCode)
		if of < m.Round && lives(*c) {
			w.fault("%s of round %d is made while %s of round %d runs", m.Container.Name, m.Round, c.ID, of)
		}
	}
	if m.Round < known || !begun && len(w.removed) == 0 {
		w.fault("%s is made in round %d after round %d, which nothing has begun: %+v", m.Container.Name, m.Round, known, w.containers)
	}
	for i := range w.pod.Spec.InitContainers {
		c := &w.pod.Spec.InitContainers[i]
		if c.Name == m.Container.Name {
			break
		}
		if !translate.RestartsAlways(c) && !w.did[fmt.Sprint(c.Name, m.Sandbox.ID, m.Round)] {
			w.fault("%s is made in round %d of %s, and %s has not succeeded there", m.Container.Name, m.Round, m.Sandbox.ID, c.Name)
		}
	}
}

// mixedRounds describes the fault when all is quiet: running containers of different rounds, or an end that has not begun
// another.
func (w *world) mixedRounds() string {
	newest := map[string]bool{}
	for i := range w.containers { // newest first
		c := &w.containers[i]
		spec := w.specNamed(c.Name)
		if spec == nil || newest[c.Name] {
			continue
		}
		newest[c.Name] = true
		of, _ := rounds.Marked(c)
		switch {
		case lives(*c) && of != w.machine.rounds.Now:
			return fmt.Sprintf("%s of round %d runs in round %d", c.ID, of, w.machine.rounds.Now)
		case c.State == messages.ContainerExited && translate.RestartsAll(spec, c.ExitCode) && of == w.machine.rounds.Now:
			return fmt.Sprintf("%s has ended by its rule, and nothing follows", c.ID)
		}
	}
	return ""
}

// restartingPod returns a pod with an init container, a sidecar, and two regular containers. c0 restarts all when it ends with
// 42.
func restartingPod(policy v1.RestartPolicy) *v1.Pod {
	pod := testPod(policy, 2, 2)
	pod.Spec.InitContainers[1].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	pod.Spec.Containers[0].RestartPolicy = new(v1.ContainerRestartPolicyNever)
	pod.Spec.Containers[0].RestartPolicyRules = rule(v1.ContainerRestartRuleActionRestartAllContainers, 42)
	return pod
}

// made returns the containers that were created under each name, by attempt.
func (w *world) made() map[string][]string {
	out := map[string][]string{}
	for _, f := range slices.Backward(w.containers) {
		round, _ := rounds.Marked(&f)
		out[f.Name] = append(out[f.Name], fmt.Sprintf("%d in %s of round %d", f.Attempt, f.SandboxID, round))
	}
	return out
}

// once lets c0 end by its rule, init containers succeed, and all others stay.
func once(name string, attempt uint32) (int32, bool) {
	switch {
	case name == "init0":
		return 0, true
	case name == "c0":
		return 42, attempt == 0
	}
	return 0, false
}

// again returns the containers after one restart of all.
var again = func() map[string][]string {
	out := map[string][]string{}
	for _, name := range []string{"init0", "init1", "c0", "c1"} {
		out[name] = []string{"0 in s1 of round 0", "1 in s1 of round 1"}
	}
	return out
}()

func TestAllAreRestarted(t *testing.T) {
	w := newWorld(restartingPod(v1.RestartPolicyNever))
	w.pod.Spec.Containers[1].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	w.pod.Spec.Containers[1].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{}}
	w.exit = once
	var reported []string
	w.watch = func(s *v1.PodStatus) {
		word := ""
		for _, c := range s.Conditions {
			if c.Type == v1.AllContainersRestarting {
				word = string(c.Status) + c.Reason
			}
		}
		if len(reported) == 0 || reported[len(reported)-1] != word {
			reported = append(reported, word)
		}
		initialized := !slices.ContainsFunc(s.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodInitialized && c.Status == v1.ConditionFalse
		})
		for _, c := range append(s.ContainerStatuses, s.InitContainerStatuses...) {
			if c.ContainerID != "" && strings.HasPrefix(word, "True") && (c.State.Terminated != nil || c.State.Waiting != nil && c.State.Waiting.Reason !=
				messages.ReasonRestartingAll || !initialized) {
				t.Errorf("meanwhile it is told of %s: %+v, initialized %v", c.Name, c.State, initialized)
			}
		}
	}
	w.step(nil)
	w.settle()
	check(t, w)
	if got := w.made(); !maps.EqualFunc(got, again, slices.Equal) {
		t.Errorf("made: %v", got)
	}
	if got := w.runningNames(); !slices.Equal(got, []string{"c0", "c1", "init1"}) {
		t.Errorf("running: %v", got)
	}
	if want := []Phase{Reading, Preparing, Initializing, Running, Preparing, Initializing, Running}; !slices.Equal(w.phases, want) {
		t.Errorf("phases %v", w.phases)
	}
	if want := []string{"False", "TrueRestartAllContainersStarted", "False"}; !slices.Equal(reported, want) {
		t.Errorf("the condition is told as %q", reported)
	}
	if !slices.Equal(w.stops, []string{"c1", "init1"}) {
		t.Errorf("stopped %v", w.stops)
	}
	for _, m := range w.stopping {
		if !m.NoHook || m.Grace != stoporder.LeastGrace || m.Cause.Code != messages.CauseAllRestarted ||
			!strings.Contains(m.Cause.Text, "container c0 exited with code 42") {
			t.Errorf("%s is stopped by %+v", m.Name, m)
		}
	}
	for _, c := range append(w.status.ContainerStatuses, w.status.InitContainerStatuses...) {
		if c.RestartCount != 1 || c.LastTerminationState.Terminated == nil {
			t.Errorf("%s: %d restarts, last %+v", c.Name, c.RestartCount, c.LastTerminationState)
		}
	}
}

// at advances the world until it is idle, and calls do at the n-th step. It reports whether there were so many.
func (w *world) at(n int, do func()) bool {
	w.step(nil)
	for i, idle := 0, 0; idle < 3; i++ {
		if i == n {
			do()
		}
		switch w.live(); {
		case len(w.pending) > 0:
			m := w.pending[0]
			w.pending = w.pending[1:]
			w.step(m)
		case !w.nextTime().IsZero() && w.nextTime().Sub(w.now) < 10*time.Minute:
			w.now = w.nextTime()
			w.step(nil)
		default:
			if idle++; idle == 1 && i < n {
				return false
			}
			w.now = w.now.Add(time.Minute)
			w.send(w.observed())
		}
	}
	return true
}

// everywhere repeats the same scenario, with an incident at another step each time.
func everywhere(t *testing.T, begin func() *world, after func(w *world) string) {
	t.Helper()
	for what, do := range map[string]func(*world){
		"the actor is killed": func(w *world) { w.restart() },
		"a message is lost": func(w *world) {
			if len(w.pending) > 0 {
				w.lose(w.pending[0])
				w.pending = w.pending[1:]
			}
		},
		"a message is doubled": func(w *world) {
			if len(w.pending) > 0 {
				w.pending = append(w.pending, w.pending[0])
			}
		},
		"a start is cut off": func(w *world) { w.halfway = 1; w.live(); w.restart() },
	} {
		for n := 0; ; n++ {
			w := begin()
			if !w.at(n, func() { do(w) }) {
				if n < 20 {
					t.Errorf("the story is over after %d steps", n)
				}
				break
			}
			check(t, w)
			if wrong := after(w); wrong != "" {
				t.Fatalf("%s at step %d: %s\nafter\n%s", what, n, wrong, strings.Join(w.trace, "\n"))
			}
		}
	}
}

// Whatever is killed or lost at any step, all containers are restarted, exactly once.
func TestAllAreRestartedWhateverFalls(t *testing.T) {
	everywhere(t, func() *world {
		w := newWorld(restartingPod(v1.RestartPolicyNever))
		w.exit = once
		return w
	}, func(w *world) string {
		made := map[string][]uint32{}
		for _, f := range slices.Backward(w.containers) {
			of, _ := rounds.Marked(&f)
			made[f.Name] = append(made[f.Name], of)
		}
		for name, got := range made {
			if !slices.Equal(slices.Compact(got), []uint32{0, 1}) && !(w.halfway == 0 && len(got) > 0 && got[len(got)-1] == 1) {
				return fmt.Sprintf("%s was made in rounds %v", name, got)
			}
		}
		if got := w.runningNames(); !slices.Equal(got, []string{"c0", "c1", "init1"}) {
			return fmt.Sprintf("running: %v", got)
		}
		return w.mixedRounds()
	})
}

// The others end for good meanwhile, since they are stopped: that is not the end of the pod, whichever actor observes it.
func TestASidecarsRuleWhateverFalls(t *testing.T) {
	everywhere(t, func() *world {
		pod := restartingPod(v1.RestartPolicyNever)
		pod.Spec.InitContainers[1].RestartPolicyRules = rule(v1.ContainerRestartRuleActionRestartAllContainers, 7)
		w := newWorld(pod)
		w.heeded = 0
		w.exit = func(name string, attempt uint32) (int32, bool) {
			if name == "init1" {
				return 7, attempt == 0 && slices.Contains(w.runningNames(), "c1")
			}
			return 0, name == "init0"
		}
		return w
	}, func(w *world) string {
		if got := w.runningNames(); !slices.Equal(got, []string{"c0", "c1", "init1"}) || w.machine.rounds.Now != 1 {
			return fmt.Sprintf("round %d, running: %v", w.machine.rounds.Now, got)
		}
		return w.mixedRounds()
	})
}

// A sidecar that is ended after an init container has failed begins no round.
func TestAnEndAfterAFailureBeginsNothing(t *testing.T) {
	everywhere(t, func() *world {
		pod := restartingPod(v1.RestartPolicyNever)
		inits := pod.Spec.InitContainers
		inits[0], inits[1] = inits[1], inits[0]
		inits[0].RestartPolicyRules = rule(v1.ContainerRestartRuleActionRestartAllContainers, 143)
		w := newWorld(pod)
		w.exit = func(name string, _ uint32) (int32, bool) {
			return 1, name == "init0" && w.now.After(time.Unix(1_000_000, 100))
		}
		return w
	}, func(w *world) string {
		if got := w.made(); len(got["init0"]) != 1 || w.machine.Phase() != Finished || w.status.Phase != v1.PodFailed {
			return fmt.Sprintf("%s, %s: %v", w.machine.Phase(), w.status.Phase, got)
		}
		return ""
	})
}

// A sidecar that is ended with its pod begins no round, whatever its exit code, even if the actor fails meanwhile.
func TestAnEndAfterThePodsBeginsNothing(t *testing.T) {
	everywhere(t, func() *world {
		pod := restartingPod(v1.RestartPolicyNever)
		pod.Spec.InitContainers[1].RestartPolicyRules = rule(v1.ContainerRestartRuleActionRestartAllContainers, 143)
		w := newWorld(pod)
		w.exit = func(name string, _ uint32) (int32, bool) { return 0, name != "init1" }
		return w
	}, func(w *world) string {
		if got := w.made(); len(got["c0"]) != 1 || w.machine.Phase() != Finished || w.status.Phase != v1.PodSucceeded {
			return fmt.Sprintf("%s, %s: %v", w.machine.Phase(), w.status.Phase, got)
		}
		return ""
	})
}

// The further effects of the rule, and their limits.
func TestWhoIsRestarted(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(w *world)
		want   map[string]int // number of creations of each
		phase  v1.PodPhase
	}{
		{"a sidecar's rule", func(w *world) {
			w.pod.Spec.InitContainers[1].RestartPolicyRules = rule(v1.ContainerRestartRuleActionRestartAllContainers, 7)
			w.exit = func(name string, attempt uint32) (int32, bool) {
				if name == "init1" {
					return 7, attempt == 0 && slices.Contains(w.runningNames(), "c1")
				}
				return 0, name == "init0"
			}
		}, map[string]int{"init0": 2, "init1": 2, "c0": 2, "c1": 2}, v1.PodRunning},
		{"an init container's rule", func(w *world) {
			w.pod.Spec.InitContainers[0], w.pod.Spec.InitContainers[1] = w.pod.Spec.InitContainers[1], w.pod.Spec.InitContainers[0]
			w.pod.Spec.InitContainers[1].RestartPolicy = new(v1.ContainerRestartPolicyNever)
			w.pod.Spec.InitContainers[1].RestartPolicyRules = rule(v1.ContainerRestartRuleActionRestartAllContainers, 7)
			w.exit = func(name string, attempt uint32) (int32, bool) { return 7 * int32(1-min(attempt, 1)), name == "init0" }
		}, map[string]int{"init0": 2, "init1": 2, "c0": 1, "c1": 1}, v1.PodRunning},
		{"one that had completed", func(w *world) {
			w.exit = func(name string, attempt uint32) (int32, bool) {
				if name == "c0" {
					return 42, attempt == 0 && len(w.made()["c1"]) > 0 && !slices.Contains(w.runningNames(), "c1")
				}
				return 0, name != "init1"
			}
		}, map[string]int{"init0": 2, "init1": 2, "c0": 2, "c1": 2}, v1.PodRunning},
		{"the gate is off", func(w *world) {
			w.set.RestartAll = false
			w.machine = NewMachine("u1", w.set)
		}, map[string]int{"init0": 1, "init1": 1, "c0": 1, "c1": 1}, v1.PodRunning},
		{"an earlier rule", func(w *world) {
			w.pod.Spec.Containers[0].RestartPolicyRules = append(rule(v1.ContainerRestartRuleActionRestart, 42),
				w.pod.Spec.Containers[0].RestartPolicyRules...)
		}, map[string]int{"init0": 1, "init1": 1, "c0": 2, "c1": 1}, v1.PodRunning},
		{"a debugger stays", func(w *world) { w.pod = debugged(w.pod, "debug0", "") },
			map[string]int{"init0": 2, "init1": 2, "c0": 2, "c1": 2, "debug0": 1}, v1.PodRunning},
	} {
		w := newWorld(restartingPod(v1.RestartPolicyNever))
		w.exit = once
		c.change(w)
		w.step(nil)
		w.settle()
		check(t, w)
		got := map[string]int{}
		for name, all := range w.made() {
			got[name] = len(all)
		}
		if got["debug0"] > 0 && !slices.Contains(w.runningNames(), "debug0") {
			t.Errorf("%s: running %v", c.name, w.runningNames())
		}
		if !maps.Equal(got, c.want) || w.status.Phase != c.phase {
			t.Errorf("%s: made %v, %s", c.name, got, w.status.Phase)
		}
	}
}

// No back-off delays a restart of all: neither of the container that ended by the rule nor of one that already waited.
func TestNobodyWaitsToBeRestartedWithAll(t *testing.T) {
	w := newWorld(restartingPod(v1.RestartPolicyAlways))
	w.exit = func(name string, attempt uint32) (int32, bool) {
		switch name {
		case "init0":
			return 0, true
		case "c1":
			return 1, attempt < 4
		case "c0":
			c1 := w.machine.Container("c1")
			return 42, attempt < 4 && c1.Backoff.Step > 2 && c1.Exited() != nil && c1.Stage() == messages.StageIdle
		}
		return 0, false
	}
	w.step(nil)
	w.settle()
	check(t, w)
	ended := time.Time{} // the last end of c0
	for _, f := range slices.Backward(w.containers) {
		if round, _ := rounds.Marked(&f); round > 0 && f.CreatedAt.Sub(ended) > time.Second && f.Name[0] == 'c' && f.Attempt < 5 {
			t.Errorf("attempt %d of %s is made %v after the end that began round %d", f.Attempt, f.Name, f.CreatedAt.Sub(ended), round)
		}
		if f.Name == "c0" {
			ended = f.FinishedAt
		}
	}
	if w.machine.rounds.Now == 0 {
		t.Error("nothing was restarted")
	}
}

// A container that was created and never ran is created again in the new round.
func TestWhatNeverRanIsMadeAnew(t *testing.T) {
	w := newWorld(restartingPod(v1.RestartPolicyNever))
	w.exit = func(name string, attempt uint32) (int32, bool) {
		if name == "c0" && len(w.made()["c1"]) == 0 {
			w.halfway = 1 // the start of c1, which comes next
			return 0, false
		}
		return once(name, attempt)
	}
	w.step(nil)
	w.settle()
	check(t, w)
	if got := w.made()["c1"]; len(got) < 2 || slices.Contains(w.stops, "c1") || !strings.HasSuffix(got[len(got)-1], "round 1") {
		t.Errorf("c1 was made: %v, running %v", got, w.runningNames())
	}
}

// A kubelet in between restarts a container, which carries no round then: the next agent leaves all alone.
func TestAKubeletInBetweenEndsNothing(t *testing.T) {
	w := newWorld(restartingPod(v1.RestartPolicyNever))
	w.exit = once
	w.step(nil)
	w.settle()
	before := w.made()
	for i := range w.containers {
		if c := &w.containers[i]; c.Name == "c1" && c.Attempt == 1 {
			w.exitContainer(c, 1)
			anew := *c
			anew.ID, anew.Attempt, anew.State, anew.Annotations = "kubelet", 2, messages.ContainerRunning, nil
			anew.CreatedAt, anew.StartedAt, anew.FinishedAt = w.now, w.now, time.Time{}
			w.containers = slices.Insert(w.containers, 0, anew)
			break
		}
	}
	w.stops = nil
	for range 2 { // while it runs, and when it has ended well
		w.restart()
		w.settle()
		if len(w.stops) > 0 || w.machine.rounds.Now != 1 || len(w.made()["c1"]) != 3 || len(w.made()["c0"]) != len(before["c0"]) {
			t.Errorf("stopped %v, round %d, made %v", w.stops, w.machine.rounds.Now, w.made())
		}
		w.exitContainer(&w.containers[0], 0)
	}
	check(t, w)
}

// A kubelet has removed the containers to restart all: they no longer count as ended.
func TestAKubeletsRestartGoesOn(t *testing.T) {
	pod := restartingPod(v1.RestartPolicyNever)
	pod.Annotations = map[string]string{objectset.SourceAnnotation: objectset.APISource}
	w := newWorld(pod)
	gone := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137, Reason: messages.ReasonRestartingAll}}
	w.last = &v1.PodStatus{Phase: v1.PodRunning}
	for _, name := range []string{"c0", "c1"} {
		w.last.ContainerStatuses = append(w.last.ContainerStatuses, v1.ContainerStatus{Name: name, ContainerID: "sim://" + name,
			RestartCount: 1, LastTerminationState: gone,
			State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: messages.ReasonPodInitializing}}})
	}
	w.exit = func(name string, _ uint32) (int32, bool) { return 0, name == "init0" }
	w.step(nil)
	w.settle()
	check(t, w)
	if got := w.runningNames(); !slices.Equal(got, []string{"c0", "c1", "init1"}) {
		t.Errorf("running: %v", got)
	}
}
