package pod

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/starts"
	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/messages"
)

// probedPod returns a pod of one container with these probes.
func probedPod(policy v1.RestartPolicy, kinds ...messages.ProbeKind) *v1.Pod {
	pod := testPod(policy, 0, 1)
	give(&pod.Spec.Containers[0], kinds...)
	return pod
}

func give(c *v1.Container, kinds ...messages.ProbeKind) {
	for _, kind := range kinds {
		switch p := (&v1.Probe{PeriodSeconds: 1}); kind {
		case messages.Startup:
			c.StartupProbe = p
		case messages.Readiness:
			c.ReadinessProbe = p
		case messages.Liveness:
			c.LivenessProbe = p
		}
	}
}

// Started and Ready match the kubelet's for each combination of probes and results.
func TestStartedAndReady(t *testing.T) {
	const s, f = messages.ProbeSucceeded, messages.ProbeFailed
	startup, readiness, liveness := messages.Startup, messages.Readiness, messages.Liveness
	for name, c := range map[string]struct {
		kinds          []messages.ProbeKind
		results        messages.ProbeResults
		started, ready bool
		runs           []messages.ProbeKind
	}{
		"no probes": {nil, messages.ProbeResults{}, true, true, nil},
		"liveness alone": {[]messages.ProbeKind{liveness}, messages.ProbeResults{}, true, true,
			[]messages.ProbeKind{liveness}},
		"readiness, nothing known": {[]messages.ProbeKind{readiness}, messages.ProbeResults{}, true, false,
			[]messages.ProbeKind{readiness}},
		"readiness, failed": {[]messages.ProbeKind{readiness}, messages.ProbeResults{Readiness: f}, true, false,
			[]messages.ProbeKind{readiness}},
		"readiness, succeeded": {[]messages.ProbeKind{readiness}, messages.ProbeResults{Readiness: s}, true, true,
			[]messages.ProbeKind{readiness}},
		"startup, nothing known": {[]messages.ProbeKind{startup}, messages.ProbeResults{}, false, false,
			[]messages.ProbeKind{startup}},
		"startup, succeeded": {[]messages.ProbeKind{startup}, messages.ProbeResults{Startup: s}, true, true, nil},
		"all, nothing known": {[]messages.ProbeKind{startup, readiness, liveness}, messages.ProbeResults{}, false,
			false, []messages.ProbeKind{startup}},
		"all, started": {[]messages.ProbeKind{startup, readiness, liveness}, messages.ProbeResults{Startup: s},
			true, false, []messages.ProbeKind{readiness, liveness}},
		"all, ready": {[]messages.ProbeKind{startup, readiness, liveness},
			messages.ProbeResults{Startup: s, Readiness: s}, true, true, []messages.ProbeKind{readiness, liveness}},
		"ready before, not started": {[]messages.ProbeKind{startup, readiness}, messages.ProbeResults{Readiness: s}, false,
			false, []messages.ProbeKind{startup}},
		"of a probe that is not there": {nil, messages.ProbeResults{Readiness: f, Startup: f, Liveness: f}, true, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(probedPod(v1.RestartPolicyAlways, c.kinds...))
			m := w.machine
			m.phase, m.Pod = Running, w.pod
			m.MatchSpec()
			ctr := m.Containers[0]
			ctr.Learn(messages.ContainerFact{ID: "x", Name: "c0", State: messages.ContainerRunning}, w.now)
			ctr.Newest().Results = c.results
			m.Wanted = &messages.PodWanted{Pod: w.pod}
			st := m.status().ContainerStatuses[0]
			if *st.Started != c.started || st.Ready != c.ready {
				t.Errorf("started %v, ready %v", *st.Started, st.Ready)
			}
			if len(c.kinds) > 0 && !slices.Equal(m.runs(ctr), c.runs) {
				t.Errorf("it runs %v, want %v", m.runs(ctr), c.runs)
			}
			ctr.Learn(messages.ContainerFact{ID: "another", Name: "c0", Attempt: 1, State: messages.ContainerRunning}, w.now)
			if got := ctr.Results(); got != (messages.ProbeResults{}) {
				t.Errorf("of another container it takes %v", got)
			}
		})
	}
}

