package nodeapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/shares"
	"github.com/playlet-dev/playlet/actors/server/containers"
	"github.com/playlet-dev/playlet/cri"
)

func TestPods(t *testing.T) {
	r := newRig(t, nil)
	for _, path := range []string{"/pods", "/pods/"} {
		var list v1.PodList
		code, text := r.ask(http.MethodGet, path, "")
		if err := json.Unmarshal([]byte(text), &list); err != nil || code != http.StatusOK {
			t.Fatalf("%s: %d %v", path, code, err)
		}
		if list.Kind != "PodList" || list.APIVersion != "v1" || len(list.Items) != 1 || list.Items[0].Status.Phase != v1.PodRunning ||
			list.Items[0].Kind != "" {
			t.Errorf("%s: %s", path, text)
		}
	}
	r.expect(http.MethodPost, "/pods", http.StatusMethodNotAllowed, "Method Not Allowed")
}

func TestRunningPods(t *testing.T) {
	r := newRig(t, nil)
	code, text := r.ask(http.MethodGet, "/runningpods/", "")
	var list v1.PodList
	if err := json.Unmarshal([]byte(text), &list); err != nil || code != http.StatusOK || len(list.Items) != 1 {
		t.Fatalf("%d %s %v", code, text, err)
	}
	if p := list.Items[0]; p.Name != "web" || p.Namespace != "ns" || p.UID != "u1" || len(p.Spec.Containers) != 1 ||
		p.Spec.Containers[0].Name != "app" || p.Spec.Containers[0].Image != "web:1" {
		t.Errorf("%+v", p)
	}
	r.runtime.err = errors.New("it is away")
	r.expect(http.MethodGet, "/runningpods/", http.StatusInternalServerError, "it is away")
}

func TestContainerLogs(t *testing.T) {
	r := newRig(t, nil)
	const app = "/containerLogs/ns/web/app"
	for query, want := range map[string]string{
		"": "out\nerr\n", "?previous=true": "before\n", "?tailLines=1": "err\n", "?tail=1": "err\n", "?tail=all": "out\nerr\n",
		"?limitBytes=2": "ou", "?sinceTime=2026-11-21T12:00:02Z": "err\n", "?stream=Stdout": "out\n", "?stream=Stderr": "err\n",
		"?stream=All&tailLines=1": "err\n", "?timestamps=1&tailLines=1": "2026-11-21T12:00:02.500000000Z err\n",
		"?follow=false": "out\nerr\n", "?sinceSeconds=9223372036854775807": "out\nerr\n", "?colour=red": "out\nerr\n",
	} {
		if code, text := r.ask(http.MethodGet, app+query, ""); code != http.StatusOK || text != want {
			t.Errorf("%s: %d %q, want %q", query, code, text, want)
		}
	}
	r.expect(http.MethodGet, "/containerLogs/ns/web/done?follow=1", http.StatusOK, "before\n") // to its end
	for query, want := range map[string]int{
		"?tailLines=x": 400, "?sinceTime=noon": 400, "?limitBytes=1.5": 400, "?sinceSeconds=99999999999999999999": 400,
		"?tailLines=-1": 422, "?limitBytes=0": 422, "?sinceSeconds=0": 422, "?stream=stdout": 422, "?stream=Stdout&tailLines=1": 422,
		"?sinceSeconds=1&sinceTime=2026-11-21T12:00:02Z": 422,
	} {
		r.expect(http.MethodGet, app+query, want, "message")
	}
	r.expect(http.MethodGet, "/containerLogs/ns/none/app", http.StatusNotFound, `no pod "none"`)
	r.expect(http.MethodGet, "/containerLogs/ns/web/none", http.StatusNotFound, `no container "none"`)
	r.expect(http.MethodGet, "/containerLogs/ns/web/slow", http.StatusBadRequest, "has not been started yet: ImagePullBackOff")
	r.expect(http.MethodPost, app, http.StatusMethodNotAllowed, "")
}

