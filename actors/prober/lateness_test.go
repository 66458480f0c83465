package prober

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// timesOut is a runtime in which every command takes longer than it may, but for the containers that answer.
type timesOut struct {
	answers map[string]bool
	calls   map[string]int
}

func (r timesOut) ExecSync(_ context.Context, id string, _ []string, _ time.Duration) (cri.ExecResult, error) {
	if r.calls[id]++; r.answers[id] {
		return cri.ExecResult{}, nil
	}
	return cri.ExecResult{}, context.DeadlineExceeded
}

// probed adds a pod with one liveness probe, every 10 s. It runs the resulting work, except probes.
func probed(k *supervisortest.Kit, uid string) {
	w := watchOf(k, 1, container("c", map[messages.ProbeKind]*v1.Probe{messages.Liveness: command()}), uid, messages.Liveness)
	w.UID = uid
	k.Send(messages.PodAddress(uid), w)
	runAll(k, func(w supervisors.Work) bool { return w.Name != "probe" })
}

// runAll runs the chosen work, and leaves the rest in progress.
func runAll(k *supervisortest.Kit, chosen func(supervisors.Work) bool) {
	for {
		i := slices.IndexFunc(k.Work, chosen)
		if i < 0 {
			return
		}
		w := k.Work[i]
		k.Work = slices.Delete(k.Work, i, i+1)
		k.RunOne(w)
	}
}

// Pods with probes that time out use at most half of the workers. Other probes are never late, and health reports the delay
// of the former.
func TestTimedOutProbes_ShareHalfThePool(t *testing.T) {
	r, late := timesOut{answers: map[string]bool{"good": true}, calls: map[string]int{}}, &Lateness{}
	k := newKit(t, t.TempDir(), r, func(o *Options) { o.Commands, o.Lateness = 8, late })
	for i := range 24 {
		probed(k, fmt.Sprintf("hangs%d", i))
	}
	k.Advance(0)
	if len(k.Work) != 8 {
		t.Fatalf("%d of 8 workers are busy", len(k.Work))
	}
	k.RunWork() // each has run, and timed out
	if got := late.Problems(k.Now()); got != nil {
		t.Errorf("nobody was late, and health says %q", got)
	}

	k.Advance(10 * time.Second) // all are due again
	if len(k.Work) != 4 {
		t.Fatalf("probes that timed out have %d of 8 workers", len(k.Work))
	}
	for i := range 3 {
		probed(k, "good")
		k.Advance(10 * time.Second) // those that hang do so all the while
		before := r.calls["good"]
		if len(k.Work) != 5 {
			t.Fatalf("period %d: %d workers are busy", i, len(k.Work))
		}
		runAll(k, func(w supervisors.Work) bool { return w.Name != "probe" })
		last := k.Work[4]
		k.Work = k.Work[:4]
		if k.RunOne(last); r.calls["good"] != before+1 {
			t.Errorf("period %d: the probe that answers was not run", i)
		}
		runAll(k, func(w supervisors.Work) bool { return w.Name != "probe" })
	}
	want := []string{"exec probes whose latest run timed out begin up to 30s late: 5 of 8 workers are busy"}
	if got := late.Problems(k.Now()); !slices.Equal(got, want) {
		t.Errorf("health says %q, want %q", got, want)
	}

	for i := range 24 {
		r.answers[fmt.Sprintf("hangs%d", i)] = true
	}
	k.RunWork()
	k.Advance(10 * time.Second)
	if n := len(k.Work); n != 8 {
		t.Errorf("probes that answer again have %d of 8 workers", n)
	}
	k.RunWork()
	step(k, 65)
	if got := late.Problems(k.Now()); got != nil {
		t.Errorf("a minute after the last late run, health says %q", got)
	}
	if got := late.Problems(k.Now().Add(time.Hour)); len(got) != 1 {
		t.Errorf("of an actor that hangs for an hour, health says %q", got)
	}
}
