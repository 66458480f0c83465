package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/server/containers"
	"github.com/playlet-dev/playlet/actors/server/observatory"
	"github.com/playlet-dev/playlet/cri"
)

// loggedRuntime is a runtime that knows the paths of logs.
type loggedRuntime struct {
	containers.Runtime
	mu      sync.Mutex
	paths   map[string]string // by ID
	running map[string]bool
	started map[string]time.Time
	err     error
	asked   chan struct{} // one element per question; no test needs more than it holds
}

func (l *loggedRuntime) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.asked <- struct{}{}:
	default:
	}
	path, ok := l.paths[id]
	if l.err != nil || !ok {
		return nil, errors.Join(l.err, fmt.Errorf("container %q", id))
	}
	state := runtimeapi.ContainerState_CONTAINER_EXITED
	if l.running[id] {
		state = runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	run := &runtimeapi.ContainerStatus{Id: id, LogPath: path, State: state}
	if at, ok := l.started[id]; ok {
		run.StartedAt = at.UnixNano()
	}
	return &runtimeapi.ContainerStatusResponse{Status: run}, nil
}

// remove lets the runtime forget a container.
func (l *loggedRuntime) remove(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.paths, id)
	l.err = &cri.CallError{Call: "ContainerStatus", Answered: true, Err: status.Error(codes.NotFound, "no such container")}
}

// end ends a container. A follower of its log checks every second.
func (l *loggedRuntime) end(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running[id] = false
}

const noonLine = "2026-11-21T12:00:0%d.5Z stdout F line %d\n"

// logRig returns a rig with a pod: its container "app" is in its second run, and its container "side" never ran.
func logRig(t *testing.T, change ...func(*Config)) (*rig, *loggedRuntime) {
	t.Helper()
	l := &loggedRuntime{paths: map[string]string{}, running: map[string]bool{"now": true}, asked: make(chan struct{}, 2)}
	r := newRig(t, func(c *Config) {
		c.CRI = l
		for _, f := range change {
			f(c)
		}
	})
	if err := r.listeners.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := pod("ns", "web", "u1", &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
		{
			Name: "app", ContainerID: "containerd://now", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
			LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "containerd://before"}},
		},
		{Name: "side", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ErrImagePull",
			Message: "no such image"}}},
	}})
	p.Pod.Spec.Containers = []v1.Container{{Name: "app"}, {Name: "side"}, {Name: "new"}}
	alone := pod("ns", "job", "u2", &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
		{Name: "c", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "containerd://done"}}},
	}})
	found := pod("ns", "found", "u3", nil) // like a pod found in the runtime: it names no containers
	found.Pod.Spec.Containers = nil
	r.board.Publish(board.Snapshot{Pods: []board.Pod{found, alone, p}})
	for id, text := range map[string]string{
		"now": fmt.Sprintf(noonLine, 1, 1) + fmt.Sprintf(noonLine, 2, 2), "before": fmt.Sprintf(noonLine, 0, 0),
		"done": "2026-11-21T12:00:00.5Z stderr P par\n2026-11-21T12:00:00.6Z stderr F tial\n",
	} {
		l.paths[id] = filepath.Join(r.dir, id+".log")
		if err := os.WriteFile(l.paths[id], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r, l
}

func TestLogs(t *testing.T) {
	r, l := logRig(t)
	two := int64(1)
	at := time.Date(2026, 11, 21, 12, 0, 2, 0, time.UTC)
	for name, c := range map[string]struct {
		pod    string
		o      api.LogOptions
		want   string
		note   string
		failed string
	}{
		"the one container":    {pod: "job", want: "partial\n"},
		"the first of several": {pod: "web", want: "line 1\nline 2\n", note: `container "app" of app, side, new`},
		"named":                {pod: "web", o: api.LogOptions{Container: "app"}, want: "line 1\nline 2\n"},
		"the run before":       {pod: "web", o: api.LogOptions{Container: "app", Previous: true}, want: "line 0\n"},
		"the end alone":        {pod: "web", o: api.LogOptions{Container: "app", Tail: &two}, want: "line 2\n"},
		"since":                {pod: "web", o: api.LogOptions{Container: "app", Since: at}, want: "line 2\n"},
		"with times": {pod: "web", o: api.LogOptions{Container: "app", Since: at, Timestamps: true},
			want: "2026-11-21T12:00:02.500000000Z line 2\n"},
		"not more than":       {pod: "web", o: api.LogOptions{Container: "app", LimitBytes: &two}, want: "l"},
		"followed to its end": {pod: "job", o: api.LogOptions{Follow: true}, want: "partial\n"},
		"no such pod":         {pod: "none", failed: `there is no pod "none" in namespace "ns"`},
		"no such container":   {pod: "web", o: api.LogOptions{Container: "x"}, failed: `pod "web" has no container "x"; it has app, side, new`},
		"never started": {pod: "web", o: api.LogOptions{Container: "side"},
			failed: "has not been started yet: ErrImagePull: no such image"},
		"not made yet":  {pod: "web", o: api.LogOptions{Container: "new"}, failed: "has not been made yet"},
		"no run before": {pod: "job", o: api.LogOptions{Previous: true}, failed: "has had no earlier run"},
		"a log that was removed": {pod: "web", o: api.LogOptions{Container: "app", Previous: true},
			failed: "the log of container before cannot be read"},
		"a removed one followed": {pod: "web", o: api.LogOptions{Container: "app", Previous: true, Follow: true},
			failed: "the log of container before cannot be read"},
		"of a pod that is found": {pod: "found", failed: `pod "found" has no container known here`},
		"its container by name":  {pod: "found", o: api.LogOptions{Container: "app"}, failed: `pod "found" has no container known here`},
		"of a runtime that errs": {pod: "web", failed: "the runtime is away"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "errs") {
				l.mu.Lock()
				l.err = errors.New("the runtime is away")
				l.mu.Unlock()
				defer func() { l.mu.Lock(); l.err = nil; l.mu.Unlock() }()
			}
			if strings.Contains(name, "removed") {
				aside := l.paths["before"] + ".aside"
				if err := os.Rename(l.paths["before"], aside); err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := os.Rename(aside, l.paths["before"]); err != nil {
						t.Error(err)
					}
				}()
			}
			var out bytes.Buffer
			note := ""
			err := r.client.Logs(t.Context(), "ns", c.pod, c.o, &out, func(s string) { note = s })
			if c.failed != "" {
				if err == nil || !strings.Contains(err.Error(), c.failed) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || out.String() != c.want || !strings.HasPrefix(note, c.note) || (c.note == "") != (note == "") {
				t.Errorf("%q, note %q, %v", out.String(), note, err)
			}
		})
	}
}

