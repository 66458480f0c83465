package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/server/containers"
)

// fakeRuntime runs commands like a runtime's streaming server; this file implements the commands.
type fakeRuntime struct {
	containers.Runtime
	*testing.T
	server *httptest.Server
	ports  *httptest.Server // forwards ports
	err    error

	mu      sync.Mutex
	request *runtimeapi.ExecRequest
	headers http.Header
	over    bool // no command starts any more
	running sync.WaitGroup
	quit    chan struct{}
}

func newFakeRuntime(t *testing.T) *fakeRuntime {
	f := &fakeRuntime{T: t, quit: make(chan struct{})}
	f.server, f.ports = httptest.NewServer(f), httptest.NewServer(http.HandlerFunc(forwards))
	t.Cleanup(func() {
		f.server.Close()
		f.ports.Close()
		close(f.quit)
		f.mu.Lock()
		f.over = true // a server does not wait for upgraded connections
		f.mu.Unlock()
		f.running.Wait()
	})
	return f
}

func (f *fakeRuntime) Exec(_ context.Context, r *runtimeapi.ExecRequest) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.request = r
	return f.server.URL + "/exec/secret", f.err
}

func (f *fakeRuntime) asked() (*runtimeapi.ExecRequest, http.Header) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.request, f.headers
}

// ServeHTTP implements http.Handler.
func (f *fakeRuntime) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.headers = r.Header
	asked := f.request
	f.mu.Unlock()
	if r.URL.Path != "/exec/secret" || asked.Cmd[0] == "refused" {
		http.Error(w, "no such token", http.StatusNotFound)
		return
	}
	w.Header().Set("X-Stream-Protocol-Version", r.Header.Get("X-Stream-Protocol-Version"))
	opened := make(chan httpstream.Stream, 5)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, answered <-chan struct{}) error {
		go func() { // as in servers: a stream may only be used after its opening was answered, for which the client waits
			<-answered
			opened <- s
		}()
		return nil
	})
	want := 3 // error, stdout, stderr or resize
	if asked.Stdin {
		want++
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		_ = conn.Close()
		return
	}
	f.running.Go(func() {
		defer conn.Close() //nolint:errcheck // it may be closed
		streams := map[string]httpstream.Stream{}
		for len(streams) < want {
			select {
			case s := <-opened:
				streams[s.Headers().Get("streamType")] = s
			case <-conn.CloseChan():
				return
			}
		}
		f.command(asked.Cmd, streams, conn)
	})
}

func (f *fakeRuntime) command(cmd []string, s map[string]httpstream.Stream, conn httpstream.Connection) {
	status := metav1.Status{Status: metav1.StatusSuccess}
	switch cmd[0] {
	case "cat":
		_, _ = io.Copy(s["stdout"], s["stdin"])
	case "say":
		fmt.Fprintln(s["stdout"], "to stdout")
		fmt.Fprintln(s["stderr"], "to stderr")
		status = metav1.Status{
			Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Message: "command terminated with non-zero exit code",
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ExitCode", Message: "3"}}},
		}
	case "size":
		size := api.Size{}
		_ = json.NewDecoder(s["resize"]).Decode(&size)
		fmt.Fprintf(s["stdout"], "%dx%d", size.Width, size.Height)
	case "none":
		status = metav1.Status{Status: metav1.StatusFailure, Message: `exec: "none": executable file not found in $PATH`}
	case "hang":
		fmt.Fprintln(s["stdout"], "it hangs")
		<-conn.CloseChan()
		return
	case "runs": // even if no client listens: containerd ends a stream with the command alone
		fmt.Fprintln(s["stdout"], "it runs")
		<-f.quit
		return
	case "drop":
		return
	}
	for _, kind := range []string{"stdout", "stderr"} {
		if s[kind] != nil {
			_ = s[kind].Close()
		}
	}
	text, _ := json.Marshal(&status)
	_, _ = s["error"].Write(text)
	_ = s["error"].Close()
	<-conn.CloseChan() // the client has read it
}

const maxStreams = 8

// execRig returns a rig with a running container, "app", and others that do not run.
func execRig(t *testing.T) (*rig, *fakeRuntime) {
	f := newFakeRuntime(t)
	r := newRig(t, func(c *Config) { c.CRI, c.MaxStreams = f, 8*maxStreams }) // one pod may use an eighth
	publishWeb(r)
	if err := r.listeners.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r, f
}

