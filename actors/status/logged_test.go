package status

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// A pod can disappear while its status is rejected. The actor then drops the trouble that it logged.
func TestStatus_LoggedTroublesEndWithTheirPods(t *testing.T) {
	b := newBench(t)
	a := New(b.opts)("status").(*actor)
	b.Kit = supervisortest.New(t, messages.Status, a)
	b.api.PrependReactor("patch", "pods", func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, code(403) })
	for i := range 20 {
		p := object(fmt.Sprint("web-", i), fmt.Sprint("u-", i))
		b.Send(messages.APIServer, messages.APIPodsObserved{At: b.Now(), Pods: []*v1.Pod{p}})
		b.Send(messages.Pods, desired(p, statusOf(true, 0)))
		b.RunWork()
		if len(a.logged) == 0 {
			t.Fatal("the refusal was not logged")
		}
		b.Send(messages.Pods, messages.PodStatusesWanted{Heard: true})
		b.Send(messages.APIServer, messages.APIPodsObserved{At: b.Now()})
	}
	if len(a.logged) != 0 || len(a.machine.lines) != 0 || len(a.machine.troubled) != 0 {
		t.Errorf("got %d logged troubles, %d lines and %d troubled lines of no pods, want none",
			len(a.logged), len(a.machine.lines), len(a.machine.troubled))
	}
}
