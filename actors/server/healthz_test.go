package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/server/healthz"
	"github.com/playlet-dev/playlet/messages"
)

func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// healthy returns a rig of a healthy node.
func healthy(t *testing.T) *rig {
	t.Helper()
	r := openRig(t)
	r.board.Publish(board.Snapshot{Pods: []board.Pod{pod("default", "web", "u1", nil)}})
	return r
}

func TestHealthzOfAHealthyNode(t *testing.T) {
	r := healthy(t)
	for path, want := range map[string]string{
		"/healthz": "ok", "/healthz/": "ok", "/healthz/ping": "ok", "/healthz/runtime": "ok", "/healthz/pods": "ok",
		"/healthz?verbose": "[+]ping ok\n[+]runtime ok\n[+]supervisors ok\n[+]sources ok\n[+]pods ok\n[+]listeners ok\n[+]volumes ok\nhealthz check passed\n",
	} {
		resp := r.raw("GET", path)
		if got := body(t, resp); got != want || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %q", path, resp.StatusCode, got)
		}
		if got := resp.Header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
			t.Errorf("%s: %s", path, got)
		}
	}
	if resp := r.raw("GET", "/healthz/none"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown check: %d", resp.StatusCode)
	}
	if resp := r.raw("HEAD", "/healthz"); resp.StatusCode != http.StatusOK {
		t.Errorf("HEAD: %d", resp.StatusCode)
	}
	if resp := r.raw("POST", "/healthz"); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", resp.StatusCode)
	}
}

func TestWhatMakesANodeUnhealthy(t *testing.T) {
	until := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		harm  func(*rig)
		check string
		want  string
	}{
		"runtime": {func(r *rig) {
			r.setRuntime(api.Runtime{Endpoint: "unix:///c.sock",
				Reason: &api.Reason{Code: "RuntimeUnavailable", Message: "no\nsocket \x1b[31m"}})
		}, "runtime", "the container runtime at unix:///c.sock is not ready: RuntimeUnavailable: no socket  [31m"},
		"stale lists": {func(r *rig) {
			r.setRuntime(api.Runtime{Ready: true, NetworkReady: true, Stale: "the lists are stale"})
		},
			"runtime", "the lists are stale"},
		"tree": {func(r *rig) { r.listeners.Attach(nil) }, "supervisors", "the agent is starting: its actors do not run yet"},
		"a service given up": {func(r *rig) {
			r.tree.quarantined[messages.File] = messages.ChildQuarantined{Name: "file", Reason: "index out of range",
				Until: until}
		}, "supervisors", "actor sources/file is in quarantine until 2026-01-02T03:04:05Z: index out of range"},
		"silence": {func(r *rig) { r.tree.hangs = true }, "pods", `no answer from actor "pods" to GetInspection: context deadline exceeded`},
		"unheard": {func(r *rig) {
			r.board.Publish(board.Snapshot{Unheard: []messages.Address{messages.File, "sources/url"}})
		}, "sources", "not heard yet: sources/file, sources/url"},
	} {
		t.Run(name, func(t *testing.T) {
			r := healthy(t)
			c.harm(r)
			for path, want := range map[string]string{
				"/healthz": "[-]" + c.check + " failed: " + c.want + "\n", "/healthz/" + c.check: c.want + "\n",
			} {
				resp := r.raw("GET", path)
				if got := body(t, resp); !strings.Contains(got, want) || resp.StatusCode != http.StatusInternalServerError {
					t.Errorf("%s: %d %q, want %q", path, resp.StatusCode, got, want)
				}
			}
			if got := body(t, r.raw("GET", "/healthz")); !strings.HasSuffix(got, "\nhealthz check failed\n") ||
				!strings.HasPrefix(got, "[+]ping ok\n") {
				t.Errorf("%q", got)
			}
			if got := body(t, r.raw("GET", "/healthz?exclude="+c.check)); got != "ok" && name != "tree" {
				t.Errorf("without the check: %q", got)
			}
		})
	}
}

func TestBeforeAnyPublicationNoSourceIsHeard(t *testing.T) {
	r := openRig(t)
	if resp := r.raw("GET", "/healthz/sources"); resp.StatusCode != http.StatusInternalServerError {
		t.Errorf("%d", resp.StatusCode)
	}
}

func TestWhatIsNamedWithoutMakingTheNodeUnhealthy(t *testing.T) {
	r := healthy(t)
	until := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r.tree.quarantined["pods/u1"] = messages.ChildQuarantined{Reason: "nil map", Until: until}
	r.tree.quarantined["pods/u2"] = messages.ChildQuarantined{Reason: "again", Until: until}
	r.board.Publish(board.Snapshot{
		Pods: []board.Pod{pod("default", "web", "u1", nil)},
		Problems: []messages.ManifestProblem{{Path: "/m/a.yaml", Line: 3, Field: "spec.x", Message: "unknown field",
			KeptLast: true}},
		Unwritten: []string{"a checkpoint is being written"},
	})
	r.setRuntime(api.Runtime{Ready: true, NetworkReason: "no bridge", Refused: "it does not take the range"})
	if got := body(t, r.raw("GET", "/healthz")); got != "ok" {
		t.Errorf("unhealthy: %q", got)
	}
	got := body(t, r.raw("GET", "/healthz?verbose&exclude=ping&exclude=nope"))
	for _, want := range []string{
		"[+]runtime ok\n    only pods on the host's network can start: no bridge\n    it does not take the range\n",
		"[+]supervisors ok\n    pod default/web (u1) is in quarantine until 2026-01-02T03:04:05Z: nil map\n    pod u2 is in quarantine",
		"[+]sources ok\n    /m/a.yaml:3: spec.x: unknown field (the last good version keeps running)\n",
		"[+]pods ok\n    a checkpoint is being written\n", "[+]ping excluded: ok\n", `there is no check "nope" to exclude`, "\nhealthz check passed\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

// TestProbesAreNoWorkForPods sends many requests from the loopback.
func TestProbesAreNoWorkForPods(t *testing.T) {
	r := healthy(t)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			resp := r.raw("GET", "/healthz")
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%d", resp.StatusCode)
			}
		})
	}
	all.Wait()
}

