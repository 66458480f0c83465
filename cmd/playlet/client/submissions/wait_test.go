package submissions

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/client/base"
	"github.com/playlet-dev/playlet/cmd/playlet/client/fake"
	"github.com/playlet-dev/playlet/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A newly started agent does not know all running pods: a pod that it does not list may exist.
func TestWait_NeedsTheAudit(t *testing.T) {
	c := &submitCommand{}
	for name, change := range map[string]*api.Change{
		"it knows nothing": {Full: true, Node: &api.Node{}},
		"a source is not heard": {Full: true, Version: 1,
			Node: &api.Node{Audited: true, Unheard: []messages.Address{messages.Submit}}},
		"the runtime has not been read": {Full: true, Version: 1, Node: &api.Node{}},
		"it tells a change":             {Version: 2, Node: &api.Node{Audited: true}},
		"gone":                          {Full: true, Version: 1, Node: &api.Node{Audited: true}},
	} {
		left := map[string]string{"u": "default/web"}
		if c.takeGone(change, left); (len(left) == 0) != (name == "gone") {
			t.Errorf("%s: %v", name, left)
		}
	}
}

// A pod without a readiness probe that was ready, and a moment later is not, was ready for a moment only.
func TestWait_PodStaysReady(t *testing.T) {
	ready := v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}
	unready := v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse}}}
	for name, now := range map[string]struct {
		status v1.PodStatus
		ending string
		probe  *v1.Probe
		lasts  bool
		err    string
	}{
		"still ready":  {ready, "", nil, true, ""},
		"has failed":   {v1.PodStatus{Phase: v1.PodFailed}, "", nil, false, "has failed"},
		"is unready":   {unready, "", nil, false, ""},
		"is going":     {ready, "it was deleted", nil, false, "is going: it was deleted"},
		"has a probe":  {unready, "", &v1.Probe{}, true, ""},
		"has finished": {v1.PodStatus{Phase: v1.PodSucceeded}, "", nil, true, ""},
	} {
		f := fake.Start(t)
		pod := api.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"}, Status: now.status,
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", ReadinessProbe: now.probe}}}}}
		pod.Ending = now.ending
		f.Pods.Pods = []api.Pod{pod}
		c := &submitCommand{Command: base.Command{Client: api.NewClient(f.Socket)}, until: untilReady, readyFor: time.Millisecond,
			done: []messages.SubmittedPod{{Namespace: "default", PodName: "web", UID: "u"}}}
		lasts, err := c.lasts(t.Context(), func(p *api.Pod) (bool, error) { return settled(p, untilReady, time.Now()) })
		if lasts != now.lasts || (err != nil) != (now.err != "") || err != nil && !strings.Contains(err.Error(), now.err) {
			t.Errorf("%s: %v %v", name, lasts, err)
		}
	}
}

// A pod that is created while an earlier one of its UID ends is awaited; one that ends later is not.
func TestCondition_AfterAnEarlierPod(t *testing.T) {
	pod := fake.With(fake.Pod("web", v1.PodRunning, fake.Runs(true)), fake.Is(v1.PodReady))
	uid := string(pod.Pod.UID)
	for _, change := range []messages.SubmissionChange{messages.PodCreated, messages.PodUnchanged} {
		c := &submitCommand{Command: base.Command{Now: time.Now}, until: untilReady,
			done: []messages.SubmittedPod{{UID: uid, Change: change}}}
		done := c.condition()
		pod.Ending = "it was removed"
		if is, err := done(pod); is || (err == nil) != (change == messages.PodCreated) {
			t.Errorf("%s, while an earlier one ends: %t, %v", change, is, err)
		}
		pod.Ending = ""
		if is, err := done(pod); !is || err != nil {
			t.Errorf("%s, ready: %t, %v", change, is, err)
		}
		pod.Ending = "it was removed"
		if is, err := done(pod); is || err == nil {
			t.Errorf("%s, removed afterwards: %t, %v", change, is, err)
		}
	}
}

// The end of a container that the user restarts is no error in the progress of the wait; of any other it is.
func TestProgress_OfARestart(t *testing.T) {
	p := fake.Pod("a", v1.PodRunning, fake.Ended(143, "Error"))
	p.Cause = "container a was killed by SIGTERM (exit code 143)"
	for restarting, want := range map[bool]string{
		true:  "default/web: Restarting, 0 of 1 ready\n",
		false: "default/web: Error, 0 of 1 ready: container a was killed by SIGTERM (exit code 143)\n",
	} {
		var notes strings.Builder
		c := submitCommand{restarting: restarting}
		c.Err = &notes
		if c.progress(map[string]string{}, "default/web", p); notes.String() != want {
			t.Errorf("%t: %q, want %q", restarting, notes.String(), want)
		}
	}
}
