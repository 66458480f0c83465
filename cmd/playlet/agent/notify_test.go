package agent

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// notifySocket is a service manager's end of the protocol: what it is told comes as lines.
func notifySocket(t *testing.T) (path string, sent <-chan string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify") // a short path, as unix sockets have
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1000)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 64<<10)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			for line := range strings.SplitSeq(string(buf[:n]), "\n") {
				lines <- line
			}
		}
	}()
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		<-ended
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return path, lines
}

// awaitLine reads on until the line comes, and gives those before it.
func awaitLine(t *testing.T, sent <-chan string, want string) (before []string) {
	t.Helper()
	for limit := time.After(waitLimit); ; {
		select {
		case line := <-sent:
			if line == want {
				return before
			}
			before = append(before, line)
		case <-limit:
			t.Fatalf("not told %q; the last were %q", want, before[max(0, len(before)-5):])
		}
	}
}

func TestTheServiceManagerIsReportedOfTheAgentsLife(t *testing.T) {
	path, sent := notifySocket(t)
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "300000")
	t.Setenv("WATCHDOG_PID", "")
	r := newRig(t, sim.Options{Preload: []string{"image"}})
	r.write("web.yaml", manifest("web", "Always", nil, []string{"c image"}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	a := r.prepare()
	go func() { ended <- a.run(ctx, nil) }()

	if before := awaitLine(t, sent, "READY=1"); len(before) > 0 {
		t.Errorf("before it was ready: %q", before)
	}
	awaitLine(t, sent, "STATUS=1 pods, 1 running")
	awaitLine(t, sent, "WATCHDOG=1")
	awaitLine(t, sent, "WATCHDOG=1")
	stop()
	awaitLine(t, sent, "STOPPING=1")
	awaitLine(t, sent, "STATUS=stopping; containers go on running")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The watchdog is fed by answers, and by nothing else: an actor that is stuck is enough to starve it.
func TestAnActorThatDoesNotAnswerStarvesTheWatchdog(t *testing.T) {
	sent := make(chan string, 1000)
	log := &logBuffer{}
	var stuck atomic.Bool
	unanswered := make(chan struct{})
	s := &serviceManager{
		log: slog.New(slog.NewTextHandler(log, nil)), board: pods.NewBoard(),
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
	go func() { defer close(ended); s.run(ctx) }()
	awaitLine(t, sent, "WATCHDOG=1")
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
	if !strings.Contains(log.String(), "actors=[pods]") {
		t.Errorf("the log does not name the actor: %s", log)
	}
	stuck.Store(false)
	go func() {
		for range unanswered { // of a round that was under way
			continue
		}
	}()
	awaitLine(t, sent, "WATCHDOG=1")
	stop()
	<-ended
	close(unanswered)
}

// Actors whose loss the node survives do not starve it.
func TestOnlyWhatANodeCannotDoWithoutFeedsTheWatchdog(t *testing.T) {
	got := map[messages.Address]bool{}
	for _, a := range indispensable(&supervisors.Tree) {
		got[a] = true
	}
	for actor, want := range map[messages.Address]bool{"runtime": true, "images": true, "volumes": true, "pods": true,
		"sources": true, "server": false} {
		if got[actor] != want {
			t.Errorf("%s: %v", actor, got[actor])
		}
	}
}

func TestNobodyIsReportedWhereNobodyListens(t *testing.T) {
	s := &serviceManager{send: func(state string) { t.Errorf("told %q", state) }}
	s.run(t.Context())
}

func TestStatusLine(t *testing.T) {
	pod := func(phase v1.PodPhase) pods.Published { return pods.Published{Status: &v1.PodStatus{Phase: phase}} }
	ready := messages.RuntimeStateChanged{Ready: true}
	for _, c := range []struct {
		now  pods.Snapshot
		want string
	}{
		{pods.Snapshot{}, "starting"},
		{pods.Snapshot{Version: 1, Runtime: ready}, "0 pods"},
		{pods.Snapshot{Version: 1, Runtime: ready, Pods: []pods.Published{pod(v1.PodPending), pod(v1.PodRunning),
			pod(v1.PodRunning), {}}}, "4 pods, 2 running, 1 pending"},
		{
			pods.Snapshot{Version: 1, Unheard: []messages.Address{messages.File}, Problems: make([]messages.ManifestProblem, 2)},
			"0 pods; the container runtime is not ready; 1 sources not heard yet; 2 problems with manifests",
		},
	} {
		if got := statusLine(&c.now); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