// An unreachable API server is reported, but is no reason to restart the agent.
func TestWhatGoesWrongWithTheClusterIsNamed(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Notes = []healthz.Note{{Check: "cluster", Says: func() []string { return []string{"the API server cannot be reached"} }}}
	})
	if err := r.listeners.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.listeners.Attach(r.tree)
	r.board.Publish(board.Snapshot{})
	if got := body(t, r.raw("GET", "/healthz?verbose")); !strings.Contains(got,
		"[+]cluster ok\n    the API server cannot be reached\nhealthz check passed") {
		t.Error(got)
	}
}

// openPublic returns a rig with /healthz on a TCP port as well, and its URL.
func openPublic(t *testing.T) (*rig, string) {
	t.Helper()
	r := newRig(t, func(c *Config) { c.HealthzAddress, c.HealthzPort = "127.0.0.1", 10248 })
	end := r.listeners.ends[1]
	if end.opener != tcpOpener("127.0.0.1:10248") {
		t.Fatalf("it would listen on %v", end.opener)
	}
	end.opener = tcpOpener("127.0.0.1:0") // a free port
	// No test depends on these.
	end.server.ReadHeaderTimeout, end.server.ReadTimeout, end.server.WriteTimeout, end.server.IdleTimeout = 0, 0, 0, 0
	if err := r.listeners.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.listeners.Attach(r.tree)
	return r, "http://" + end.serving.listener.Addr().String()
}

func TestHealthzOnItsOwnPort(t *testing.T) {
	r, where := openPublic(t)
	r.board.Publish(board.Snapshot{})
	for path, want := range map[string]int{"/healthz": 200, "/v1/pods": 404, "/": 404, "/healthz/ping": 200} {
		if code, _ := public(t, where+path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
}

// public asks /healthz on its own port.
func public(t *testing.T, url string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	text := body(t, resp)
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	return resp.StatusCode, text
}

// The public port names the failing checks, without reasons or other details.
func TestHealthzTellsNobodyNamesAndPaths(t *testing.T) {
	r, where := openPublic(t)
	r.board.Publish(board.Snapshot{
		Problems:  []messages.ManifestProblem{{Path: "/etc/secret/a.yaml", Message: "secret"}},
		Unwritten: []string{"/var/lib/secret cannot be written"}, Pods: []board.Pod{pod("default", "secret", "u1", nil)},
	})
	r.tree.quarantined["pods/u1"] = messages.ChildQuarantined{Reason: "secret"}
	if code, text := public(t, where+"/healthz?verbose"); code != http.StatusOK || strings.Contains(text, "secret") ||
		!strings.HasSuffix(text, "healthz check passed\n") {
		t.Errorf("%d %s", code, text)
	}
	r.setRuntime(api.Runtime{Endpoint: "unix:///secret.sock", Reason: &api.Reason{Message: "secret"}})
	r.tree.quarantined[messages.File] = messages.ChildQuarantined{Reason: "secret"}
	const want = "[+]ping ok\n[-]runtime failed: reason withheld\n[-]supervisors failed: reason withheld\n" +
		"[+]sources ok\n[+]pods ok\n[+]listeners ok\n[+]volumes ok\nhealthz check failed\n"
	if code, text := public(t, where+"/healthz"); code != http.StatusInternalServerError || text != want {
		t.Errorf("%d %s", code, text)
	}
	if code, text := public(t, where+"/healthz/runtime"); code != http.StatusInternalServerError || text != "reason withheld\n" {
		t.Errorf("%d %s", code, text)
	}
	if got := body(t, r.raw("GET", "/healthz/runtime")); !strings.Contains(got, "secret.sock") {
		t.Errorf("on the admin socket: %s", got)
	}
}

// Connections that are silent, idle, or in the middle of a header keep no client out: the oldest gives way.
func TestIdleConnectionsDoNotStarveHealthz(t *testing.T) {
	r, where := openPublic(t)
	r.board.Publish(board.Snapshot{})
	address := strings.TrimPrefix(where, "http://")
	var idle []net.Conn
	for i := range probeConns {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() //nolint:errcheck // whoever ended it
		if _, err := conn.Write([]byte([]string{"", "GET /he", "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"}[i%3])); err != nil {
			t.Fatal(err)
		}
		idle = append(idle, conn)
	}
	if code, text := public(t, where+"/healthz"); code != http.StatusOK {
		t.Errorf("%d %s", code, text)
	}
	if err := idle[0].SetReadDeadline(time.Now().Add(waitLimit)); err != nil {
		t.Fatal(err)
	}
	if _, err := idle[0].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the oldest connection: %v", err)
	}
}