// publishWeb publishes the pod for commands.
func publishWeb(r *rig) {
	p := pod("ns", "web", "u1", &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
		{Name: "app", ContainerID: "containerd://c1", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
		{Name: "done", ContainerID: "containerd://c2",
			State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 4, Reason: "Error"}}},
		{Name: "slow", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}},
	}})
	p.Pod.Spec.Containers = []v1.Container{{Name: "app"}, {Name: "done"}, {Name: "slow"}}
	r.board.Publish(board.Snapshot{Version: 1, Pods: []board.Pod{p}})
}

// A client that opens all streams of port 10250 keeps the node's administrator out of nothing.
func TestTheSocketHasStreamsOfItsOwn(t *testing.T) {
	f := newFakeRuntime(t)
	r, secure, _ := nodeRig(t, nil, func(c *Config) { c.CRI, c.MaxStreams = f, 16 })
	publishWeb(r)
	open := func(want string) net.Conn {
		t.Helper()
		conf := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate(t, "friend")}}
		conn, err := (&tls.Dialer{Config: conf}).DialContext(t.Context(), "tcp", secure)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(conn, "POST /exec/ns/web/app?command=cat&input=1&output=1&error=1 HTTP/1.1\r\nHost: n\r\n"+
			"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n")
		if err != nil {
			t.Fatal(err)
		}
		status := make([]byte, len(want))
		if _, err := io.ReadFull(conn, status); err != nil || string(status) != want {
			t.Fatalf("%q, %v", status, err)
		}
		return conn
	}
	for range 2 {
		defer open("HTTP/1.1 101").Close() //nolint:errcheck // held until here
	}
	defer open("HTTP/1.1 429").Close() //nolint:errcheck // refused
	if code, out, _, _, err := execute(r, api.ExecOptions{Container: "app", Command: []string{"cat"}, Stdin: true}, "in"); code != 0 || out != "in" {
		t.Errorf("%d %q %v", code, out, err)
	}
}

// execute runs a command, and returns its output.
func execute(r *rig, o api.ExecOptions, stdin string) (code int, out, errs, note string, err error) {
	r.Helper()
	var stdout, stderr bytes.Buffer
	t := api.Terminal{Stdout: &stdout, Stderr: &stderr, Note: func(text string) { note = text }}
	if o.Stdin {
		t.Stdin = strings.NewReader(stdin)
	}
	ctx, cancel := context.WithTimeout(r.Context(), waitLimit)
	defer cancel()
	code, err = r.client.Exec(ctx, "ns", "web", o, t)
	return code, stdout.String(), stderr.String(), note, err
}

func TestExec(t *testing.T) {
	r, f := execRig(t)
	code, out, errs, note, err := execute(r, api.ExecOptions{Command: []string{"say", "x"}}, "")
	if code != 3 || out != "to stdout\n" || errs != "to stderr\n" || err != nil || !strings.Contains(note, `container "app" of app, done, slow`) {
		t.Errorf("code %d, %q, %q, note %q, %v", code, out, errs, note, err)
	}
	if got, _ := f.asked(); got.ContainerId != "c1" || got.Tty || got.Stdin || !got.Stdout || !got.Stderr || len(got.Cmd) != 2 {
		t.Errorf("the runtime was asked %v", got)
	}
	if _, headers := f.asked(); headers.Get("Authorization") != "" {
		t.Errorf("the runtime was told %v", headers)
	}
	long := strings.Repeat("a long input\n", 100_000)
	code, out, _, note, err = execute(r, api.ExecOptions{Container: "app", Command: []string{"cat"}, Stdin: true}, long)
	if code != 0 || out != long || err != nil || note != "" {
		t.Errorf("code %d, %d bytes of %d, note %q, %v", code, len(out), len(long), note, err)
	}
	_, _, _, _, err = execute(r, api.ExecOptions{Command: []string{"none"}}, "")
	if err == nil || !strings.Contains(err.Error(), "not found in $PATH") || errors.Is(err, api.ErrCutOff) {
		t.Errorf("a command that does not exist: %v", err)
	}
}

