package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/playlet-dev/playlet/actors/server/admin"
	"github.com/playlet-dev/playlet/messages"
)

// fakeAgent answers on a socket what a test wants it to.
type fakeAgent struct {
	socket  string
	mu      sync.Mutex
	pods    admin.Pods
	version admin.Version
	queries []string
	lines   chan *admin.Change // of every watch; a nil ends the stream
}

func startFakeAgent(t *testing.T) *fakeAgent {
	t.Helper()
	dir, err := os.MkdirTemp("", "cmd") // a short path: unix sockets have short names
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeAgent{socket: filepath.Join(dir, "s"), lines: make(chan *admin.Change, 10)}
	f.pods.Runtime = admin.Runtime{Ready: true, NetworkReady: true}
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/pods", f.answerPods)
	mux.HandleFunc("/v1/version", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(f.version)
	})
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fakeAgent) answerPods(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.queries = append(f.queries, r.URL.RawQuery)
	pods := f.pods
	f.mu.Unlock()
	if r.URL.Query().Get("watch") == "" {
		_ = json.NewEncoder(w).Encode(pods)
		return
	}
	for {
		select {
		case line := <-f.lines:
			if line == nil {
				return
			}
			if json.NewEncoder(w).Encode(line) != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// command runs playlet with these arguments, and returns what it prints.
func (f *fakeAgent) command(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(append(args, "--admin-socket="+f.socket), &out, &err)
	return out.String(), err.String(), code
}

func (f *fakeAgent) has(pods ...*admin.Pod) {
	for i, p := range pods {
		p.Pod.APIVersion, p.Pod.Kind = "v1", "Pod"
		if p.Pod.UID == "" {
			p.Pod.UID = types.UID(rune('a' + i))
		}
		f.pods.Pods = append(f.pods.Pods, *p)
	}
}

func TestPodsPrintsATable(t *testing.T) {
	f := startFakeAgent(t)
	db := podOf("a", v1.PodPending, waits("ImagePullBackOff"))
	db.Pod.Name, db.Pod.Status.PodIP, db.Pod.Status.StartTime = "database-node1", "", nil
	db.Waiting = &admin.Reason{Code: "ImagePullBackOff", Message: "no such image \x1b[31m"}
	jailed := podOf("a", v1.PodRunning, runs(true))
	jailed.Pod.Namespace, jailed.Pod.Name, jailed.Pod.Status.StartTime = "kube-system", "x", nil
	jailed.Quarantine = &admin.Quarantine{Reason: "nil map", Until: noon}
	f.has(db, jailed)
	f.pods.Runtime = admin.Runtime{Endpoint: "unix:///c.sock", Reason: &admin.Reason{Code: "RuntimeUnavailable", Message: "gone"}}
	f.pods.Unheard = []messages.Address{messages.File}
	f.pods.Problems = []messages.ManifestProblem{{Path: "/m/a.yaml", Line: 2, Field: "spec.x", Message: "unknown field", KeptLast: true}}
	out, notes, code := f.command(t, "pods")
	want := `NAMESPACE     NAME             READY   STATUS             RESTARTS   AGE         IP
default       database-node1   0/1     ImagePullBackOff   0          <unknown>   <none>
kube-system   x                1/1     Running            0          <unknown>   10.0.0.7
`
	if out != want || code != 0 {
		t.Errorf("%d\n%s\nwant\n%s", code, out, want)
	}
	want = `default/database-node1 waits for ImagePullBackOff: no such image  [31m
kube-system/x is in quarantine until ` + noon.Local().Format(time.TimeOnly) + `, its containers left alone: nil map
the container runtime at unix:///c.sock is not ready: RuntimeUnavailable: gone; pods are shown as they were last seen
sources/file has not been heard yet; what it wants is not shown
manifest problem: /m/a.yaml:2: spec.x: unknown field (the last good version keeps running)
`
	if notes != want {
		t.Errorf("%s\nwant\n%s", notes, want)
	}
	out, notes, _ = f.command(t, "pods", "-o", "wide")
	if lines := strings.Split(out, "\n"); !strings.HasSuffix(lines[0], "UID   WAITING FOR") || !strings.HasSuffix(lines[1], "a     ImagePullBackOff: no such image  [31m") {
		t.Errorf("%s", out)
	}
	if strings.Contains(notes, "waits for") {
		t.Errorf("said twice: %s", notes)
	}
}

func TestPodsPrintsObjects(t *testing.T) {
	f := startFakeAgent(t)
	f.has(podOf("a", v1.PodRunning, runs(true)))
	for _, output := range []string{"yaml", "json"} {
		out, notes, code := f.command(t, "pods", "-o", output)
		var list struct {
			Kind, APIVersion string
			Items            []v1.Pod
		}
		if err := yaml.Unmarshal([]byte(out), &list); err != nil || code != 0 || notes != "" {
			t.Fatalf("%v %d %s", err, code, notes)
		}
		if list.Kind != "List" || list.APIVersion != "v1" || len(list.Items) != 1 || list.Items[0].Status.PodIP != "10.0.0.7" {
			t.Errorf("%s:\n%s", output, out)
		}
		out, _, _ = f.command(t, "pods", "web", "-n", "default", "-o", output)
		var one v1.Pod
		if err := yaml.UnmarshalStrict([]byte(out), &one); err != nil || one.Kind != "Pod" || one.Name != "web" {
			t.Errorf("%s: %v\n%s", output, err, out)
		}
	}
	if got := f.queries[1]; got != "name=web&namespace=default" {
		t.Errorf("it asked for %s", got)
	}
}

func TestPodsThatAreNotThere(t *testing.T) {
	f := startFakeAgent(t)
	f.pods.Problems = []messages.ManifestProblem{{Path: "p", Pod: "default/web", Message: "bad"}, {Path: "q", Pod: "default/db", Message: "other"}}
	for args, want := range map[string]string{
		"web":                    "manifest problem: p: bad\nplaylet: there is no pod \"web\" in any namespace\n",
		"web -n default":         "manifest problem: p: bad\nplaylet: there is no pod \"web\" in namespace \"default\"\n",
		"web -n default -o yaml": "manifest problem: p: bad\nplaylet: there is no pod \"web\" in namespace \"default\"\n",
		"web -n x":               "playlet: there is no pod \"web\" in namespace \"x\"\n",
		"-o xml":                 "playlet: --output=\"xml\" is unknown; it may be table, wide, yaml, json\n",
		"a b":                    "playlet: accepts at most 1 arg(s), received 2\n",
	} {
		out, notes, code := f.command(t, append([]string{"pods"}, strings.Fields(args)...)...)
		if out != "" || notes != want || code != 1 {
			t.Errorf("%s: %d %q %q, want %q", args, code, out, notes, want)
		}
	}
	f.pods.Problems = nil
	if out, notes, code := f.command(t, "pods"); out != "" || notes != "no pods\n" || code != 0 {
		t.Errorf("an empty node: %d %q %q", code, out, notes)
	}
	if out, _, _ := f.command(t, "pods", "-o", "json"); !strings.Contains(out, `"items": []`) {
		t.Errorf("an empty list: %s", out)
	}
}

func TestPodsWithoutAnAgent(t *testing.T) {
	f := &fakeAgent{socket: filepath.Join(t.TempDir(), "none")}
	for _, args := range [][]string{{"pods"}, {"pods", "-w"}} {
		out, notes, code := f.command(t, args...)
		want := "playlet: playlet is not running (no socket at " + f.socket + "): start it with \"playlet\", or name its socket with --admin-socket\n"
		if out != "" || notes != want || code != 1 {
			t.Errorf("%v: %d %q %q", args, code, out, notes)
		}
	}
}

func TestCompletion(t *testing.T) {
	f := startFakeAgent(t)
	other := podOf("a", v1.PodRunning)
	other.Pod.Name, other.Pod.Namespace = "api", "kube-system"
	f.has(podOf("a", v1.PodRunning), other, podOf("a", v1.PodRunning))
	complete := func(args ...string) string {
		t.Helper()
		args = append([]string{"__complete", "pods", "--admin-socket=" + f.socket}, args...)
		var out, err bytes.Buffer
		if code := run(args, &out, &err); code != 0 {
			t.Fatal(err.String())
		}
		return strings.Join(strings.Fields(out.String()), " ")
	}
	for want, args := range map[string][]string{
		"api web :4":              {""},
		":4":                      {"web", ""},
		"default kube-system :4":  {"-n", ""},
		"table wide yaml json :4": {"-o", ""},
	} {
		if got := complete(args...); got != want {
			t.Errorf("%v completes to %q, want %q", args, got, want)
		}
	}
	f.socket += "-none"
	if got := complete(""); got != ":4" {
		t.Errorf("with no agent: %q", got)
	}
}

// syncBuffer is output that is read while it is written.
type syncBuffer struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{}
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.b.Write(p)
	select {
	case s.more <- struct{}{}:
	default:
	}
	return n, err
}

// await waits until what was written is this, and empties it.
func (s *syncBuffer) await(t *testing.T, want string) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		s.mu.Lock()
		got := s.b.String()
		if got == want {
			s.b.Reset()
		}
		s.mu.Unlock()
		if got == want {
			return
		}
		select {
		case <-s.more:
		case <-deadline:
			t.Fatalf("%q, want %q", got, want)
		}
	}
}

