package agent

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
)

// notifySocket is a service manager's end of the protocol. Each message is a line.
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

func TestServiceManager_NotifiedOfAgentsLife(t *testing.T) {
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
	awaitLine(t, sent, "STATUS=1 pod, 1 running")
	awaitLine(t, sent, "WATCHDOG=1")
	awaitLine(t, sent, "WATCHDOG=1")
	stop()
	awaitLine(t, sent, "STOPPING=1")
	awaitLine(t, sent, "STATUS=stopping; containers go on running")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Actors whose loss the node survives do not stop the watchdog's feed.
func TestWatchdog_NeedsOnlyEssentialActors(t *testing.T) {
	r := newRig(t, sim.Options{})
	r.start(nil)
	got := map[messages.Address]bool{}
	for _, a := range r.agent.system.Indispensable() {
		got[a] = true
	}
	for actor, want := range map[messages.Address]bool{"runtime": true, "images": true, "volumes": true, "pods": true,
		"sources": true, "server": false, "registration": false /* a standalone node has none */} {
		if got[actor] != want {
			t.Errorf("%s: %v", actor, got[actor])
		}
	}
}
