package notify

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines are of a log.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// fed waits until the watchdog is.
func fed(sent <-chan string) {
	for <-sent != "WATCHDOG=1" {
		continue
	}
}

// The watchdog is fed by answers, and by nothing else: an actor that is stuck is enough to starve it.
func TestWatchdog_StarvedBySilentActor(t *testing.T) {
	sent := make(chan string, 1000)
	logged := make(lines, 1000)
	var stuck atomic.Bool
	unanswered := make(chan struct{})
	s := &ServiceManager{
		log: slog.New(slog.NewTextHandler(logged, nil)), board: pods.NewBoard(),
		actors: []messages.Address{messages.Runtime, messages.Pods},
		send:   func(state string) { sent <- state }, watchdog: 30 * time.Millisecond, listening: true,
		ask: func(ctx context.Context, actor messages.Address) error {
			if actor == messages.Pods && stuck.Load() {
				unanswered <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		},
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	fed(sent)
	stuck.Store(true)
	<-unanswered // all rounds before this one are over
	for len(sent) > 0 {
		<-sent
	}
	<-unanswered
	<-unanswered // and so are two more
	if len(sent) > 0 {
		t.Errorf("told while an actor is stuck: %q", <-sent)
	}
	if line := <-logged; !strings.Contains(line, "actors=[pods]") {
		t.Errorf("the log does not name the actor: %s", line)
	}
	stuck.Store(false)
	go func() {
		for range unanswered { // of a round in progress
			continue
		}
	}()
	fed(sent)
	stop()
	<-ended
	close(unanswered)
}

func TestNothingIsReportedWhereNobodyListens(t *testing.T) {
	s := &ServiceManager{send: func(state string) { t.Errorf("told %q", state) }}
	s.Run(t.Context())
}

func TestStatusLine(t *testing.T) {
	pod := func(phase v1.PodPhase) pods.PublishedPod {
		return pods.PublishedPod{Status: &v1.PodStatus{Phase: phase}}
	}
	ready := messages.RuntimeStateChanged{Ready: true}
	for _, c := range []struct {
		now  pods.Snapshot
		want string
	}{
		{pods.Snapshot{}, "starting"},
		{pods.Snapshot{Version: 1, Runtime: ready}, "0 pods"},
		{pods.Snapshot{Version: 1, Runtime: ready, Pods: []pods.PublishedPod{pod(v1.PodPending), pod(v1.PodRunning),
			pod(v1.PodRunning), {}}}, "4 pods, 2 running, 1 pending"},
		{
			pods.Snapshot{Version: 1, Unheard: []messages.Address{messages.File}, Problems: make([]messages.ManifestProblem, 2)},
			"0 pods; the container runtime is not ready; 1 source not heard yet; 2 problems with manifests",
		},
	} {
		if got := statusLine(&c.now); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
