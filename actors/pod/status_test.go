package pod

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/messages"
)

func sidecarPod(policy v1.RestartPolicy, sidecars, regular int) *v1.Pod {
	pod := testPod(policy, sidecars, regular)
	for i := range pod.Spec.InitContainers {
		pod.Spec.InitContainers[i].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	}
	return pod
}

// However a pod ends, it is not reported as final while any of its containers runs.
func TestPhase_RunningWhileAContainerRuns(t *testing.T) {
	for name, end := range map[string]func(*world){
		"succeeded": func(w *world) { w.exit = func(name string, _ uint32) (int32, bool) { return 0, name == "c0" } },
		"failed":    func(w *world) { w.exit = func(name string, _ uint32) (int32, bool) { return 1, name == "c0" } },
		"deadline":  func(w *world) { w.pod.Spec.ActiveDeadlineSeconds = new(int64(30)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(sidecarPod(v1.RestartPolicyNever, 1, 1))
			end(w)
			w.watch = func(s *v1.PodStatus) {
				if over := s.Phase == v1.PodSucceeded || s.Phase == v1.PodFailed; over && len(w.runningNames()) > 0 {
					t.Errorf("phase %s, running %v", s.Phase, w.runningNames())
				}
				for i := range s.ContainerStatuses {
					if s.ContainerStatuses[i].State.Terminated != nil && s.Phase == v1.PodPending {
						t.Error("a pod that has run is pending")
					}
				}
			}
			w.step(nil)
			w.settle()
			check(t, w)
			if want := map[string]v1.PodPhase{"succeeded": v1.PodSucceeded}[name]; w.ended == nil ||
				(want != "" && w.status.Phase != want) || (want == "" && w.status.Phase != v1.PodFailed) {
				t.Errorf("in the end it is %s", w.status.Phase)
			}
		})
	}
}

// All containers of a pod share its grace period; a sidecar has at least two seconds (KEP-753).
func TestSidecarsGetWhatIsLeftOfTheGrace(t *testing.T) {
	pod := sidecarPod(v1.RestartPolicyAlways, 3, 1)
	pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
	w := newWorld(pod)
	w.step(nil)
	w.settle()
	check(t, w)
	a := &alone{now: w.now, machine: w.machine}
	a.hears(messages.PodWanted{Pod: pod, Generation: 2, Ending: &messages.Ending{Since: a.now}})
	takes := map[string]time.Duration{"c0": 10 * time.Second, "init2": 15 * time.Second, "init1": 4 * time.Second, "init0": 0}
	var got []time.Duration
	for range takes {
		stops := slices.DeleteFunc(sentOf[messages.StopContainer](a.take()),
			func(s messages.StopContainer) bool { return s.HookOnly })
		if len(stops) != 1 {
			t.Fatalf("told to stop: %+v", stops)
		}
		got = append(got, stops[0].Grace)
		f := stops[0].Fact
		f.State, f.ExitCode, f.FinishedAt = messages.ContainerExited, 137, a.now
		a.now = a.now.Add(takes[f.Name])
		a.hears(a.ended(f))
	}
	if want := []time.Duration{30 * time.Second, 20 * time.Second, 5 * time.Second, 2 * time.Second}; !slices.Equal(got, want) {
		t.Errorf("given %v, want %v", got, want)
	}
}

// A pod's addresses are reported after its end, and while its sandbox is replaced.
func TestAddressesStay(t *testing.T) {
	for _, host := range []bool{false, true} {
		pod := testPod(v1.RestartPolicyNever, 0, 1)
		pod.Spec.HostNetwork = host
		want := map[bool]string{false: "10.88.0.2", true: "10.0.0.1"}[host]
		w := newWorld(pod)
		seen := false
		w.watch = func(s *v1.PodStatus) {
			seen = seen || s.PodIP != ""
			if seen && (s.PodIP != want || len(s.PodIPs) != 1) {
				t.Errorf("hostNetwork %v, %s: podIP %q, podIPs %v", host, s.Phase, s.PodIP, s.PodIPs)
			}
		}
		w.step(nil)
		w.settle()
		w.exit = func(string, uint32) (int32, bool) { return 0, true }
		w.settle()
		check(t, w)
		if !seen || w.status.Phase != v1.PodSucceeded {
			t.Errorf("hostNetwork %v: %s, an address was told: %v", host, w.status.Phase, seen)
		}
	}
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.step(nil)
	w.settle()
	w.sandboxes[0].Ready, w.sandboxes[0].IPs = false, nil
	w.step(w.observed())
	if w.status.PodIP != "10.88.0.2" {
		t.Errorf("with the sandbox its address is gone: %q", w.status.PodIP)
	}
	w.settle()
	if check(t, w); w.status.PodIP != "10.88.0.3" {
		t.Errorf("in its second sandbox it is at %q", w.status.PodIP)
	}
}

