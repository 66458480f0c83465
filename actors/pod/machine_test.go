package pod

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

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
		})
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
	want := []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 300 * time.Second, 300 * time.Second}
	if !slices.Equal(waits, want) {
		t.Errorf("waits %v, want %v", waits, want)
	}
}

func TestALostSandboxIsMadeAgainAndInitRunsAgain(t *testing.T) {
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

func TestAFailedInitContainerFailsThePodThatNeverRestarts(t *testing.T) {
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
	w.send(w.wish())
	w.settle()
	check(t, w)
	if len(w.containers)+len(w.sandboxes) > 0 || w.mounted || !w.foldersOut || w.ended == nil || !w.ended.Gone {
		t.Errorf("left: %v %v, mounted %v, folders removed %v, ended %+v", w.containers, w.sandboxes, w.mounted, w.foldersOut, w.ended)
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
	w.send(w.wish())
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
	w.send(w.wish())
	w.settle()
	check(t, w)
	if want := []string{"c0", "c1", "init1", "init0"}; !slices.Equal(w.stops, want) {
		t.Errorf("stopped %v, want %v", w.stops, want)
	}
}

func TestLearnGoesForwardOnly(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	running := messages.ContainerFact{ID: "a", Attempt: 1, State: messages.ContainerRunning, CreatedAt: at(10)}
	exited := messages.ContainerFact{ID: "a", Attempt: 1, State: messages.ContainerExited, CreatedAt: at(10), ExitCode: 3}
	older := messages.ContainerFact{ID: "z", Attempt: 0, State: messages.ContainerExited, CreatedAt: at(5)}
	twin := messages.ContainerFact{ID: "b", Attempt: 1, State: messages.ContainerRunning, CreatedAt: at(9)}
	for _, c := range []struct {
		name string
		told []messages.ContainerFact
		want messages.ContainerFact
	}{
		{"an end is final", []messages.ContainerFact{running, exited, running}, exited},
		{"a later attempt stays newest", []messages.ContainerFact{running, older}, running},
		{"an earlier twin of the attempt is not taken", []messages.ContainerFact{running, twin}, running},
		{"an end is learnt", []messages.ContainerFact{older, running, exited}, exited},
	} {
		b := &con{}
		for _, f := range c.told {
			b.learn(f)
		}
		if got := b.newest(); got.ID != c.want.ID || got.State != c.want.State {
			t.Errorf("%s: %s %s", c.name, got.ID, got.State)
		}
	}
}

func TestAReadingThatIsOvertakenIsNotTaken(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.step(nil)
	w.settle()
	old := w.observed()
	old.Facts.ReadAt = w.now.Add(-time.Hour)
	old.Facts.Sandboxes = nil
	w.step(old)
	if w.machine.box.current() == nil {
		t.Error("an old reading took the sandbox away")
	}
}

// TestWhateverHappens: messages in any order, lost and doubled, the actor killed, the sandbox lost, the pod ended at any
// moment. No container of a terminated pod is started, none is started twice, every edge is in the table, and when the
// storm is over the pod is where it should be: it is never stuck.
func TestWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom([]v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}).Draw(t, "policy")
		pod := testPod(policy, rapid.IntRange(0, 2).Draw(t, "init"), rapid.IntRange(1, 3).Draw(t, "regular"))
		if len(pod.Spec.InitContainers) > 0 && rapid.Bool().Draw(t, "sidecar") {
			pod.Spec.InitContainers[0].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
		w := newWorld(pod)
		crashes := rapid.IntRange(0, 3).Draw(t, "crashes")
		w.exit = func(name string, attempt uint32) (int32, bool) {
			if name[0] == 'i' && !(name == "init0" && len(pod.Spec.InitContainers) > 0 && pod.Spec.InitContainers[0].RestartPolicy != nil) {
				return 0, true
			}
			return 1, int(attempt) < crashes
		}
		w.step(nil)
		for range rapid.IntRange(0, 120).Draw(t, "steps") {
			storm(t, w)
		}
		w.halfway = 0
		w.exit = func(name string, attempt uint32) (int32, bool) {
			sidecar := name == "init0" && len(pod.Spec.InitContainers) > 0 && pod.Spec.InitContainers[0].RestartPolicy != nil
			return 0, name[0] == 'i' && !sidecar
		}
		w.settle()
		w.settle()
		check(t, w)
		if wrong := afterTheStorm(w); wrong != "" {
			t.Fatalf("%s: %+v\nafter\n%s", wrong, w.machine.Inspect(), strings.Join(w.trace, "\n"))
		}
	})
}

