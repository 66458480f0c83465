package prober

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// runtime answers commands by container ID.
type runtime struct {
	codes map[string]int32
	calls map[string]int
	hangs map[string]bool // until its context ends
}

func (r *runtime) ExecSync(ctx context.Context, id string, _ []string, _ time.Duration) (cri.ExecResult, error) {
	r.calls[id]++
	if r.hangs[id] {
		<-ctx.Done()
		return cri.ExecResult{}, ctx.Err()
	}
	return cri.ExecResult{ExitCode: r.codes[id]}, nil
}

func newRuntime() *runtime {
	return &runtime{codes: map[string]int32{}, calls: map[string]int{}, hangs: map[string]bool{}}
}

// newKit returns a kit with a prober without jitter.
func newKit(t *testing.T, dir string, r CRI, change func(*Options)) *supervisortest.Kit {
	t.Helper()
	o := Options{CRI: r, RootDir: dir, UserAgent: "kube-probe/1.2", Random: func() float64 { return 0 }}
	if change != nil {
		change(&o)
	}
	return supervisortest.New(t, messages.Prober, New(o)("prober"))
}

func command() *v1.Probe {
	return &v1.Probe{
		ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check"}}}, TimeoutSeconds: 1, PeriodSeconds: 10,
		SuccessThreshold: 1, FailureThreshold: 3,
	}
}

func container(name string, probes map[messages.ProbeKind]*v1.Probe) *v1.Container {
	return &v1.Container{
		Name: name, StartupProbe: probes[messages.Startup], ReadinessProbe: probes[messages.Readiness],
		LivenessProbe: probes[messages.Liveness],
	}
}

// watchOf returns the message for one container that has just started and has no results.
func watchOf(k *supervisortest.Kit, generation uint64, c *v1.Container, id string, run ...messages.ProbeKind) messages.WatchProbes {
	return messages.WatchProbes{UID: "u1", Generation: generation, IPs: []string{"127.0.0.1"}, Containers: []messages.WatchedContainer{{
		Spec: c, ID: id, StartedAt: k.Now(), Run: run,
	}}}
}

// words returns the reports to the pod since the last call.
func words(k *supervisortest.Kit) (out []messages.ProbesObserved) {
	for _, m := range k.Take() {
		out = append(out, m.Msg.(messages.ProbesObserved)) // the prober sends nothing else
	}
	return out
}

// last returns the last report; there must be one.
func last(t *testing.T, k *supervisortest.Kit) messages.ProbesObserved {
	t.Helper()
	all := words(k)
	if len(all) == 0 {
		t.Fatal("nothing was told")
	}
	return all[len(all)-1]
}
