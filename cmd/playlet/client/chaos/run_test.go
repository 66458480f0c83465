package chaos

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/client/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A lease that was not renewed is a violation; goroutines that stay are a leak, which has the experiment wait, and fail in the end.
func TestAnExperimentLooksAtTheLeaseAndForLeaks(t *testing.T) {
	f := fake.Start(t)
	f.Pods.Audited = true
	f.Actors.Goroutines = 100
	look := func() ([]violation, error) {
		c := newRun()
		c.experiment, c.goroutines = &experiment{}, 100
		c.client, c.out = api.NewClient(f.Socket), io.Discard
		err := c.look(context.Background(), true)
		return c.report.Violations, err
	}
	f.Pods.LeaseExpires = time.Now().Add(time.Hour)
	if v, err := look(); len(v) > 0 || err != nil {
		t.Errorf("of a node that is well: %v %v", v, err)
	}
	f.Pods.LeaseExpires, f.Actors.Goroutines = time.Now().Add(-time.Hour), 100+25+goroutineNoise+1
	v, err := look()
	if len(v) != 1 || !strings.Contains(v[0].Text, "the node's lease was not renewed before it ended at ") {
		t.Errorf("of a lease that has ended: %v", v)
	}
	if err == nil || !strings.Contains(err.Error(), "the agent has 176 goroutines, and had 100 before") {
		t.Errorf("of a leak: %v", err)
	}
}

// A node that is not as it has to be before the first step ends the experiment with what is wrong, and nothing is done to it.
func TestAnExperimentBeginsWithNothingViolated(t *testing.T) {
	f := fake.Start(t)
	f.Pods.Audited, f.Pods.LeaseExpires = true, time.Now().Add(-time.Hour)
	c := newRun()
	c.experiment, c.client, c.out = &experiment{}, api.NewClient(f.Socket), io.Discard
	err := c.baseline(t.Context())
	if err == nil || !strings.Contains(err.Error(), "nothing was done: the node's lease was not renewed") {
		t.Error(err)
	}
}

// A pod that is to end and stays longer than it may is a deletion that was lost.
func TestAnExperimentLooksForLostDeletions(t *testing.T) {
	c := newRun()
	c.experiment, c.out = &experiment{}, io.Discard
	pod := api.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u1"}}}
	pod.Ending, pod.Pod.Spec.TerminationGracePeriodSeconds = "its manifest is gone", new(int64(30))
	for ago, want := range map[time.Duration]int{80 * time.Second: 0, 100 * time.Second: 1} {
		c.report.Violations, c.seen = nil, map[string]bool{}
		c.ending["u1"] = time.Now().Add(-ago)
		if c.lookForLostDeletions(&api.Pods{Pods: []api.Pod{pod}}); len(c.report.Violations) != want {
			t.Errorf("ending for %s: %v", ago, c.report.Violations)
		}
	}
	if c.lookForLostDeletions(&api.Pods{}); len(c.ending) > 0 {
		t.Errorf("what is gone is remembered: %v", c.ending)
	}
}
