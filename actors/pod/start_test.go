package pod

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/messages"
)

// A failed start is repeated after a pause, even if the container was created.
func TestFailedStart_LeftCreatedBacksOff(t *testing.T) {
	a := newReady(testPod(v1.RestartPolicyAlways, 0, 1))
	a.hears(pulled("c0", "image"))
	created := messages.ContainerFact{ID: "k1", Name: "c0", SandboxID: "s1", State: messages.ContainerCreated, CreatedAt: a.now,
		Image: "image"}
	for try := range 5 {
		runs := sentOf[messages.RunContainer](a.take())
		if len(runs) != 1 {
			t.Fatalf("try %d: it was told %d times to run", try, len(runs))
		}
		if adopts := runs[0].Adopt != nil; adopts != (try > 0) {
			t.Errorf("try %d: adopts %+v", try, runs[0].Adopt)
		}
		for range 3 { // reported more than once
			a.hears(messages.ContainerReported{UID: "u1", Name: "c0", Generation: runs[0].Generation,
				Failed: &messages.Reason{Code: messages.ReasonRunContainer}, Fact: &created})
		}
		a.passes(restarts.StepRetry.After(try+1, 0) - time.Millisecond)
		if early := sentOf[messages.RunContainer](a.take()); len(early) > 0 {
			t.Errorf("try %d: repeated %d times before its time", try, len(early))
		}
		a.passes(time.Millisecond)
	}
}

// The machine went off between the creation of a container and its start: a new sandbox is created, and it runs there.
func TestNeverRunContainer_DelaysNoPod(t *testing.T) {
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyNever} {
		w := newWorld(testPod(policy, 0, 1))
		w.sandboxes = []messages.SandboxFact{{ID: "s0", CreatedAt: w.now}}
		w.containers = []messages.ContainerFact{{ID: "left", Name: "c0", SandboxID: "s0", State: messages.ContainerCreated,
			CreatedAt: w.now, Image: "image"}}
		w.step(nil)
		w.settle()
		check(t, w)
		if !slices.Equal(w.runningNames(), []string{"c0"}) || len(w.stops) > 0 {
			t.Errorf("%s: running %v, stopped %v", policy, w.runningNames(), w.stops)
		}
	}
}

// If a stop finds that the container never ran, the wait for its end is over.
func TestStop_OfAnUnstartedContainerIsOver(t *testing.T) {
	a := newAlone(testPod(v1.RestartPolicyAlways, 0, 1))
	dead := []messages.SandboxFact{{ID: "s0", CreatedAt: a.now}}
	fact := messages.ContainerFact{ID: "k1", Name: "c0", SandboxID: "s0", State: messages.ContainerUnknown, CreatedAt: a.now}
	a.observes(dead, fact)
	if stops := sentOf[messages.StopContainer](a.take()); len(stops) != 1 {
		t.Fatalf("told to stop %d times", len(stops))
	}
	fact.State = messages.ContainerCreated
	a.hears(a.ended(fact))
	if len(effects[work.StopSandbox](a.take())) != 1 {
		t.Errorf("it waits for %v", a.machine.Inspect().Awaiting)
	}
	a.hears(
		work.SandboxStopped{ID: "s0"}, messages.VolumesMounted{UID: "u1"}, grouped(a.machine.Pod),
		work.SandboxStarted{Attempt: 1, Fact: &messages.SandboxFact{ID: "s1", Attempt: 1, Ready: true, CreatedAt: a.now}},
	)
	image := pulled("c0", "image")
	image.Key.Attempt = 1
	a.hears(messages.ChildStarted{Name: "c0", Again: true}, image)
	if runs := sentOf[messages.RunContainer](a.take()); len(runs) != 1 || runs[0].Attempt != 1 {
		t.Errorf("it is not made again: %+v", a.machine.Inspect())
	}
}

