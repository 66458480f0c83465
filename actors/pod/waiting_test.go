package pod

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/messages"
)

// A pod that ends reports its wait at each step, with the number of tries and the time of the next one after a failure.
func TestWhatAnEndingPodWaitsFor(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.step(nil)
	w.settle()
	a := &alone{now: w.now, machine: w.machine}
	var codes []string
	newest := func() messages.Reason {
		fx := sentOf[messages.PodStatusChanged](a.fx)
		if len(fx) == 0 || fx[len(fx)-1].Waiting == nil {
			t.Fatalf("it waits for nothing: %+v", fx)
		}
		r := *fx[len(fx)-1].Waiting
		codes = append(codes, r.Code)
		return r
	}
	a.hears(messages.PodWanted{Pod: w.pod, Generation: 2, Ending: &messages.Ending{Since: w.now}})
	if r := newest(); r.Container != "c0" || !r.RetryAt.After(a.now) || !r.Since.Equal(a.now) {
		t.Errorf("a container is ended: %+v", r)
	}
	a.hears(a.ended(ended(w, 0)), work.SandboxStopped{ID: w.sandboxes[0].ID,
		Failed: &messages.Reason{Code: messages.ReasonStopSandbox, Message: "busy"}})
	if r := newest(); r.Tries != 1 || !r.RetryAt.After(a.now) {
		t.Errorf("a sandbox stays: %+v", r)
	}
	a.hears(work.SandboxStopped{ID: w.sandboxes[0].ID})
	newest()
	a.hears(messages.VolumesUnmounted{UID: "u1", Removed: true, Published: true, Left: "it hangs"})
	if r := newest(); r.Code != messages.ReasonUnmounting || !strings.HasSuffix(r.Message, "it hangs") {
		t.Errorf("a driver has a volume: %+v", r)
	}
	a.take()
	a.passes(time.Hour)
	if len(sentOf[messages.UnmountVolumes](a.take())) == 0 {
		t.Error("it is not asked again")
	}
	a.hears(messages.VolumesUnmounted{UID: "u1", Removed: true})
	newest()
	a.hears(work.PodRemoved{Failed: &messages.Reason{Code: messages.ReasonFailedRemove, Message: "busy"}})
	if r := newest(); r.Tries != 1 || !r.RetryAt.After(a.now) {
		t.Errorf("it cannot be removed: %+v", r)
	}
	if want := []string{messages.ReasonKilling, messages.ReasonStopSandbox, messages.ReasonUnmounting, messages.ReasonUnmounting,
		messages.ReasonRemoving, messages.ReasonFailedRemove}; !slices.Equal(codes, want) {
		t.Errorf("it waits for %v, want %v", codes, want)
	}
}

// A container may run in a sandbox that the pod is about to stop, after a late answer to its start. The pod reads the CRI before
// it requests the stop again.
func TestPodMachine_RereadsASandboxWithRunningContainers(t *testing.T) {
	for _, running := range []bool{true, false} {
		w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
		w.step(nil)
		w.settle()
		a := &alone{now: w.now, machine: w.machine}
		a.hears(messages.PodWanted{Pod: w.pod, Generation: 2, Ending: &messages.Ending{Since: w.now}})
		a.hears(a.ended(ended(w, 0)))
		a.take()
		a.hears(work.SandboxStopped{ID: w.sandboxes[0].ID, Running: running, Failed: &messages.Reason{Code: messages.ReasonStopSandbox}})
		if got := len(sentOf[messages.ReadPod](a.take())) > 0; got != running {
			t.Errorf("running %v: got a reading %v, want %v", running, got, running)
		}
	}
}

// A preparation that takes long names the missing parts, and one that does not reports nothing more.
func TestPreparation_ThatIsSlow(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, 0, 1)
	a := newAlone(pod)
	a.observes(nil)
	names := func(after time.Duration, want string) {
		t.Helper()
		a.take()
		a.passes(after)
		got := ""
		for _, m := range sentOf[messages.PodStatusChanged](a.take()) {
			if r := m.Waiting; r != nil && r.Code == messages.ReasonContainerCreating {
				got = r.Message
			}
		}
		if got != want {
			t.Errorf("after %s it waits for %q, want %q", after, got, want)
		}
	}
	names(slowPreparation-time.Second, "")
	names(time.Second, "the cgroup and the sandbox and the volumes")
	a.hears(grouped(pod))
	names(reportAgain, "the sandbox and the volumes")
	a.hears(messages.VolumesMounted{UID: "u1"})
	names(reportAgain, "the sandbox")
}
