package chaos

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

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
		c := &chaosRun{experiment: &experiment{}, seen: map[string]bool{}, abort: func(error) {}, goroutines: 100}
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