// A container that was created and never started does not count as ended when it is removed, under any restartPolicy.
func TestUnstartedContainer_RemovalIsNoFailure(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyNever, 0, 1))
	w.halfway = 1
	w.step(nil)
	for w.halfway > 0 {
		w.step(w.pending[0])
		w.pending = w.pending[1:]
	}
	if len(w.containers) != 1 || w.containers[0].State != messages.ContainerCreated {
		t.Fatalf("containers %+v", w.containers)
	}
	w.send(w.observed())
	w.containers = nil
	w.send(w.observed())
	w.settle()
	check(t, w)
	if !slices.Equal(w.runningNames(), []string{"c0"}) || w.status.Phase != v1.PodRunning {
		t.Errorf("running %v, phase %s", w.runningNames(), w.status.Phase)
	}
}

// A container in an unknown state is not trusted to run: it is ended, and started again.
func TestAContainerOfUnknownStateIsStartedAgain(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.step(nil)
	w.settle()
	w.containers[0].State = messages.ContainerUnknown
	w.send(w.observed())
	w.settle()
	check(t, w)
	if len(w.containers) != 2 || w.containers[1].State != messages.ContainerExited ||
		!slices.Equal(w.runningNames(), []string{"c0"}) {
		t.Errorf("containers %+v", w.containers)
	}
}

// The answer to a pull for the old spec does not count for the new one.
func TestImage_OfEarlierSpecIsIgnored(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, 0, 1)
	pod.Spec.Containers[0].Image = "web:1"
	a := newReady(pod)
	changed := pod.DeepCopy()
	changed.Spec.Containers[0].Image = "web:2"
	a.hears(messages.PodWanted{Pod: changed, Generation: 2}, messages.VolumesMounted{UID: "u1"})
	old := messages.ImageFailed{Key: messages.ImageKey{UID: "u1", Container: "c0"}, Image: "web:1",
		Reason: messages.Reason{Code: messages.ReasonErrImagePull}}
	a.hears(pulled("c0", "web:1"), old)
	fx := a.take()
	if runs := sentOf[messages.RunContainer](fx); len(runs) > 0 {
		t.Errorf("%s is started from %s", runs[0].Container.Image, runs[0].ImageRef)
	}
	if wait := a.machine.waiting(); wait != nil {
		t.Errorf("it waits for the old image: %v", wait)
	}
	a.hears(pulled("c0", "web:2"))
	if runs := sentOf[messages.RunContainer](a.take()); len(runs) != 1 || runs[0].ImageRef != "sha256:web:2" {
		t.Errorf("started: %+v", runs)
	}
}

// The spec changes while a container starts, and its actor fails: the new spec's image is requested before it runs.
func TestNothingIsRunWithoutAnImage(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, 0, 1)
	a := newReady(pod)
	a.hears(pulled("c0", "image"))
	changed := pod.DeepCopy()
	changed.Spec.Containers[0].Image = "image:2"
	a.take()
	a.hears(messages.PodWanted{Pod: changed, Generation: 2})
	a.hears(messages.ChildStarted{Name: "c0", Again: true})
	fx := a.take()
	if runs := sentOf[messages.RunContainer](fx); len(runs) > 0 {
		t.Errorf("run with the image %q", runs[0].ImageRef)
	}
	if pulls := sentOf[messages.PullImage](fx); len(pulls) != 1 || pulls[0].Image != "image:2" {
		t.Errorf("asked for %+v", pulls)
	}
}

