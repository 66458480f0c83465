package agent

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/sim"
)

// TestAnAgentThatEndsFinishesAStart: SIGTERM comes while the runtime starts a container. Cut off, the container would be
// thrown away; it runs, and the next agent finds it.
func TestAnAgentThatEndsFinishesAStart(t *testing.T) {
	starting, release := make(chan struct{}), make(chan struct{})
	r := newRig(t, sim.Options{Script: sim.Script{Func: func(sim.Target) (sim.Behaviour, bool) {
		close(starting)
		<-release
		return sim.RunForever(), true
	}}})
	r.write("web.yaml", manifest("web", "Always", nil, []string{"one forever"}))
	r.start(nil)
	select {
	case <-starting:
	case <-time.After(waitLimit):
		close(release)
		t.Fatal("nothing was started")
	}
	system, stopped := r.agent.system, make(chan struct{})
	go func() { defer close(stopped); r.stop() }()
	for len(system.Actors()) > 0 { // the tree has stopped: the start has no waiter
		time.Sleep(time.Millisecond)
	}
	close(release)
	<-stopped
	if c := r.runtime.Snapshot().Container("web-node", "one"); c == nil ||
		c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container was left as %+v", c)
	}
}

// TestWhatAnEndingAgentCutsOffIsNamed checks that the wait is bounded, and that the interrupted operations are logged.
func TestWhatAnEndingAgentCutsOffIsNamed(t *testing.T) {
	ops, release, ended := cri.NewOperations(), make(chan struct{}), make(chan struct{})
	began := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = ops.Do(t.Context(), "u1/stop/c1", time.Minute, func(context.Context) (any, error) {
			close(began)
			<-release
			return nil, nil
		})
	}()
	<-began
	var log bytes.Buffer
	settle(ops, time.Millisecond, slog.New(slog.NewTextHandler(&log, nil)))
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "u1/stop/c1") {
		t.Errorf("the log says %q", log.String())
	}
	close(release)
	<-ended
	log.Reset()
	settle(ops, time.Minute, slog.New(slog.NewTextHandler(&log, nil)))
	if log.Len() > 0 {
		t.Errorf("with nothing under way the log says %q", log.String())
	}
}