// A sandbox without an address is replaced, and so is one with another kind of network than the pod's.
func TestASandboxOfNoUseIsReplaced(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"no address": func(w *world) {
			w.sandboxes[0].IPs, w.sandboxes[0].NoIP = nil, true
			w.send(w.observed())
		},
		"another network": func(w *world) { w.edit(func(s *v1.PodSpec) { s.HostNetwork = true }) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
			w.step(nil)
			w.settle()
			change(w)
			w.settle()
			check(t, w)
			s := w.sandboxes[0]
			if s.Attempt != 1 || !s.Ready || s.HostNet != w.pod.Spec.HostNetwork || w.sandboxes[1].Ready {
				t.Errorf("sandboxes %+v", w.sandboxes)
			}
			if c := w.containers[0]; c.State != messages.ContainerRunning || c.SandboxID != s.ID ||
				!slices.Equal(w.stops, []string{"c0"}) {
				t.Errorf("stopped %v, containers %+v", w.stops, w.containers)
			}
		})
	}
}

// If the runtime gives no sandbox an address, new ones are requested with pauses.
func TestSandboxesWithoutAddressArePaused(t *testing.T) {
	a := newAlone(testPod(v1.RestartPolicyAlways, 0, 1))
	a.hears(grouped(a.machine.Pod))
	a.observes(nil)
	for attempt := range uint32(4) {
		if starts := effects[work.StartSandbox](a.take()); len(starts) != 1 || starts[0].Attempt != attempt {
			t.Fatalf("attempt %d: %+v", attempt, starts)
		}
		s := messages.SandboxFact{ID: string(rune('a' + attempt)), Attempt: attempt, Ready: true, NoIP: true, CreatedAt: a.now}
		a.hears(work.SandboxStarted{Attempt: attempt, Fact: &s})
		a.now = a.now.Add(time.Millisecond)
		a.observes([]messages.SandboxFact{s})
		fx := a.take()
		if n := len(effects[work.StopSandbox](fx)) + len(effects[work.StartSandbox](fx)); n > 0 {
			t.Errorf("attempt %d: %d things done at once", attempt, n)
		}
		if r := a.machine.waiting(); r == nil || r.Code != messages.ReasonCreateSandbox {
			t.Errorf("attempt %d: it waits for %v", attempt, r)
		}
		a.passes(10 * time.Second)
		a.hears(work.SandboxStopped{ID: s.ID})
	}
}

// The start time outlives the agent and the pod's first sandbox, and the deadline counts from it.
func TestTheStartTimeStays(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, 0, 1)
	pod.Spec.ActiveDeadlineSeconds = new(int64(3600))
	w := newWorld(pod)
	w.step(nil)
	w.settle()
	start := *w.status.StartTime
	for range 2 {
		w.sandboxes[0].Ready = false
		w.killIn(w.sandboxes[0].ID)
		w.send(w.observed())
		w.settle()
		w.sandboxes, w.containers = w.sandboxes[:1], w.containers[:1] // the collector
		w.restart()
		w.settle()
		if w.status.StartTime == nil || !w.status.StartTime.Equal(&start) {
			t.Errorf("started %v, want %v", w.status.StartTime, start)
		}
	}
	check(t, w)
	if at, ok := w.machine.Deadline(); !ok || at.Sub(start.Time).Truncate(time.Second) != time.Hour {
		t.Errorf("deadline %v, started %v", at, start)
	}
	w.machine.Pod.Spec.ActiveDeadlineSeconds = new(int64(math.MaxInt64))
	if at, ok := w.machine.Deadline(); !ok || at.Before(start.Add(time.Hour)) {
		t.Errorf("the longest deadline ends at %v, started %v", at, start)
	}
}

