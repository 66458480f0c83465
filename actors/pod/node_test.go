package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// Without a network no pod that needs one starts. Running containers are left alone, and all pods continue as soon as there is
// one.
func TestTheNetworkIsAwaited(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.network(false)
	w.pending = nil
	w.step(nil)
	w.settle()
	check(t, w)
	if len(w.sandboxes) > 0 || !w.mounted || w.status.Phase != v1.PodPending || w.waiting == nil ||
		w.waiting.Code != messages.ReasonNetworkNotReady {
		t.Fatalf("sandboxes %v, mounted %v, status %+v, waits for %+v", w.sandboxes, w.mounted, w.status, w.waiting)
	}
	since := w.now
	w.network(true)
	for len(w.pending) > 0 && len(w.sandboxes) == 0 {
		m := w.pending[0]
		w.pending = w.pending[1:]
		w.step(m)
	}
	if len(w.sandboxes) != 1 || !w.now.Equal(since) {
		t.Fatalf("sandboxes %v after %s", w.sandboxes, w.now.Sub(since))
	}
	w.settle()
	w.network(false)
	w.settle()
	check(t, w)
	if len(w.sandboxes) != 1 || w.status.Phase != v1.PodRunning || w.waiting != nil {
		t.Errorf("sandboxes %v, status %+v, waits for %+v", w.sandboxes, w.status, w.waiting)
	}
	w.sandboxes[0].Ready = false
	w.send(w.observed())
	w.settle()
	check(t, w)
	if len(w.sandboxes) != 1 || w.waiting == nil || w.waiting.Code != messages.ReasonNetworkNotReady {
		t.Errorf("sandboxes %v, waits for %+v", w.sandboxes, w.waiting)
	}
}

// A pod that the node has to end fails, with the node's message, once none of its containers runs, and stays as a finished one.
func TestAPodThatHasToGoFails(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 2))
	w.step(nil)
	w.settle()
	w.watch = func(s *v1.PodStatus) {
		if s.Phase == v1.PodFailed && len(w.runningNames()) > 0 {
			t.Errorf("it is said to have failed while it runs %v", w.runningNames())
		}
	}
	w.preempt()
	w.settle()
	check(t, w)
	if w.ended == nil || w.ended.Gone || len(w.runningNames()) > 0 || len(w.containers) != 2 {
		t.Fatalf("ended %+v, running %v, containers %v", w.ended, w.runningNames(), w.containers)
	}
	if s := w.ended.Status; s.Phase != v1.PodFailed || s.Reason != messages.ReasonPreempting || s.Message != "make room" {
		t.Errorf("%+v", s)
	}
	for _, c := range w.ended.Status.Conditions {
		if c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == "TerminationByKubelet" &&
			c.Message == "it had to" {
			return
		}
	}
	t.Errorf("conditions %+v", w.ended.Status.Conditions)
}