// storm is one thing going right or wrong.
func storm(t *rapid.T, w *world) {
	switch rapid.SampledFrom([]string{"deliver", "deliver", "deliver", "any", "lose", "double", "time", "live", "restart", "sandbox", "power", "halfway", "unknown", "removed", "address", "edit", "end"}).Draw(t, "event") {
	case "deliver":
		if len(w.pending) > 0 {
			m := w.pending[0]
			w.pending = w.pending[1:]
			w.step(m)
		}
	case "any", "double":
		if n := len(w.pending); n > 0 {
			i := rapid.IntRange(0, n-1).Draw(t, "which")
			m := w.pending[i]
			if rapid.Bool().Draw(t, "keep") {
				w.pending = slices.Delete(w.pending, i, i+1)
			}
			w.step(m)
		}
	case "lose":
		if len(w.pending) > 0 {
			w.lose(w.pending[0])
			w.pending = w.pending[1:]
		}
	case "time":
		w.now = w.now.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "seconds")) * time.Second)
		w.arrive()
		w.step(nil)
	case "live":
		w.live()
	case "restart":
		w.restart()
	case "sandbox":
		if len(w.sandboxes) > 0 {
			w.sandboxes[0].Ready = false
			w.send(w.observed())
		}
	case "power": // the machine goes off and on: sandboxes are dead, what was created stays created
		for i := range w.sandboxes {
			w.sandboxes[i].Ready = false
			w.killIn(w.sandboxes[i].ID)
		}
		w.restart()
	case "halfway": // the agent dies between creating a container and starting it, or the start fails
		w.halfway = rapid.IntRange(1, 3).Draw(t, "starts")
	case "address": // the network forgets the pod
		if len(w.sandboxes) > 0 && !w.sandboxes[0].HostNet {
			w.sandboxes[0].IPs, w.sandboxes[0].NoIP = nil, w.sandboxes[0].Ready
			w.send(w.observed())
		}
	case "edit":
		w.edit(func(s *v1.PodSpec) {
			if rapid.Bool().Draw(t, "network") {
				s.HostNetwork = !s.HostNetwork
				return
			}
			s.Containers[0].Image += "'"
		})
	case "unknown", "removed":
		someone(t, w)
	case "end":
		if w.ending == nil && rapid.IntRange(0, 4).Draw(t, "really") == 0 {
			w.ending = &messages.Ending{Reason: "storm"}
			w.send(w.wish())
		}
	}
}

// someone is a runtime that forgets the state of a container, or a person who removes one.
func someone(t *rapid.T, w *world) {
	n := len(w.containers)
	if n == 0 {
		return
	}
	i := rapid.IntRange(0, n-1).Draw(t, "container")
	switch c := &w.containers[i]; {
	case rapid.Bool().Draw(t, "remove"):
		w.containers = slices.Delete(w.containers, i, i+1)
	case c.State == messages.ContainerRunning:
		c.State = messages.ContainerUnknown
	}
	w.send(w.observed())
}

// afterTheStorm says what is wrong with the pod when all is quiet again.
func afterTheStorm(w *world) string {
	phase := w.machine.Phase()
	switch {
	case w.ending != nil:
		if phase != Finished || len(w.containers)+len(w.sandboxes) > 0 || w.ended == nil || !w.ended.Gone {
			return fmt.Sprintf("an ended pod is %s with %v and %v", phase, w.containers, w.sandboxes)
		}
	case phase == Finished:
		if w.pod.Spec.RestartPolicy == v1.RestartPolicyAlways || len(w.runningNames()) > 0 {
			return fmt.Sprintf("it finished with %s, running %v", w.pod.Spec.RestartPolicy, w.runningNames())
		}
	case phase == Running:
		if s := w.sandboxes[0]; s.HostNet != w.pod.Spec.HostNetwork || s.NoIP {
			return fmt.Sprintf("its sandbox is %+v", s)
		}
		for _, c := range w.pod.Spec.Containers {
			if w.pod.Spec.RestartPolicy == v1.RestartPolicyAlways && !slices.Contains(w.runningNames(), c.Name) {
				return c.Name + " does not run"
			}
			for _, f := range w.containers {
				if f.Name == c.Name && f.State == messages.ContainerRunning && (f.Image != c.Image || f.SandboxID != w.sandboxes[0].ID) {
					return fmt.Sprintf("%s runs %s in %s, wanted is %s in %s", c.Name, f.Image, f.SandboxID, c.Image, w.sandboxes[0].ID)
				}
			}
		}
	default:
		return "it is stuck"
	}
	return ""
}

// A start that was cut off by the death of the agent is done again under the same attempt, at once, whatever restartPolicy.
func TestAStartThatWasCutOffIsDoneAgainAndNotCounted(t *testing.T) {
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyNever} {
		w := newWorld(testPod(policy, 0, 1))
		w.sandboxes = []messages.SandboxFact{{ID: "s0", Ready: true, CreatedAt: w.now, IPs: []string{"10.88.0.2"}}}
		w.containers = []messages.ContainerFact{{
			ID: "left", Name: "c0", SandboxID: "s0", State: messages.ContainerExited, CreatedAt: w.now, FinishedAt: w.now,
			ExitCode: 128, Reason: messages.ReasonStartError, Message: "failed to create containerd task: context canceled", Image: "image",
		}}
		w.step(nil)
		w.settle()
		check(t, w)
		if len(w.containers) != 1 || w.containers[0].ID == "left" || w.containers[0].State != messages.ContainerRunning || w.containers[0].Attempt != 0 {
			t.Errorf("%s: containers %+v", policy, w.containers)
		}
		if w.status.Phase != v1.PodRunning || w.status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s: status %+v", policy, w.status)
		}
	}
}