// The spec changes while a container starts: the actor receives the order again only when the new spec's image is present.
func TestRepeatedRun_HasImageOfItsSpec(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, 0, 1)
	a := newReady(pod)
	a.hears(pulled("c0", "image"))
	changed := pod.DeepCopy()
	changed.Spec.Containers[0].Image = "image:2"
	a.take()
	a.hears(messages.PodWanted{Pod: changed, Generation: 2})
	a.passes(2 * a.machine.Set.AnswerTimeout)
	fx := a.take()
	if runs := sentOf[messages.RunContainer](fx); len(runs) > 0 {
		t.Errorf("told again, with the image %q", runs[0].ImageRef)
	}
	if pulls := sentOf[messages.PullImage](fx); len(pulls) == 0 || pulls[0].Image != "image:2" {
		t.Errorf("asked for %+v", pulls)
	}
	a.hears(pulled("c0", "image:2"))
	a.passes(2 * a.machine.Set.AnswerTimeout)
	if runs := sentOf[messages.RunContainer](a.take()); len(runs) == 0 || runs[0].ImageRef != "sha256:image:2" {
		t.Errorf("told %+v", runs)
	}
}

// The log reports the end of a container once, whichever report comes first, and not again for a reading.
func TestAnEndIsNotedOnce(t *testing.T) {
	a := newReady(testPod(v1.RestartPolicyNever, 0, 1))
	a.hears(pulled("c0", "image"))
	a.take()
	end := messages.ContainerFact{ID: "k1", Name: "c0", SandboxID: "s1", State: messages.ContainerExited, ExitCode: 4,
		CreatedAt: a.now, FinishedAt: a.now}
	a.observes(nil, end)
	a.hears(a.ended(end))
	a.observes(nil, end)
	var ends []ContainerEnd
	for _, e := range a.take() {
		if end, ok := e.(ContainerEnd); ok {
			ends = append(ends, end)
		}
	}
	if len(ends) != 1 || ends[0].Fact.ExitCode != 4 {
		t.Errorf("noted are %+v", ends)
	}
}

// A container that was created from an earlier spec, and never ran, is not started.
func TestCreatedContainer_OfEarlierSpecStaysCreated(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.sandboxes = []messages.SandboxFact{{ID: "s0", Ready: true, CreatedAt: w.now, IPs: []string{"10.88.0.2"}}}
	w.containers = []messages.ContainerFact{{ID: "left", Name: "c0", SandboxID: "s0", State: messages.ContainerCreated,
		CreatedAt: w.now, Image: "old"}}
	w.step(nil)
	w.settle()
	check(t, w)
	if len(w.containers) != 2 || w.containers[1].State != messages.ContainerCreated || w.containers[0].Image != "image" {
		t.Errorf("containers %+v", w.containers)
	}
}

// The actor fails after it has reported a failed start, and its next life reports the same: one failure counts. The next try is
// distinct from both.
func TestPodMachine_CountsAFailedStartOnce(t *testing.T) {
	a := newReady(testPod(v1.RestartPolicyAlways, 0, 1))
	a.hears(pulled("c0", "image"))
	first := sentOf[messages.RunContainer](a.take())
	if len(first) != 1 {
		t.Fatalf("got %d orders, want 1", len(first))
	}
	failed := messages.ContainerReported{UID: "u1", Name: "c0", Generation: first[0].Generation,
		Failed: &messages.Reason{Code: messages.ReasonRunContainer}}
	a.hears(failed, messages.ChildStarted{Name: "c0", Again: true}, failed)
	if c := a.machine.Container("c0"); c.Retry.Tries != 1 || c.Sent != nil {
		t.Errorf("got %d failures and the order %+v, want 1 and none", c.Retry.Tries, c.Sent)
	}
	a.hears(pulled("c0", "image"))
	a.passes(restarts.StepRetry.After(1, 0))
	a.observes(a.sandboxFacts())
	next := sentOf[messages.RunContainer](a.take())
	if len(next) != 1 || next[0].Generation <= first[0].Generation {
		t.Fatalf("got the orders %+v, want one with a larger generation than %d", next, first[0].Generation)
	}
	a.hears(failed)
	if c := a.machine.Container("c0"); c.Retry.Tries != 1 {
		t.Errorf("got %d failures after a late report of the first try, want 1", c.Retry.Tries)
	}
}