// A failing liveness or startup probe ends the container, with the probe's grace period. The strategy treats that as a failure,
// whatever the exit code.
func TestAFailingProbeIsAnEnd(t *testing.T) {
	for _, kind := range []messages.ProbeKind{messages.Liveness, messages.Startup} {
		for policy, again := range map[v1.RestartPolicy]bool{v1.RestartPolicyAlways: true, v1.RestartPolicyOnFailure: true,
			v1.RestartPolicyNever: false} {
			pod := probedPod(policy, kind)
			messages.Probe(&pod.Spec.Containers[0], kind).TerminationGracePeriodSeconds = new(int64(7))
			a := newReady(pod)
			a.hears(pulled("c0", "image"))
			one := messages.ContainerFact{ID: "one", Name: "c0", Image: "image", SandboxID: "s1",
				State: messages.ContainerRunning, CreatedAt: a.now, StartedAt: a.now}
			a.hears(started(one))
			watches := sentOf[messages.WatchProbes](a.take())
			if n := len(watches); n == 0 || watches[n-1].Containers[0].ID != "one" {
				t.Fatalf("told %+v", watches)
			}
			failed := messages.ObservedContainer{Name: "c0", ID: "one"}
			*failed.Results.Of(kind) = messages.ProbeFailed
			a.hears(messages.ProbesObserved{UID: "u1", Generation: watches[len(watches)-1].Generation,
				Containers: []messages.ObservedContainer{failed}})
			stops := sentOf[messages.StopContainer](a.take())
			want := messages.Cause{Code: messages.CauseProbeFailed, Name: string(kind), Detail: string(policy)}
			if len(stops) != 1 || stops[0].Grace != 7*time.Second || stops[0].Cause != want {
				t.Fatalf("%s: stops %+v", policy, stops)
			}
			a.passes(time.Minute)
			if repeated := sentOf[messages.StopContainer](a.take()); len(repeated) != 1 || repeated[0].Grace != 7*time.Second ||
				repeated[0].Cause != want {
				t.Errorf("asked again: %+v", repeated)
			}
			one.State, one.FinishedAt, one.ExitCode = messages.ContainerExited, a.now, 0
			if verdict := a.ended(one).Verdict; (verdict == messages.ExitRestarts) != again {
				t.Errorf("%s, %s: its end is answered with %s", kind, policy, verdict)
			}
		}
	}
}

// The next init container waits until a sidecar's startup probe has succeeded.
func TestSidecarStartupProbe_HoldsLaterContainers(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, 2, 1)
	pod.Spec.InitContainers[0].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	give(&pod.Spec.InitContainers[0], messages.Startup)
	w := newWorld(pod)
	w.exit = func(name string, _ uint32) (int32, bool) { return 0, name == "init1" }
	w.step(nil)
	for i := 0; len(w.pending) > 0 && i < 1000; i++ {
		m := w.pending[0]
		w.pending = w.pending[1:]
		w.step(m)
	}
	if got := w.runningNames(); !slices.Equal(got, []string{"init0"}) || w.machine.Phase() != Initializing {
		t.Fatalf("%s with %v", w.machine.Phase(), got)
	}
	w.settle()
	check(t, w)
	if got := w.runningNames(); !slices.Equal(got, []string{"c0", "init0"}) {
		t.Errorf("running %v", got)
	}
}

// The death of the pod's actor changes no readiness: no status is sent before the last results are known.
func TestARestartedActorKeepsReadiness(t *testing.T) {
	pod := probedPod(v1.RestartPolicyAlways, messages.Startup, messages.Readiness, messages.Liveness)
	pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{}}
	w := newWorld(pod)
	w.step(nil)
	w.settle()
	if !allReady(w.status) {
		t.Fatalf("%+v", w.status)
	}
	said := 0
	w.watch = func(s *v1.PodStatus) {
		said++
		if !allReady(s) || !*s.ContainerStatuses[0].Started {
			t.Errorf("it says %+v", s.ContainerStatuses)
		}
	}
	w.restart()
	w.settle()
	check(t, w)
	if said == 0 || len(w.stops) > 0 {
		t.Errorf("said %d times, stopped %v", said, w.stops)
	}
}

