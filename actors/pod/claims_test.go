package pod

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/messages"
)

// newClaiming returns the machine of a pod with a claim that has all but its claims and its sandbox.
func newClaiming(t *testing.T) *alone {
	t.Helper()
	pod := testPod(v1.RestartPolicyAlways, 0, 1)
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu"}}
	a := newAlone(pod)
	a.hears(messages.PodObserved{Facts: messages.PodFacts{UID: "u1", ReadAt: a.now}}, messages.VolumesMounted{UID: "u1"}, grouped(pod))
	if asked := sentOf[messages.PrepareClaims](a.take()); len(asked) != 1 || asked[0].Pod != pod {
		t.Fatalf("asked %+v", asked)
	}
	return a
}

func notPrepared(text string) messages.ClaimsFailed {
	err := messages.Cause{Code: messages.CauseClaimDriverFailed, Name: "gpu.org", Detail: "default/web-gpu", Text: text}.Errorf("%s", text)
	return messages.ClaimsFailed{UID: "u1", Reason: messages.Reason{Code: messages.ReasonPrepareClaims, Message: err.Error(), Cause: messages.CauseOf(err)}}
}

func waitsWith(a *alone) string {
	if r := a.machine.waiting(); r != nil {
		return r.Code
	}
	return ""
}

// The sandbox waits for the claims, the cause is in an Event once, and a lost question is repeated.
func TestClaims_PreparedBeforeTheSandbox(t *testing.T) {
	a := newClaiming(t)
	if code := waitsWith(a); code != messages.ReasonAwaitDrivers {
		t.Errorf("it waits with %q", code)
	}
	a.hears(notPrepared("no power"), notPrepared("no power"))
	fx := a.take()
	if got := effects[work.StartSandbox](fx); len(got) > 0 {
		t.Errorf("got %d sandboxes without claims", len(got))
	}
	var events []messages.RecordEvent
	for _, e := range sentOf[messages.RecordEvent](fx) {
		if e.Reason == messages.EventFailedPrepare {
			events = append(events, e)
		}
	}
	if len(events) != 1 || !strings.HasPrefix(events[0].Message, "Failed to prepare dynamic resources: no power") || !strings.Contains(events[0].Message, "gpu.org") {
		t.Errorf("events: %+v", events)
	}
	if code := waitsWith(a); code != messages.ReasonPrepareClaims {
		t.Errorf("it waits with %q", code)
	}
	a.passes(a.machine.Set.AnswerTimeout)
	if asked := sentOf[messages.PrepareClaims](a.take()); len(asked) != 1 {
		t.Errorf("a lost question is repeated %d times", len(asked))
	}
	a.hears(messages.ServiceStarted{Service: messages.Resources})
	if asked := sentOf[messages.PrepareClaims](a.take()); len(asked) != 1 {
		t.Errorf("after a restart of resources, it is repeated %d times", len(asked))
	}
	a.hears(messages.ClaimsPrepared{UID: "u1"})
	if got := effects[work.StartSandbox](a.take()); len(got) != 1 {
		t.Errorf("got %d sandboxes", len(got))
	}
	a.hears(notPrepared("late"))
	if code := waitsWith(a); code == messages.ReasonPrepareClaims {
		t.Error("a late failure counts")
	}
}

// A pod whose sandbox exists needs no driver: its containers have their devices.
func TestClaims_OfAnAdoptedPod(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, 0, 1)
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu"}}
	a := newAlone(pod)
	a.observes([]messages.SandboxFact{{ID: "s1", Ready: true, CreatedAt: a.now, IPs: []string{"10.88.0.2"}}})
	a.hears(messages.VolumesMounted{UID: "u1"}, grouped(pod))
	if asked := sentOf[messages.PrepareClaims](a.take()); len(asked) > 0 || a.machine.Phase() != Running {
		t.Errorf("asked %+v, phase %s", asked, a.machine.Phase())
	}
}

// A pod that ends while its claims are prepared releases them, and is not over before that: others may get the devices then.
func TestClaims_ReleasedAtTheEnd(t *testing.T) {
	a := newClaiming(t)
	a.hears(messages.PodWanted{Pod: a.machine.Pod, Generation: 2, Fail: &messages.PodFailure{Reason: "Evicted"}})
	a.observes(nil)
	if asked := sentOf[messages.ReleaseClaims](a.take()); len(asked) != 1 {
		t.Fatalf("asked %+v", asked)
	}
	a.hears(notPrepared("late"))
	failed := messages.ClaimsFailed{UID: "u1", Release: true, Reason: messages.Reason{Code: messages.ReasonReleaseClaims, Message: "no power", Cause: messages.CauseOf(errors.New("no power"))}}
	a.hears(failed)
	if code := waitsWith(a); code != messages.ReasonReleaseClaims || a.machine.Phase() != Terminating {
		t.Errorf("it waits with %q in phase %s", code, a.machine.Phase())
	}
	if s := a.machine.status(); s.Phase != v1.PodPending {
		t.Errorf("status %s before the claims are released", s.Phase)
	}
	a.hears(messages.ClaimsReleased{UID: "u1"})
	if a.machine.Phase() != Cleaning {
		t.Errorf("phase %s", a.machine.Phase())
	}
	if s := a.machine.status(); s.Phase != v1.PodFailed {
		t.Errorf("status %s", s.Phase)
	}
}