// Followed logs have a limit, and a departed client makes room.
func TestFollowersAreLimited(t *testing.T) {
	r := newRig(t, nil)
	follow := func() *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/containerLogs/ns/web/app?follow=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	first, second := follow(), follow()
	if third := follow(); third.StatusCode != http.StatusTooManyRequests || third.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %s", third.Status)
	} else if err := third.Body.Close(); err != nil {
		t.Error(err)
	}
	line := make([]byte, 4)
	if _, err := io.ReadFull(first.Body, line); err != nil || string(line) != "out\n" {
		t.Errorf("%q, %v", line, err)
	}
	if err := errors.Join(first.Body.Close(), second.Body.Close()); err != nil {
		t.Error(err)
	}
	for logs := 1; logs > 0; logs, _ = r.conf.Containers.Open() {
		time.Sleep(time.Millisecond) // the handlers notice by themselves; the test's own deadline bounds it
	}
}

func TestStreams(t *testing.T) {
	r := newRig(t, nil)
	const all = "input=1&output=1&error=1"
	for path, want := range map[string]string{
		"/exec/ns/web/app?command=sh&command=-c&" + all: `container_id:"run2"cmd:"sh"cmd:"-c"stdin:truestdout:truestderr:true`,
		"/exec/ns/web/u1/app?command=sh&output=1":       `container_id:"run2"cmd:"sh"stdout:true`,
		"/exec/ns/web/app?command=sh&tty=1&" + all:      `container_id:"run2"cmd:"sh"tty:truestdin:truestdout:true`,
		"/attach/ns/web/app?" + all:                     `container_id:"run2"stdin:truestdout:truestderr:true`,
		"/attach/ns/web/u1/app?tty=1&output=1":          `container_id:"run2"tty:truestdout:true`,
		"/portForward/ns/web":                           `pod_sandbox_id:"new"`,
		"/portForward/ns/web/u1":                        `pod_sandbox_id:"new"`,
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			s, resp := r.upgrade(method, path, http.Header{"Authorization": {"Bearer t"}, "Cookie": {"c"}, "X-Kept": {"k"}})
			if s == nil {
				t.Fatalf("%s %s: %s", method, path, resp.Status)
			}
			r.echoed(s)
			if got := strings.ReplaceAll(r.runtime.last().(interface{ String() string }).String(), " ", ""); got != want {
				t.Errorf("%s: the runtime was asked for %s, want %s", path, got, want)
			}
			if h := r.runtime.headers; h.Get("Authorization") != "" || h.Get("Cookie") != "" || h.Get("X-Kept") != "k" {
				t.Errorf("%s: the runtime was told %v", path, h)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			<-r.runtime.ended // a departed client ends the stream
			for streams := 1; streams > 0; _, streams = r.conf.Containers.Open() {
				time.Sleep(time.Millisecond) // its place is free a moment later; the test's own deadline bounds it
			}
		}
	}
}