// A pod that is ending is probed for readiness alone.
func TestATerminatingPodIsAskedOnlyForReadiness(t *testing.T) {
	w := newWorld(probedPod(v1.RestartPolicyAlways, messages.Startup, messages.Readiness, messages.Liveness))
	w.step(nil)
	w.settle()
	w.ending = &messages.Ending{Reason: "test"}
	w.step(w.desired())
	if c := w.watched.Containers; len(c) != 1 || !slices.Equal(c[0].Run, []messages.ProbeKind{messages.Readiness}) {
		t.Errorf("it is probed so: %+v", c)
	}
	w.settle()
	check(t, w)
	if len(w.watched.Containers) > 0 || w.ended == nil || !w.ended.Gone {
		t.Errorf("in the end: %+v, %+v", w.watched, w.ended)
	}
}

// A sick container crash-loops with the kubelet's back-off, and its pod is never ready.
func TestASickContainerBacksOff(t *testing.T) {
	w := newWorld(probedPod(v1.RestartPolicyAlways, messages.Liveness, messages.Readiness))
	w.sick = map[string]bool{"c0/liveness": true, "c0/readiness": true}
	w.step(nil)
	w.settle()
	check(t, w)
	if len(w.containers) < 5 || strings.Join(w.stops[:2], " ") != "c0 c0" {
		t.Fatalf("%d containers, stops %v", len(w.containers), w.stops)
	}
	if wait := w.containers[0].CreatedAt.Sub(w.containers[1].FinishedAt); wait < 5*time.Minute {
		t.Errorf("the last back-off was %v", wait)
	}
}

// A container that a probe ends, or that its next version replaces, starts again although it ends well. Its pod continues, and is
// never reported as final, which the API server would not take back.
func TestContinuingPod_IsNotReportedAsOver(t *testing.T) {
	for name, test := range map[string]struct {
		policy v1.RestartPolicy
		own    *v1.ContainerRestartPolicy
		begin  func(*world)
	}{
		"ended by a probe":     {v1.RestartPolicyOnFailure, nil, (*world).fallIll},
		"the container's own":  {v1.RestartPolicyNever, new(v1.ContainerRestartPolicyOnFailure), (*world).fallIll},
		"replaced":             {v1.RestartPolicyNever, nil, (*world).replace},
		"replaced, by its own": {v1.RestartPolicyAlways, new(v1.ContainerRestartPolicyNever), (*world).replace},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(probedPod(test.policy, messages.Liveness))
			w.pod.Spec.Containers[0].RestartPolicy = test.own
			w.heeded = 0 // SIGTERM is handled, and the application ends well
			w.step(nil)
			w.settle()
			sent := map[v1.PodPhase]bool{}
			w.watch = func(s *v1.PodStatus) { sent[s.Phase] = true }
			test.begin(w)
			w.settle()
			check(t, w)
			if len(w.containers) < 2 || len(sent) != 1 || !sent[v1.PodRunning] {
				t.Errorf("%d containers, told to be %v", len(w.containers), sent)
			}
		})
	}
}

// fallIll makes the liveness probe fail for good.
func (w *world) fallIll() {
	w.sick = map[string]bool{"c0/" + string(messages.Liveness): true}
	w.send(w.word())
}

func (w *world) replace() {
	w.edit(func(s *v1.PodSpec) { s.Containers[0].Image = "next" })
}

// A container has not started before its post-start hook has ended, nor is it probed.
func TestAPostStartHookGatesWhatComesAfter(t *testing.T) {
	pod := probedPod(v1.RestartPolicyAlways, messages.Liveness)
	pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{}}
	a := newReady(pod)
	a.hears(pulled("c0", "image"))
	one := messages.ContainerFact{ID: "one", Name: "c0", Image: "image", SandboxID: "s1", State: messages.ContainerRunning,
		CreatedAt: a.now, StartedAt: a.now}
	last := func() (bool, []messages.ProbeKind) {
		fx := a.take()
		says, watches := sentOf[messages.PodStatusChanged](fx), sentOf[messages.WatchProbes](fx)
		c := says[len(says)-1].Status.ContainerStatuses[0]
		return *c.Started && c.Ready, watches[len(watches)-1].Containers[0].Run
	}
	a.hears(hooking(one))
	if started, runs := last(); started || len(runs) > 0 {
		t.Errorf("the hook runs: started %v, probes %v", started, runs)
	}
	a.passes(time.Minute)
	if n := len(sentOf[messages.RunContainer](a.take())); n != 1 {
		t.Errorf("the end of the hook is asked for %d times", n)
	}
	a.hears(started(one))
	if started, runs := last(); !started || len(runs) != 1 {
		t.Errorf("the hook has ended: started %v, probes %v", started, runs)
	}
}