// The log of a container that has just been started has its first line, even without following.
func TestTheFirstLineOfALog(t *testing.T) {
	for name, c := range map[string]struct {
		started time.Time
		running bool
		want    string
	}{
		"just started":     {time.Now().Add(time.Hour), true, "line 1\n"}, // as long as the test may take
		"started long ago": {time.Now().Add(-time.Hour), true, ""},
		"ended":            {time.Now().Add(time.Hour), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, l := logRig(t)
			path := l.paths["now"]
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
			l.started, l.running["now"] = map[string]time.Time{"now": c.started}, c.running
			var out bytes.Buffer
			answered := make(chan error, 1)
			go func() { answered <- r.client.Logs(t.Context(), "ns", "web", api.LogOptions{}, &out, func(string) {}) }()
			if <-l.asked; c.want != "" {
				if err := os.WriteFile(path, fmt.Appendf(nil, noonLine, 1, 1), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-answered; err != nil || out.String() != c.want {
				t.Errorf("%q, %v", out.String(), err)
			}
		})
	}
}

// Output is sent as it comes, across a rotation too, until the container has ended, or was removed.
func TestAFollowedLog(t *testing.T) {
	for _, removed := range []bool{false, true} {
		t.Run(fmt.Sprintf("removed %v", removed), func(t *testing.T) { followToTheEnd(t, removed) })
	}
}

func followToTheEnd(t *testing.T, removed bool) {
	r, l := logRig(t)
	path := l.paths["now"]
	text, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := r.client.Logs(t.Context(), "ns", "web", api.LogOptions{Container: "app", Follow: true}, w, nil)
		ended <- errors.Join(err, w.Close())
	}()
	expect := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(text, got); err != nil || string(got) != want {
			t.Fatalf("%q, want %q: %v", got, want, err)
		}
	}
	expect("line 1\nline 2\n")
	write := func(flags int, n int) {
		t.Helper()
		f, err := os.OpenFile(path, flags|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = fmt.Fprintf(f, noonLine, n, n)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	<-l.asked // the location of the log
	<-l.asked // whether the container runs: the folder is watched since before that, so a rotation is noticed
	write(os.O_APPEND, 3)
	expect("line 3\n")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write(os.O_CREATE|os.O_EXCL, 4)
	expect("line 4\n")
	if removed {
		l.remove("now")
	} else {
		l.end("now")
	}
	if rest, err := io.ReadAll(text); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A follower of a long silent container receives its end, although the write deadline has passed by then.
func TestTheEndOfALogThatWasSilent(t *testing.T) {
	// Less than the interval of checking whether a silent container runs.
	r, l := logRig(t, func(c *Config) { c.WriteTimeout = 500 * time.Millisecond })
	text, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := r.client.Logs(t.Context(), "ns", "web", api.LogOptions{Container: "app", Follow: true}, w, nil)
		ended <- errors.Join(err, w.Close())
	}()
	if _, err := io.ReadFull(text, make([]byte, 14)); err != nil {
		t.Fatal(err)
	}
	l.end("now")
	if rest, err := io.ReadAll(text); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// One damaged rotated file does not hide the log.
func TestADamagedRotatedLog(t *testing.T) {
	r, l := logRig(t)
	if err := os.WriteFile(l.paths["now"]+".20261121-110000.gz", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	one := int64(1)
	for want, tail := range map[string]*int64{"line 2\n": &one, "line 1\nline 2\n": nil} {
		var out bytes.Buffer
		err := r.client.Logs(t.Context(), "ns", "web", api.LogOptions{Container: "app", Tail: tail}, &out, nil)
		if err != nil || out.String() != want {
			t.Errorf("%q, %v", out.String(), err)
		}
	}
}

// A departed client releases its resources; the agent's end ends the streams.
func TestFollowersThatGo(t *testing.T) {
	r, _ := logRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	text, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- r.client.Logs(ctx, "ns", "web", api.LogOptions{Container: "app", Follow: true}, w, nil)
	}()
	if _, err := io.ReadFull(text, make([]byte, 14)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for logsOpen(r) > 0 {
		time.Sleep(time.Millisecond)
	}
}

func logsOpen(r *rig) int {
	logs, _ := r.listeners.streams()
	return logs
}

func TestLogOptionsThatMakeNoSense(t *testing.T) {
	r, _ := logRig(t)
	for query, want := range map[string]string{
		"follow=perhaps": `follow=`, "tailLines=-1": "must not be negative", "tailLines=x": "tailLines=", "sinceTime=noon": "sinceTime=",
		"colour=red": `unknown parameter \"colour\"`,
	} {
		resp := r.raw("GET", "/v1/logs/ns/web?"+query)
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 400 || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d %s %v", query, resp.StatusCode, body, err)
		}
	}
}

// The output of containers is theirs: an invalid line of a log is not quoted in the agent's own.
func TestAgentLog_OmitsContainerOutput(t *testing.T) {
	r, l := logRig(t)
	said := &spyLog{}
	klog.SetLogger(klog.New(said))
	t.Cleanup(klog.ClearLogger)
	text := fmt.Sprintf(noonLine, 1, 1) + "no time and a SECRET\n2026-11-21T12:00:02.5Z stdout F cut off, and another SECRET"
	if err := os.WriteFile(l.paths["now"], []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err := r.client.Logs(t.Context(), "ns", "web", api.LogOptions{Container: "app"}, &out, func(string) {})
	if err != nil || out.String() != "line 1\ncut off, and another SECRET" {
		t.Errorf("%q, %v", out.String(), err)
	}
	if n := said.lines.Load(); n > 0 {
		t.Errorf("%d lines in the agent's log", n)
	}
}

// spyLog counts what a library logs.
type spyLog struct{ lines atomic.Int64 }

func (*spyLog) Init(klog.RuntimeInfo)            {}
func (*spyLog) Enabled(int) bool                 { return true }
func (s *spyLog) Info(int, string, ...any)       { s.lines.Add(1) }
func (s *spyLog) Error(error, string, ...any)    { s.lines.Add(1) }
func (s *spyLog) WithValues(...any) klog.LogSink { return s }
func (s *spyLog) WithName(string) klog.LogSink   { return s }

// A log of gigabytes is searched for long before its first matching line: the client gets the header at once.
func TestLogs_HeaderPrecedesTheFirstLine(t *testing.T) {
	r, _ := logRig(t)
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet,
		"/v1/logs/ns/web?container=app&sinceTime=2999-01-01T00:00:00Z", nil)
	req.Host = observatory.SocketHost
	w := httptest.NewRecorder()
	r.listeners.ends[0].server.Handler.ServeHTTP(w, req)
	if w.Code != http.StatusOK || !w.Flushed || w.Body.Len() > 0 {
		t.Errorf("%d, flushed %v, %q", w.Code, w.Flushed, w.Body)
	}
}