func TestRefusedStreams(t *testing.T) {
	r := newRig(t, nil)
	for path, want := range map[string]int{
		"/exec/ns/web/app?command=sh":                     400, // no stream is requested
		"/exec/ns/web/app?output=1":                       400, // no command
		"/exec/ns/web/other/app?command=sh&output=1":      404, // another pod's UID
		"/exec/ns/web/none?command=sh&output=1":           404,
		"/exec/ns/web/done?command=sh&output=1":           400,
		"/attach/ns/web/slow?output=1":                    400,
		"/attach/ns/web/app":                              400,
		"/portForward/ns/none":                            404,
		"/portForward/ns/web/other":                       404,
		"/exec/ns/web/app/more/more?command=sh&output=1":  404,
		"/exec/..%2f..%2fpods/web/app?command=x&output=1": 404,
	} {
		if _, resp := r.upgrade(http.MethodPost, path, nil); resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, resp.Status, want)
		}
	}
	r.expect(http.MethodPost, "/exec/ns/web/app?command=sh&output=1", http.StatusBadRequest, "Upgrade")
	r.expect(http.MethodDelete, "/exec/ns/web/app?command=sh&output=1", http.StatusMethodNotAllowed, "")
	web := http.Header{"Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"x"}}
	for ports, want := range map[string]int{"": 400, "?port=0": 400, "?port=65536": 400, "?port=80,x": 400, "?port=80,81&port=82": 101} {
		if _, resp := r.upgrade(http.MethodGet, "/portForward/ns/web"+ports, web); resp.StatusCode != want {
			t.Errorf("%s: %s", ports, resp.Status)
		}
	}
	if got := r.runtime.last().(*runtimeapi.PortForwardRequest); len(got.Port) != 3 || got.Port[2] != 82 {
		t.Errorf("%v", got)
	}
	r.runtime.err = errors.New("it is busy")
	_, resp := r.upgrade(http.MethodPost, "/exec/ns/web/app?command=sh&output=1", nil)
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(text), "it is busy") ||
		strings.Contains(string(text), "secret") {
		t.Errorf("%s %s %v", resp.Status, text, err)
	}
}

// The journal serves the services that it knows, with all options of the query; other services have their files.
func TestLogsOfTheJournal(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Kubelet.EnableSystemLogQuery = ptr.To(true) })
	bin := t.TempDir()
	script := "#!/bin/sh\nif [ \"$1\" = --field=_SYSTEMD_UNIT ]; then echo kubelet.service; echo sshd.service; exit; fi\n" +
		"for a; do echo \"$a\"; done; echo 'no such boot' >&2; exit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "journalctl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	want := "--utc\n--no-pager\n--output=short-precise\n--unit=kubelet\n--unit=sshd.service\n--since=2026-01-02 03:04:05.000000 UTC\n" +
		"--until=2026-01-03 00:00:00.000000 UTC\n--lines=7\n--boot=-1\n--grep=a b;$(id)\nno such boot\n"
	code, text := r.ask(http.MethodGet, "/logs/?query=kubelet&query=sshd.service&sinceTime=2026-01-02T04:04:05%2B01:00&"+
		"untilTime=2026-01-03T00:00:00Z&tailLines=7&boot=-1&pattern=a+b%3B$(id)", "")
	if code != http.StatusOK || text != want {
		t.Errorf("%d %q, want %q", code, text, want)
	}
	if err := os.WriteFile(filepath.Join(r.conf.SystemLogs, "other.log"), []byte("a file's line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, text = r.ask(http.MethodGet, "/logs/?query=other&query=kubelet", "")
	if code != http.StatusOK || !strings.HasPrefix(text, "a file's line\n") || !strings.Contains(text, "--unit=kubelet\n") {
		t.Errorf("%d %q", code, text)
	}
	r.expect(http.MethodGet, "/logs/?query=other&tailLines=1", http.StatusBadRequest, "the journal has no unit other")
}

// A redirect of the runtime's streaming server is followed by neither the agent nor the client.
func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was followed") }))
	defer elsewhere.Close()
	r := newRig(t, nil)
	r.runtime.speak = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+"/secret", http.StatusTemporaryRedirect)
	}
	for _, method := range []string{http.MethodPost, http.MethodGet} { // the text of a redirect of a GET has the address
		s, resp := r.upgrade(method, "/exec/ns/web/app?command=sh&output=1", nil)
		text, err := io.ReadAll(resp.Body)
		if s != nil || err != nil || resp.StatusCode != http.StatusBadGateway || resp.Header.Get("Location") != "" ||
			strings.Contains(string(text), elsewhere.URL) {
			t.Errorf("%s, %q, %s, %v", resp.Status, resp.Header.Get("Location"), text, err)
		}
	}
}