// A restart is counted once, even if the container's actor fails while it starts.
func TestActorRestart_IsNoContainerRestart(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, 0, 1)
	a := newReady(pod)
	ended := messages.ContainerFact{ID: "k1", Name: "c0", SandboxID: "s1", State: messages.ContainerExited, ExitCode: 1,
		CreatedAt: a.now, FinishedAt: a.now}
	a.hears(pulled("c0", "image"), a.ended(ended), messages.ChildStarted{Name: "c0", Again: true})
	again := pulled("c0", "image")
	again.Key.Attempt = 1
	a.hears(again)
	pod = pod.DeepCopy()
	pod.Labels = map[string]string{"changed": "yes"}
	a.hears(messages.PodWanted{Pod: pod, Generation: 2}, messages.ChildStarted{Name: "c0", Again: true}, again)
	runs := sentOf[messages.RunContainer](a.take())
	if last := runs[len(runs)-1]; len(runs) != 2 || last.Attempt != 1 || last.BackOff != 1 {
		t.Errorf("%d runs, the last with attempt %d and back-off step %d", len(runs), last.Attempt, last.BackOff)
	}
}

// While its image is pulled a container waits for that, also in the API's status. A retry includes the cause of the failure
// before.
func TestAPullIsWhatAPodWaitsFor(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, 0, 1)
	pod.Spec.Containers[0].Image = "web:1"
	a := newReady(pod)
	key := messages.ImageKey{UID: "u1", Container: "c0"}
	queued := messages.Reason{Code: messages.ReasonPullQueued, Message: "2nd", Since: a.now}
	pulling := messages.Reason{Code: messages.ReasonPulling, Message: "pulling", Since: a.now}
	says := func(waiting, reason, word string) {
		t.Helper()
		got := ""
		if w := a.machine.waiting(); w != nil {
			got = w.String()
		}
		if got != waiting {
			t.Errorf("waits for %q, want %q", got, waiting)
		}
		published := sentOf[messages.PodStatusChanged](a.take())
		if len(published) == 0 {
			t.Fatal("nothing was told")
		}
		if s := published[len(published)-1].Status.ContainerStatuses[0].State.Waiting; s == nil || s.Reason != reason ||
			!strings.Contains(s.Message, word) {
			t.Errorf("the status says %+v", s)
		}
	}
	a.hears(messages.ImageAwaited{Key: key, Image: "web:0", Reason: queued}) // of an earlier spec
	if w := a.machine.waiting(); w != nil {
		t.Errorf("waits for %v", w)
	}
	a.hears(messages.ImageAwaited{Key: key, Image: "web:1", Reason: queued})
	says("PullQueued: 2nd", messages.ReasonContainerCreating, `"web:1" waits for its turn`)
	a.hears(messages.ImageAwaited{Key: key, Image: "web:1", Reason: pulling})
	says("Pulling: pulling", messages.ReasonContainerCreating, `"web:1" is being pulled`)
	a.hears(messages.ImageFailed{Key: key, Image: "web:1",
		Reason: messages.Reason{Code: messages.ReasonErrImagePull, Message: "denied"}})
	says("ErrImagePull: denied", messages.ReasonErrImagePull, "denied")
	a.hears(messages.ImageAwaited{Key: key, Image: "web:1", Reason: pulling})
	says("Pulling: pulling; before, ErrImagePull: denied", messages.ReasonErrImagePull, "denied")
	a.hears(pulled("c0", "web:1"))
	if w := a.machine.waiting(); w != nil {
		t.Errorf("it has its image, and waits for %v", w)
	}
}

// A container that ended well because its image was changed starts again under OnFailure, too. From the order until the new
// attempt appears, the end of the one before does not count.
func TestImageChange_RestartsACompletedContainer(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyOnFailure, 0, 1))
	m := w.machine
	m.phase, m.Pod = Running, w.pod
	m.MatchSpec()
	c := m.Container("c0")
	c.Learn(messages.ContainerFact{ID: "1", Name: "c0", State: messages.ContainerExited, FinishedAt: w.now}, w.now)
	if !c.Over(m.Pod) {
		t.Error("it ended well, and is not over")
	}
	c.Replace = true
	m.run(c)
	if c.Over(m.Pod) {
		t.Error("it was told to run with its new image, and is over")
	}
}