func TestExecWithATerminal(t *testing.T) {
	r, _ := execRig(t)
	sizes := make(chan api.Size, 1)
	sizes <- api.Size{Width: 99, Height: 33}
	var out bytes.Buffer
	code, err := r.client.Exec(t.Context(), "ns", "web", api.ExecOptions{Container: "app", Command: []string{"size"},
		TTY: true},
		api.Terminal{Stdout: &out, Sizes: sizes})
	if code != 0 || err != nil || out.String() != "99x33" {
		t.Errorf("code %d, %v, %q", code, err, out.String())
	}
}

func TestExecRefused(t *testing.T) {
	r, f := execRig(t)
	for _, c := range []struct {
		container, command, want string
	}{
		{"done", "x", `container "done" of pod "web" does not run: it exited with code 4 (Error)`},
		{"slow", "x", `container "slow" of pod "web" does not run: ImagePullBackOff`},
		{"nobody", "x", `no container "nobody"; it has app, done, slow`},
		{"app", "refused", "the container runtime does not stream: 404"},
	} {
		_, _, _, _, err := execute(r, api.ExecOptions{Container: c.container, Command: []string{c.command}}, "")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s in %s: %v, want %q", c.command, c.container, err, c.want)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), f.server.URL)) {
			t.Errorf("the runtime's URL is told: %v", err)
		}
	}
	f.err = errors.New("it is busy")
	if _, _, _, _, err := execute(r, api.ExecOptions{Container: "app", Command: []string{"x"}}, ""); err == nil ||
		!strings.Contains(err.Error(), "it is busy") {
		t.Error(err)
	}
	f.err = nil
	for path, want := range map[string]int{
		"/v1/exec/ns/web?command=say&container=app": http.StatusBadRequest, // no upgrade
		"/v1/exec/ns/web":                       http.StatusBadRequest,
		"/v1/exec/ns/web?command=x&shell=sh":    http.StatusBadRequest,
		"/v1/exec/ns/web?command=x&tty=perhaps": http.StatusBadRequest,
		"/v1/exec/ns/none?command=x":            http.StatusNotFound,
	} {
		if got := r.raw(http.MethodPost, path).StatusCode; got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
}

// An interrupted connection is no success: the outcome of the command is unknown.
func TestExecBrokenOff(t *testing.T) {
	r, _ := execRig(t)
	if code, _, _, _, err := execute(r, api.ExecOptions{Container: "app", Command: []string{"drop"}}, ""); !errors.Is(err,
		api.ErrCutOff) {
		t.Errorf("the runtime drops it: code %d, %v", code, err)
	}
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := r.client.Exec(r.Context(), "ns", "web", api.ExecOptions{Container: "app", Command: []string{"hang"}},
			api.Terminal{Stdout: in, Stderr: io.Discard})
		ended <- err
	}()
	line := make([]byte, 9)
	if _, err := io.ReadFull(out, line); err != nil {
		t.Fatal(err)
	}
	if err := r.listeners.Close(); err != nil { // the agent ends
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, api.ErrCutOff) {
		t.Errorf("the agent ends: %v", err)
	}
}

// A stream outlives the actor, which owns nothing of it. The number of streams is limited.
func TestExecLimit(t *testing.T) {
	r, _ := execRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	var hanging sync.WaitGroup
	outputs := make(chan struct{}, maxStreams)
	for range maxStreams {
		hanging.Go(func() {
			_, err := r.client.Exec(ctx, "ns", "web", api.ExecOptions{Container: "app", Command: []string{"runs"}},
				api.Terminal{Stdout: signalWriter(outputs), Stderr: io.Discard})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("interrupted: %v", err)
			}
		})
	}
	for range maxStreams {
		<-outputs
	}
	_, _, _, _, err := execute(r, api.ExecOptions{Container: "app", Command: []string{"say"}}, "")
	if err == nil || !strings.Contains(err.Error(), "pod web has 8 open streams") {
		t.Errorf("one too many: %v", err)
	}
	cancel()
	hanging.Wait()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) { // departed clients release their places
		if _, _, _, _, err = execute(r, api.ExecOptions{Container: "app", Command: []string{"say"}}, ""); err == nil {
			return
		}
		if time.Since(begun) > waitLimit {
			t.Fatal(err)
		}
	}
}

// signalWriter signals each write.
type signalWriter chan struct{}

func (s signalWriter) Write(p []byte) (int, error) {
	s <- struct{}{}
	return len(p), nil
}