// Connection errors contain the address of the runtime's streaming server, and are only logged.
func TestTheRuntimesAddressIsNotReported(t *testing.T) {
	var log bytes.Buffer
	r := newRig(t, limits(func(c *containers.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) }))
	_, port, _ := net.SplitHostPort(r.runtime.streams.Listener.Addr().String())
	breakOff := func(w http.ResponseWriter, _ *http.Request) {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0) // a reset
			_ = conn.Close()
		}
	}
	r.runtime.speak = breakOff
	for _, name := range []string{"broken off", "away"} {
		if name == "away" {
			r.runtime.streams.Close()
		}
		s, resp := r.upgrade(http.MethodPost, "/exec/ns/web/app?command=sh&output=1", nil)
		text, err := io.ReadAll(resp.Body)
		if s != nil || err != nil || resp.StatusCode != http.StatusBadGateway || strings.Contains(string(text), port) {
			t.Errorf("%s: %s, %s, %v", name, resp.Status, text, err)
		}
	}
	if strings.Count(log.String(), port) < 2 {
		t.Errorf("logged: %s", &log)
	}
}

// Streams have a limit, shared by exec, attach and port-forward.
func TestStreamsAreLimited(t *testing.T) {
	r := newRig(t, nil)
	var open []io.Closer
	for _, path := range []string{"/attach/ns/web/app?output=1", "/portForward/ns/web"} {
		s, resp := r.upgrade(http.MethodPost, path, nil)
		if s == nil {
			t.Fatal(resp.Status)
		}
		r.echoed(s)
		open = append(open, s)
	}
	if _, resp := r.upgrade(http.MethodPost, "/portForward/ns/web", nil); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("one too many: %s", resp.Status)
	}
	for _, s := range open {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for streams := 1; streams > 0; _, streams = r.conf.Containers.Open() {
		time.Sleep(time.Millisecond)
	}
}

func TestRun(t *testing.T) {
	r := newRig(t, nil)
	r.expect(http.MethodPost, "/run/ns/web/app?cmd=ls+-l", http.StatusOK, "out err")
	r.expect(http.MethodPost, "/run/ns/web/u1/app?cmd=false", http.StatusInternalServerError, "exited with 7: no")
	r.expect(http.MethodPost, "/run/ns/web/app", http.StatusBadRequest, "")
	r.expect(http.MethodGet, "/run/ns/web/app?cmd=ls", http.StatusMethodNotAllowed, "")
	r.expect(http.MethodPost, "/run/ns/web/done?cmd=ls", http.StatusBadRequest, "does not run")
	if got := r.runtime.commands; len(got) != 2 || strings.Join(got[0], ",") != "run2,ls,-l" {
		t.Errorf("%v", got)
	}
}

func TestCheckpoint(t *testing.T) {
	r := newRig(t, nil)
	code, text := r.ask(http.MethodPost, "/checkpoint/ns/web/app?timeout=3", "")
	if want := `{"items":["` + r.runtime.saved + `"]}`; code != http.StatusOK || text != want ||
		!strings.HasPrefix(r.runtime.saved, r.conf.CheckpointDir+"/checkpoint-web_ns-app-") {
		t.Errorf("%d %s", code, text)
	}
	if info, err := os.Stat(r.conf.CheckpointDir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info, err)
	}
	r.expect(http.MethodPost, "/checkpoint/ns/web/app?timeout=soon", http.StatusNotFound, "timeout")
	r.expect(http.MethodGet, "/checkpoint/ns/web/app", http.StatusMethodNotAllowed, "")
	r.expect(http.MethodPost, "/checkpoint/ns/web/none", http.StatusNotFound, "")
	r.runtime.err = &cri.CallError{Answered: true, Err: status.Error(codes.Unimplemented, "unknown method")}
	r.expect(http.MethodPost, "/checkpoint/ns/web/app", http.StatusNotImplemented, "cannot checkpoint")
}