// If a name stays reserved, the next attempt uses another name. A sandbox that appears later under the old name is stopped.
func TestSandbox_OfTimedOutCallAppearsLater(t *testing.T) {
	a := newAlone(testPod(v1.RestartPolicyNever, 0, 1))
	a.observes(nil)
	a.hears(messages.VolumesMounted{UID: "u1"}, grouped(a.machine.Pod))
	var attempts []uint32
	for range 4 {
		for _, e := range effects[work.StartSandbox](a.take()) {
			attempts = append(attempts, e.Attempt)
			a.hears(work.SandboxStarted{Attempt: e.Attempt, Reserved: true, Reason: messages.Reason{Code: messages.ReasonCreateSandbox}})
		}
		a.passes(time.Minute)
	}
	if want := []uint32{0, 0, 0, 1}; !slices.Equal(attempts, want) {
		t.Fatalf("attempts %v, want %v", attempts, want)
	}
	if asked := effects[work.StartSandbox](a.take()); len(asked) != 1 || asked[0].Attempt != 2 {
		t.Fatalf("asked for %+v", asked)
	}
	late := messages.SandboxFact{ID: "s0", Ready: true, CreatedAt: a.now, IPs: []string{"10.88.0.2"}}
	a.observes([]messages.SandboxFact{late})
	if a.machine.Phase() != Preparing {
		t.Errorf("it is %s in a sandbox that is to be replaced", a.machine.Phase())
	}
	next := messages.SandboxFact{ID: "s2", Attempt: 2, Ready: true, CreatedAt: a.now, IPs: []string{"10.88.0.3"}}
	a.hears(work.SandboxStarted{Attempt: 2, Fact: &next})
	if stops := effects[work.StopSandbox](a.take()); a.machine.Phase() != Running || len(stops) != 1 || stops[0].ID != "s0" {
		t.Errorf("%s, stops %+v", a.machine.Phase(), stops)
	}
}

// A sandbox that appears late is stopped: the pod already uses an earlier one, also between two runs of its container.
func TestASandboxThatTurnsUpLateIsSpare(t *testing.T) {
	for _, over := range []bool{false, true} {
		a := newAlone(testPod(v1.RestartPolicyAlways, 0, 1))
		a.observes(nil)
		a.hears(messages.VolumesMounted{UID: "u1"}, grouped(a.machine.Pod), messages.ChildStarted{Name: "c0"})
		for range 3 {
			for _, e := range effects[work.StartSandbox](a.take()) {
				a.hears(work.SandboxStarted{Attempt: e.Attempt, Reserved: true, Reason: messages.Reason{Code: messages.ReasonCreateSandbox}})
			}
			a.passes(time.Minute)
		}
		if asked := effects[work.StartSandbox](a.take()); len(asked) != 1 || asked[0].Attempt != 1 {
			t.Fatalf("asked for %+v", asked)
		}
		a.now = a.now.Add(a.machine.Set.Work)
		first := messages.SandboxFact{ID: "s0", Ready: true, CreatedAt: a.now, IPs: []string{"10.88.0.2"}}
		a.observes([]messages.SandboxFact{first})
		a.hears(pulled("c0", "image"))
		if runs := sentOf[messages.RunContainer](a.take()); len(runs) != 1 || runs[0].Sandbox.ID != "s0" {
			t.Fatalf("told %+v", runs)
		}
		f := messages.ContainerFact{ID: "c0-0", Name: "c0", SandboxID: "s0", State: messages.ContainerRunning, CreatedAt: a.now,
			StartedAt: a.now, Image: "image"}
		a.hears(started(f))
		ends := func() {
			f.State, f.ExitCode, f.FinishedAt = messages.ContainerExited, 1, a.now
			a.hears(a.ended(f))
		}
		if over {
			ends()
		}
		a.passes(time.Second)
		late := messages.SandboxFact{ID: "s1", Attempt: 1, Ready: true, CreatedAt: a.now, IPs: []string{"10.88.0.3"}}
		a.observes([]messages.SandboxFact{late, first}, f)
		at := a.machine.status().PodIP
		if stops := effects[work.StopSandbox](a.take()); len(stops) != 1 || stops[0].ID != "s1" || at != "10.88.0.2" {
			t.Errorf("over: %v: it is at %s, and stops %+v", over, at, stops)
		}
		if !over {
			ends()
		}
		a.passes(time.Minute)
		a.hears(messages.ChildStarted{Name: "c0"})
		image := pulled("c0", "image")
		image.Key.Attempt = 1
		a.hears(image)
		if runs := sentOf[messages.RunContainer](a.take()); len(runs) != 1 || runs[0].Sandbox.ID != "s0" {
			t.Errorf("over: %v: it is started again by %+v", over, runs)
		}
	}
}

