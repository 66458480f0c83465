//go:build e2e

package e2e

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// --runonce starts the desired pods and exits; they keep running, and a later agent adopts them.
func TestRunOnce(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a, err := s.NewAgent("--runonce")
		must(t, err)
		must(t, a.Write("web.yaml", manifest(s, "web", sleeper)))
		must(t, a.Write("job.yaml",
			manifest(s, "job", "restartPolicy: Never\ncontainers: [{name: c, image: HELLO, args: [exit, '0']}]")))
		must(t, a.Start())
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		if code, err := a.Wait(ctx); err != nil || code != 0 {
			t.Fatalf("it ended with code %d, %v", code, err)
		}
		before := running(t, s, 1)

		must(t, a.Write("bad.yaml", "kind: Pod\nnonsense: true\n"))
		must(t, a.Start())
		if code, err := a.Wait(ctx); err != nil || code != 1 || !strings.Contains(a.Log(), "bad.yaml") {
			t.Errorf("with a bad manifest it ended with code %d, %v", code, err)
		}
		must(t, a.Remove("bad.yaml"))

		a.Args = nil
		must(t, a.Start())
		awaitPod(t, a, "web", ready)
		awaitPod(t, a, "job", inPhase(corev1.PodSucceeded))
		if after := running(t, s, 1); ids(after) != ids(before) {
			t.Errorf("container %s became %s", ids(before), ids(after))
		}
		must(t, a.Remove("web.yaml"))
		must(t, a.Remove("job.yaml"))
		cleared(t, s, a)
	})
}

// The agent notifies systemd according to sd_notify(3).
func TestTheServiceManagerHearsOfTheAgent(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a, err := s.NewAgent()
	must(t, err)
	socket := filepath.Join(a.RootDir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	must(t, err)
	defer conn.Close() //nolint:errcheck // a socket that was only read
	a.Env = []string{"NOTIFY_SOCKET=" + socket, "WATCHDOG_USEC=500000"}
	must(t, a.Write("web.yaml", manifest(s, "web", sleeper)))
	must(t, a.Start())
	hear := func(want string) {
		t.Helper()
		var last []string
		buf := make([]byte, 64<<10)
		must(t, conn.SetReadDeadline(time.Now().Add(waitLimit)))
		for {
			n, err := conn.Read(buf)
			if err != nil {
				t.Fatalf("%q was not heard, but %q: %v", want, last, err)
			}
			for line := range strings.SplitSeq(string(buf[:n]), "\n") {
				if line == want {
					return
				}
				last = append(last[max(0, len(last)-5):], line)
			}
		}
	}
	hear("READY=1")
	hear("STATUS=1 pod, 1 running")
	hear("WATCHDOG=1")
	before := running(t, s, 1)
	if code, err := a.Term(); err != nil || code != 0 {
		t.Errorf("it ended with code %d, %v", code, err)
	}
	hear("STOPPING=1")
	must(t, a.Start())
	hear("READY=1")
	hear("STATUS=1 pod, 1 running")
	if after := running(t, s, 1); ids(after) != ids(before) {
		t.Errorf("container %s became %s", ids(before), ids(after))
	}
	must(t, a.Remove("web.yaml"))
	cleared(t, s, a)
}