func TestConfigz(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Kubelet.MaxPods = 7 })
	code, text := r.ask(http.MethodGet, "/configz", "")
	var got struct {
		Kubelet struct{ MaxPods int } `json:"kubeletconfig"`
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || code != http.StatusOK || got.Kubelet.MaxPods != 7 {
		t.Errorf("%d %s %v", code, text, err)
	}
	r.expect(http.MethodPost, "/configz", http.StatusMethodNotAllowed, "")
}

// The cgroup driver in force is the runtime's (kubernetes/kubernetes#134743).
func TestConfigz_CgroupDriver(t *testing.T) {
	reported := ""
	r := newRig(t, func(c *Config) {
		c.Kubelet.CgroupDriver, c.CgroupDriver = "cgroupfs", func() string { return reported }
	})
	for _, want := range []string{"cgroupfs", "systemd"} {
		if code, text := r.ask(http.MethodGet, "/configz", ""); code != http.StatusOK || !strings.Contains(text, `"cgroupDriver":"`+want+`"`) {
			t.Errorf("%d %s, want %s", code, text, want)
		}
		reported = "systemd"
	}
}

func TestSystemLogs(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Kubelet.EnableSystemLogQuery = ptr.To(true) })
	dir, outside := r.conf.SystemLogs, t.TempDir()
	secret := filepath.Join(outside, "secret")
	err := errors.Join(
		os.WriteFile(secret, []byte("SECRET"), 0o600), os.WriteFile(filepath.Join(dir, "syslog"), []byte("a line\n"), 0o600),
		os.Mkdir(filepath.Join(dir, "sub"), 0o700), os.Symlink("../syslog", filepath.Join(dir, "sub", "inside")),
		os.Symlink(secret, filepath.Join(dir, "absolute")), os.Symlink("/", filepath.Join(dir, "root")),
		os.Symlink("../"+filepath.Base(outside)+"/secret", filepath.Join(dir, "relative")),
		os.Symlink(filepath.Join(dir, "syslog"), filepath.Join(dir, "sub", "once")),
		os.Symlink(filepath.Join(dir, "sub", "once"), filepath.Join(dir, "twice")),
		os.Symlink(filepath.Join(dir, "round"), filepath.Join(dir, "round")),
		os.Symlink(dir+"/../"+filepath.Base(outside)+"/secret", filepath.Join(dir, "climbing")),
		os.Symlink(filepath.Join(dir, "absolute"), filepath.Join(dir, "detour")),
		os.Symlink(dir+"x/secret", filepath.Join(dir, "neighbour")),
		unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	r.expect(http.MethodGet, "/logs/syslog", http.StatusOK, "a line\n")
	r.expect(http.MethodGet, "/logs/sub/inside", http.StatusOK, "a line\n")
	r.expect(http.MethodGet, "/logs/sub/once", http.StatusOK, "a line\n")
	r.expect(http.MethodGet, "/logs/twice", http.StatusOK, "a line\n")
	r.expect(http.MethodGet, "/logs/", http.StatusOK, "syslog")
	r.expect(http.MethodGet, "/logs/?query=sshd", http.StatusNotFound, "no logs of sshd")
	r.expect(http.MethodGet, "/logs/?query=syslog", http.StatusOK, "a line\n")
	for query, want := range map[string]string{
		"": "name a service", "%20": "name a service", "-x": "not the name", "a%20b": "not the name", "a&query=/syslog": "together",
		"/a&query=/b": "at most one", "a&tailLines=x": "tailLines", "a&tailLines=100001": "100000", "a&boot=1": "boot", "a&pattern=(": "pattern",
		"a&sinceTime=now": "sinceTime", "/syslog&tailLines=1": "no other parameter", "a&query=b&query=c&query=d&query=e": "at most 4",
		"a&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00Z": "before sinceTime", "sshd&tailLines=1": "without other parameters", "/sub": "a folder",
	} {
		r.expect(http.MethodGet, "/logs/?query="+query, http.StatusBadRequest, want)
	}
	r.expect(http.MethodGet, "/logs/?query=/syslog", http.StatusOK, "a line\n")
	r.expect(http.MethodGet, "/logs/?query=/../sub/inside", http.StatusOK, "a line\n")
	r.expect(http.MethodGet, "/logs/?query=/absolute", http.StatusNotFound, "no file absolute")
	r.expect(http.MethodPost, "/logs/syslog", http.StatusMethodNotAllowed, "")
	for _, p := range []string{"absolute", "relative", "round", "climbing", "detour", "neighbour", "root/etc/passwd", "pipe", "none", "../secret", "..%2fsecret", "%2e%2e/secret", "sub/../../x"} {
		if code, text := r.ask(http.MethodGet, "/logs/"+p, ""); code < 400 || strings.Contains(text, "SECRET") {
			t.Errorf("%s: %d %q", p, code, text)
		}
	}
}

