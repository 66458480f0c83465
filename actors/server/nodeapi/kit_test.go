package nodeapi

import (
	"bufio"
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
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/server/containers"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeRuntime has one pod's sandboxes and containers, and a streaming server that echoes its input.
type fakeRuntime struct {
	streams *httptest.Server
	dir     string
	speak   http.HandlerFunc // serves streams instead of the echo

	mu       sync.Mutex
	asked    []any // requests for streams
	headers  http.Header
	commands [][]string
	saved    string
	err      error
	live     map[string]bool
	ended    chan struct{} // one element per stream that has ended on this side
}

func newFakeRuntime(t *testing.T) *fakeRuntime {
	f := &fakeRuntime{dir: t.TempDir(), live: map[string]bool{"run2": true}, ended: make(chan struct{}, 100)}
	f.streams = httptest.NewServer(f)
	t.Cleanup(f.streams.Close)
	for id, text := range map[string]string{
		"run1": "2026-11-21T12:00:00.5Z stdout F before\n",
		"run2": "2026-11-21T12:00:01.5Z stdout F out\n2026-11-21T12:00:02.5Z stderr F err\n",
	} {
		if err := os.WriteFile(filepath.Join(f.dir, id), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// ServeHTTP is the streaming server.
func (f *fakeRuntime) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.headers = r.Header.Clone()
	f.mu.Unlock()
	if f.speak != nil {
		f.speak(w, r)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close(); f.ended <- struct{}{} }()
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
	_, _ = io.Copy(conn, buffered)
}

func (f *fakeRuntime) stream(req any) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, req)
	return f.streams.URL + "/secret-token", f.err
}

func (f *fakeRuntime) last() any {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.asked) == 0 {
		return nil
	}
	return f.asked[len(f.asked)-1]
}

func (f *fakeRuntime) Exec(_ context.Context, r *runtimeapi.ExecRequest) (string, error) {
	return f.stream(r)
}
func (f *fakeRuntime) Attach(_ context.Context, r *runtimeapi.AttachRequest) (string, error) {
	return f.stream(r)
}
func (f *fakeRuntime) PortForward(_ context.Context, r *runtimeapi.PortForwardRequest) (string, error) {
	return f.stream(r)
}

func (f *fakeRuntime) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	state := runtimeapi.ContainerState_CONTAINER_EXITED
	if f.live[id] {
		state = runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
		Id: id, LogPath: filepath.Join(f.dir, id), State: state,
	}}, f.err
}

var podLabels = map[string]string{cri.LabelPodUID: "u1", cri.LabelPodName: "web", cri.LabelPodNamespace: "ns"}

func (f *fakeRuntime) ListPodSandbox(_ context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	if filter.State.State != runtimeapi.PodSandboxState_SANDBOX_READY {
		return nil, errors.New("asked for more than what is ready")
	}
	if uid := filter.LabelSelector[cri.LabelPodUID]; uid != "" && uid != "u1" {
		return nil, f.err
	}
	return []*runtimeapi.PodSandbox{
		{Id: "old", CreatedAt: 1, Labels: podLabels}, {Id: "new", CreatedAt: 3, Labels: podLabels},
		{Id: "between", CreatedAt: 2, Labels: podLabels},
	}, f.err
}

func (f *fakeRuntime) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	labels := map[string]string{cri.LabelContainerName: "app"}
	for k, v := range podLabels {
		labels[k] = v
	}
	return []*runtimeapi.Container{
		{Id: "run2", Labels: labels, Image: &runtimeapi.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "web:1"}},
		{Id: "crictl's"},
	}, f.err
}

func (f *fakeRuntime) ExecSync(_ context.Context, id string, command []string, limit time.Duration) (cri.ExecResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commands = append(f.commands, append([]string{id}, command...))
	if limit <= 0 {
		return cri.ExecResult{}, errors.New("a command without a limit")
	}
	if command[0] == "false" {
		return cri.ExecResult{ExitCode: 7, Stderr: []byte("no")}, nil
	}
	return cri.ExecResult{Stdout: []byte("out "), Stderr: []byte("err")}, f.err
}

func (f *fakeRuntime) CheckpointContainer(_ context.Context, _, location string, _ int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.saved = location
	return f.err
}

// rig is a server of the API, with one pod: "app" runs for the second time, "done" has ended, "slow" waits.
type rig struct {
	*testing.T
	runtime   *fakeRuntime
	conf      Config
	verbosity chan int
	url       string
	// webSockets receives the subresources of streams counted as WebSockets.
	webSockets chan string
}

func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	r := &rig{T: t, runtime: newFakeRuntime(t), verbosity: make(chan int, 1), webSockets: make(chan string, 100)}
	b := board.New()
	status := &v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{
		{
			Name: "app", ContainerID: "containerd://run2", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
			LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "containerd://run1"}},
		},
		{Name: "done", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "containerd://run1"}}},
		{Name: "slow", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}},
	}}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u1"}, Spec: v1.PodSpec{
		Containers: []v1.Container{{Name: "app"}, {Name: "done"}, {Name: "slow"}},
	}}
	b.Publish(board.Snapshot{Pods: []board.Pod{{Pod: pod, Status: status}}})
	r.conf = Config{
		Board: b, Runtime: r.runtime, Kubelet: &config.KubeletConfiguration{}, Kubernetes: "1.36.3",
		Healthz: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }),
		Containers: containers.New(containers.Config{Board: b, Runtime: r.runtime, MaxStreams: 16, MaxLogs: 16,
			CountWebSocket: func(subresource string) { r.webSockets <- subresource }}),
		SystemLogs: t.TempDir(), CheckpointDir: filepath.Join(t.TempDir(), "checkpoints"),
		SetVerbosity: func(v int) { r.verbosity <- v }, Flags: map[string]string{"v": "2"},
	}
	if change != nil {
		change(&r.conf)
	}
	server := httptest.NewServer(New(r.conf))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// ask sends a request, and returns the answer's status and text.
func (r *rig) ask(method, path, body string) (int, string) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		r.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func (r *rig) expect(method, path string, status int, text string) {
	r.Helper()
	if got, said := r.ask(method, path, ""); got != status || !strings.Contains(said, text) {
		r.Errorf("%s %s: %d %q, want %d %q", method, path, got, said, status, text)
	}
}

// upgrade requests a stream, and returns its end with the answer.
func (r *rig) upgrade(method, path string, header http.Header) (io.ReadWriteCloser, *http.Response) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, r.url+path, nil)
	if err != nil {
		r.Fatal(err)
	}
	req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, resp
	}
	return resp.Body.(io.ReadWriteCloser), resp
}

// echoed checks that a stream carries bytes both ways.
func (r *rig) echoed(s io.ReadWriteCloser) {
	r.Helper()
	if _, err := io.WriteString(s, "hello\n"); err != nil {
		r.Fatal(err)
	}
	if line, err := bufio.NewReader(s).ReadString('\n'); line != "hello\n" {
		r.Errorf("%q, %v", line, err)
	}
}