// The same applies to a container: its name is given up.
func TestAContainerNameThatStaysReserved(t *testing.T) {
	a := newReady(testPod(v1.RestartPolicyNever, 0, 1))
	var attempts []uint32
	for range 8 {
		image := pulled("c0", "image")
		image.Key.Attempt = a.machine.Container("c0").NextAttempt()
		a.hears(image)
		for _, run := range sentOf[messages.RunContainer](a.take()) {
			attempts = append(attempts, run.Attempt)
			a.hears(messages.ContainerReported{UID: "u1", Name: "c0", Generation: run.Generation, Stage: messages.StageIdle,
				Failed: &messages.Reason{Code: messages.ReasonCreateContainer}, Reserved: true})
		}
		a.passes(time.Minute)
		a.observes(a.sandboxFacts())
	}
	if !slices.Contains(attempts, 1) || attempts[2] != 0 {
		t.Errorf("attempts %v, want another after three", attempts)
	}
}

// If another program unmounts a volume, its container waits, and the pod has the volume mounted again at once.
func TestStart_UnmountedVolume(t *testing.T) {
	a := newReady(testPod(v1.RestartPolicyAlways, 0, 1))
	a.hears(pulled("c0", "image"))
	runs := sentOf[messages.RunContainer](a.take())
	failed := messages.Reason{Code: messages.ReasonCreateContainer, Cause: messages.Cause{Code: messages.CauseUnmounted, Name: "v"}}
	a.hears(messages.ContainerReported{UID: "u1", Name: "c0", Generation: runs[0].Generation, Stage: messages.StageIdle, Failed: &failed})
	if n := len(sentOf[messages.MountVolumes](a.take())); n != 1 {
		t.Fatalf("got %d MountVolumes, want 1", n)
	}
	if r := a.machine.waiting(); r == nil || r.Cause.Code != messages.CauseUnmounted {
		t.Errorf("the pod waits for %+v, want the unmounted volume", r)
	}
	a.hears(messages.VolumesFailed{UID: "u1", Volume: "v", Reason: messages.Reason{Code: messages.ReasonFailedMount}})
	if r := a.machine.waiting(); r == nil || r.Code != messages.ReasonFailedMount {
		t.Errorf("the pod waits for %+v, want the failed mount", r)
	}
	a.hears(messages.VolumesMounted{UID: "u1", Mounts: map[string]bool{"v": true}, Groups: []int64{7}})
	a.take()
	a.observes(a.sandboxFacts())
	a.passes(time.Minute)
	a.hears(pulled("c0", "image"))
	runs = sentOf[messages.RunContainer](a.take())
	if len(runs) != 1 || !runs[0].Mounts["v"] || !slices.Equal(runs[0].Groups, []int64{7}) {
		t.Errorf("got %+v, want another run, with the volume's mount and group", runs)
	}
}