// A sidecar that has ended does not start again while the last regular containers are being stopped for a failed probe: the pod
// is about to end.
func TestNoSidecarIsStartedBeforeTheEnd(t *testing.T) {
	for _, c := range []struct {
		policy v1.RestartPolicy
		stage  messages.ContainerStage
		want   starts.Blocker
	}{
		{v1.RestartPolicyNever, messages.StageRunning, starts.None},
		{v1.RestartPolicyNever, messages.StageStopping, starts.End},
		{v1.RestartPolicyAlways, messages.StageStopping, starts.None},
	} {
		pod := testPod(c.policy, 1, 1)
		pod.Spec.InitContainers[0].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		w := newWorld(pod)
		m := w.machine
		m.phase, m.Pod = Running, w.pod
		m.MatchSpec()
		sidecar, regular := m.Container("init0"), m.Container("c0")
		regular.Enter(messages.StageStarting)
		regular.Enter(c.stage)
		sidecar.Learn(messages.ContainerFact{ID: "1", Name: "init0", State: messages.ContainerExited, ExitCode: 1, FinishedAt: w.now}, w.now)
		m.now = w.now.Add(time.Hour)
		sidecar.Actor, sidecar.Image.Attempt, sidecar.Image.Ref = true, 1, "image"
		if got, _ := m.starts().Blocker(sidecar); got != c.want {
			t.Errorf("%s, %s: the sidecar lacks %q, not %q", c.policy, c.stage, got, c.want)
		}
	}
}

// A pod without probes is over without an answer of the prober. A restarted actor cannot know whether there were probes before an
// edit of the spec.
func TestProber_ReleasesOnlyPodsThatItMayHave(t *testing.T) {
	probed := testPod(v1.RestartPolicyAlways, 0, 1)
	probed.Spec.Containers[0].LivenessProbe = &v1.Probe{}
	for _, c := range []struct {
		name    string
		pod     *v1.Pod
		restart bool
		asked   bool
	}{
		{"without probes", testPod(v1.RestartPolicyAlways, 0, 1), false, false},
		{"without probes, after a restart", testPod(v1.RestartPolicyAlways, 0, 1), true, true},
		{"with probes", probed, false, true},
	} {
		w := newWorld(c.pod)
		w.step(nil)
		w.settle()
		if c.restart {
			w.restart()
			w.settle()
		}
		if c.restart {
			w.watched = nil
		}
		w.ending = &messages.Ending{Reason: "test"}
		w.send(w.desired())
		w.settle()
		check(t, w)
		if w.ended == nil || !w.ended.Gone || (w.watched != nil) != c.asked {
			t.Errorf("pod %s: the prober was asked: %v, want %v; ended: %+v", c.name, w.watched != nil, c.asked, w.ended)
		}
	}
}

// The folder of a pod that the prober has is kept until the prober has released it.
func TestProber_ReleasesBeforeVolumesAreUnmounted(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, 0, 1)
	pod.Spec.Containers[0].LivenessProbe = &v1.Probe{}
	a := newReady(pod)
	c0 := madeIn(a, "c0", messages.ContainerRunning)
	a.hears(pulled("c0", "image"), started(c0),
		messages.PodWanted{Pod: pod, Generation: 2, Ending: &messages.Ending{Since: a.now}})
	c0.State, c0.FinishedAt = messages.ContainerExited, a.now
	a.hears(a.ended(c0), work.SandboxStopped{ID: "s1"})
	fx := a.take()
	watched := sentOf[messages.WatchProbes](fx)
	if len(sentOf[messages.UnmountVolumes](fx)) > 0 || len(watched) == 0 {
		t.Fatalf("volumes are unmounted before the answer to %+v", watched)
	}
	a.hears(messages.ProbesObserved{UID: "u1", Generation: watched[len(watched)-1].Generation})
	if len(sentOf[messages.UnmountVolumes](a.take())) != 1 {
		t.Error("volumes are not unmounted after the answer")
	}
}