func TestDebugging(t *testing.T) {
	r := newRig(t, nil)
	r.expect(http.MethodGet, "/debug/pprof/", http.StatusOK, "goroutine")
	r.expect(http.MethodGet, "/debug/pprof/goroutine?debug=1", http.StatusOK, "goroutine profile")
	r.expect(http.MethodGet, "/debug/pprof/cmdline", http.StatusOK, "")
	r.expect(http.MethodPost, "/debug/pprof/heap", http.StatusMethodNotAllowed, "")
	if code, text := r.ask(http.MethodPut, "/debug/flags/v", "4\n"); code != http.StatusOK || !strings.Contains(text, "to 4") || <-r.verbosity != 4 {
		t.Errorf("%d %s", code, text)
	}
	if code, _ := r.ask(http.MethodPut, "/debug/flags/v", "-1"); code != http.StatusBadRequest {
		t.Errorf("%d", code)
	}
	if code, _ := r.ask(http.MethodPut, "/debug/flags/v", strings.Repeat("1", maxBody+1)); code != http.StatusBadRequest {
		t.Errorf("a body without end: %d", code)
	}
	r.expect(http.MethodGet, "/debug/flags/v", http.StatusMethodNotAllowed, "")
	r.expect(http.MethodGet, "/healthz", http.StatusOK, "ok")
	r.expect(http.MethodGet, "/healthz/syncloop", http.StatusOK, "ok")
	r.expect(http.MethodGet, "/flagz", http.StatusOK, "kubelet flagz")
	r.expect(http.MethodGet, "/statusz", http.StatusOK, "/containerLogs ")
	r.expect(http.MethodGet, "/metrics", http.StatusNotFound, "")
	r.expect(http.MethodGet, "/", http.StatusNotFound, "")
}

func TestSwitches(t *testing.T) {
	off := ptr.To(false)
	r := newRig(t, func(c *Config) {
		c.Kubelet.EnableSystemLogHandler, c.Kubelet.EnableProfilingHandler, c.Kubelet.EnableDebugFlagsHandler = off, off, off
	})
	r.expect(http.MethodGet, "/logs/", http.StatusMethodNotAllowed, "logs endpoint is disabled.")
	r.expect(http.MethodGet, "/debug/pprof/heap", http.StatusMethodNotAllowed, "profiling endpoint is disabled.")
	r.expect(http.MethodPut, "/debug/flags/v", http.StatusMethodNotAllowed, "flags endpoint is disabled.")
	r = newRig(t, func(c *Config) { c.Kubelet.EnableDebuggingHandlers = off })
	for _, p := range []string{
		"/exec/ns/web/app?command=x&output=1", "/attach/ns/web/app", "/run/ns/web/app", "/portForward/ns/web", "/logs/syslog",
		"/containerLogs/ns/web/app", "/runningpods/", "/debug/pprof/heap",
	} {
		r.expect(http.MethodPost, p, http.StatusMethodNotAllowed, "Debug endpoints are disabled.")
	}
	for _, p := range []string{"/configz", "/debug/flags/v", "/checkpoint/ns/web/app", "/flagz", "/statusz"} {
		r.expect(http.MethodGet, p, http.StatusNotFound, "")
	}
	r.expect(http.MethodGet, "/pods", http.StatusOK, "PodList")
	r.expect(http.MethodGet, "/healthz", http.StatusOK, "ok")
}