// A sandbox of a kubelet carries no start time: the pod's is the creation of the oldest remaining sandbox.
func TestTheStartTimeOfAKubeletsPod(t *testing.T) {
	a := newAlone(testPod(v1.RestartPolicyAlways, 0, 1))
	made := a.now.Add(-time.Hour)
	a.observes([]messages.SandboxFact{{ID: "s1", Attempt: 1, Ready: true, CreatedAt: made.Add(time.Minute)},
		{ID: "s0", CreatedAt: made}})
	if !a.machine.Started.Equal(made) {
		t.Errorf("started %v, want %v", a.machine.Started, made)
	}
}

// Containers of a finished pod have an end, whether they ran or not; containers that were never due keep waiting.
func TestFinishedPod_ContainersAreTerminated(t *testing.T) {
	waits, lost, done := "waits", "lost", "done"
	for name, c := range map[string]struct {
		pod  *v1.Pod
		exit func(name string, attempt uint32) (int32, bool)
		want map[string]string
	}{
		"never started": {testPod(v1.RestartPolicyAlways, 0, 2), nil, map[string]string{"c0": lost, "c1": lost}},
		"the first init container never started": {
			testPod(v1.RestartPolicyAlways, 2, 1), nil, map[string]string{"init0": lost, "init1": waits, "c0": waits},
		},
		"an init container failed": {
			testPod(v1.RestartPolicyNever, 2, 1), func(name string, _ uint32) (int32, bool) { return 3, name == "init0" },
			map[string]string{"init0": done, "init1": waits, "c0": waits},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(c.pod)
			if w.noImages = c.exit == nil; !w.noImages {
				w.exit = c.exit
			}
			c.pod.Spec.ActiveDeadlineSeconds = new(int64(30))
			w.step(nil)
			w.settle()
			check(t, w)
			if w.ended == nil || w.status.Phase != v1.PodFailed {
				t.Fatalf("it is %s", w.status.Phase)
			}
			for _, s := range append(slices.Clone(w.status.InitContainerStatuses), w.status.ContainerStatuses...) {
				got := waits
				if e := s.State.Terminated; e != nil {
					if got = done; e.Reason == messages.ReasonUnknown {
						got = lost
					}
				}
				if got != c.want[s.Name] {
					t.Errorf("%s: %s, want %s; %+v", s.Name, got, c.want[s.Name], s.State)
				}
			}
		})
	}
}

// A running init container proves that those before it have succeeded, even if the runtime has lost their records. The same holds
// for an agent that starts now.
func TestInitContainers_RecordsOfCompletedOnesAreLost(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		pod := testPod(v1.RestartPolicyAlways, 3, 1)
		w := newWorld(pod)
		w.exit = func(name string, _ uint32) (int32, bool) { return 0, name != "init2" && name != "c0" }
		w.step(nil)
		w.settle()
		w.containers = slices.DeleteFunc(w.containers, func(f messages.ContainerFact) bool { return f.Name != "init2" })
		if restarts {
			w.restart()
		}
		w.send(w.observed())
		w.settle()
		check(t, w)
		if len(w.containers) != 1 {
			t.Errorf("restarted agent %t: containers %+v, want init2 alone", restarts, w.containers)
		}
		if end := w.status.InitContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 0 ||
			restarts && !strings.HasPrefix(end.Message, "Unable to get init container status") {
			t.Errorf("restarted agent %t: status %+v, want a completed init container", restarts, w.status.InitContainerStatuses[0])
		}
	}
}

// Containers can start when there is a sandbox and the volumes are mounted, which happens in parallel. A container proves that to
// an actor without the state of the volumes.
func TestReadyToStartContainers(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.step(nil)
	w.settle()
	m := w.machine
	tells := func() v1.ConditionStatus { return conditionOf(m.status(), v1.PodReadyToStartContainers).Status }
	if m.volumes.mounted = false; tells() != v1.ConditionTrue {
		t.Error("a container runs, and it is told that none can be started")
	}
	c := m.Container("c0")
	attempts := c.Attempts
	if c.Attempts = nil; tells() != v1.ConditionFalse {
		t.Error("no volume is mounted, and it is told that containers can be started")
	}
	if m.volumes.mounted = true; tells() != v1.ConditionTrue {
		t.Error("all is there, and it is told that containers cannot be started")
	}
	c.Attempts = attempts
}