func TestPodsWatch(t *testing.T) {
	f := startFakeAgent(t)
	out, notes := &syncBuffer{more: make(chan struct{}, 1)}, &syncBuffer{more: make(chan struct{}, 1)}
	c := &podsCommand{client: admin.NewClient(f.socket), output: "table", out: out, err: notes, now: func() time.Time { return noon }}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.watch(ctx) }()

	ok := &admin.Node{Runtime: admin.Runtime{Ready: true, NetworkReady: true}}
	creating := podOf("a", v1.PodPending, waits("ContainerCreating"))
	creating.Pod.UID = "u1"
	creating.Pod.Status.PodIP = ""
	creating.Waiting = &admin.Reason{Code: "ErrImagePull", Message: "x"}
	f.lines <- &admin.Change{Version: 1, Full: true, Pods: []admin.Pod{*creating}, Node: ok}
	out.await(t, "NAMESPACE   NAME   READY   STATUS              RESTARTS   AGE   IP\n"+
		"default     web    0/1     ContainerCreating   0          5m    <none>\n")
	notes.await(t, "default/web waits for ErrImagePull: x\n")

	again := *creating
	again.Waiting = &admin.Reason{Code: "ErrImagePull", Message: "x", RetryAt: noon.Add(time.Minute)}
	f.lines <- &admin.Change{Version: 2, Pods: []admin.Pod{again}} // nothing to tell
	running := podOf("a", v1.PodRunning, runs(true))
	running.Pod.UID = "u1"
	f.lines <- &admin.Change{Version: 3, Pods: []admin.Pod{*running}}
	out.await(t, "default     web    1/1     Running             0          5m    10.0.0.7\n")

	f.lines <- &admin.Change{Version: 4, Node: &admin.Node{Runtime: admin.Runtime{Since: noon.Add(-time.Minute)}}}
	notes.await(t, "the container runtime is not ready; pods are shown as they were last seen\n")

	f.lines <- nil // the agent is killed, and comes back knowing little at first
	notes.await(t, "the agent is gone; waiting for it to come back\n")
	f.lines <- &admin.Change{Version: 0, Full: true, Node: ok}
	f.lines <- &admin.Change{Version: 1, Pods: []admin.Pod{*running}}
	f.lines <- &admin.Change{Version: 2, Gone: []admin.Ref{running.Ref()}}
	out.await(t, "default     web    -       Gone                0          5m    10.0.0.7\n")

	f.lines <- &admin.Change{Version: 3, Pods: []admin.Pod{*running}}
	out.await(t, "default     web    1/1     Running             0          5m    10.0.0.7\n")
	f.lines <- nil
	notes.await(t, "the agent is gone; waiting for it to come back\n")
	f.lines <- &admin.Change{Version: 9, Full: true, Node: ok} // it comes back without the pod
	out.await(t, "default     web    -       Gone                0          5m    10.0.0.7\n")

	stop()
	if err := <-ended; err != nil {
		t.Errorf("Ctrl-C is told %v", err)
	}
}

func TestPodsWatchOfObjects(t *testing.T) {
	f := startFakeAgent(t)
	out := &syncBuffer{more: make(chan struct{}, 1)}
	c := &podsCommand{client: admin.NewClient(f.socket), output: "json", out: out, err: &bytes.Buffer{}, now: time.Now}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.watch(ctx) }()
	p := podOf("a", v1.PodRunning, runs(true))
	f.lines <- &admin.Change{Full: true, Pods: []admin.Pod{*p}}
	var want bytes.Buffer
	if err := printObject(&want, p.Pod, "json"); err != nil {
		t.Fatal(err)
	}
	out.await(t, want.String())
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