func TestReadOnly(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Figures = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "figures of "+r.URL.Path) })
	})
	r.expect(http.MethodGet, "/metrics/cadvisor", http.StatusOK, "figures of /metrics/cadvisor")
	server := httptest.NewServer(ReadOnly(r.conf))
	defer server.Close()
	r.url = server.URL
	r.expect(http.MethodGet, "/pods", http.StatusOK, "PodList")
	r.expect(http.MethodGet, "/healthz", http.StatusOK, "ok")
	for _, p := range []string{"/metrics", "/metrics/resource", "/stats/summary", "/spec", "/spec/"} {
		r.expect(http.MethodGet, p, http.StatusOK, "figures of "+p)
	}
	r.expect(http.MethodHead, "/metrics", http.StatusOK, "")
	r.expect(http.MethodPost, "/stats/summary", http.StatusOK, "figures of /stats/summary")
	for _, p := range []string{"/metrics/slis", "/metrics", "/healthz", "/pods"} {
		for _, method := range []string{http.MethodDelete, http.MethodPut, http.MethodPost} {
			r.expect(method, p, http.StatusMethodNotAllowed, "")
		}
	}
	for _, p := range []string{"/configz", "/containerLogs/ns/web/app", "/exec/ns/web/app?command=x&output=1", "/logs/", "/debug/pprof/",
		"/runningpods/", "/debug/flags/v", "/run/ns/web/app?cmd=ls", "/checkpoint/ns/web/app", "/flagz"} {
		r.expect(http.MethodGet, p, http.StatusNotFound, "")
		r.expect(http.MethodPost, p, http.StatusNotFound, "")
	}
}

// The served path is the authorized one: no path redirects to another.
func TestPathsAreNotRedirected(t *testing.T) {
	r := newRig(t, nil)
	for _, p := range []string{"//pods", "/pods/../configz", "/./pods", "/pods//", "/exec//ns/web/app", "/%2e%2e/configz", "/logs/..", "/healthz/../pods"} {
		if code, _ := r.ask(http.MethodGet, p, ""); code != http.StatusNotFound {
			t.Errorf("%s: %d", p, code)
		}
	}
}

// Followers of one pod's log shut out no other pod of the same client, and no other client.
func TestLogs_OnePodsFollowers_LeaveRoomForOthers(t *testing.T) {
	r := newRig(t, func(c *Config) {
		web := c.Board.Now().Pods[0]
		db := web
		db.Pod = web.Pod.DeepCopy()
		db.Pod.Name, db.Pod.UID = "db", "u2"
		c.Board.Publish(board.Snapshot{Pods: []board.Pod{web, db}})
	})
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		New(r.conf).ServeHTTP(w, req.WithContext(shares.WithClient(req.Context(), req.Header.Get("X-Client"))))
	}))
	t.Cleanup(node.Close)
	follow := func(client, pod string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, node.URL+"/containerLogs/ns/"+pod+"/app?follow=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Client", client)
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp.StatusCode
	}
	for follow("api server", "web") == http.StatusOK {
		if logs, _ := r.conf.Containers.Open(); logs > 8 {
			t.Fatalf("one pod has %d followers", logs)
		}
	}
	for _, c := range [][2]string{{"api server", "db"}, {"prometheus", "web"}} {
		if got := follow(c[0], c[1]); got != http.StatusOK {
			t.Errorf("%v: got %d, want 200", c, got)
		}
	}
}
