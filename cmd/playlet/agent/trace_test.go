package agent

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	apiclient "k8s.io/client-go/rest"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/trace"
)

// The story of a pod's start has every step, with the calls of the runtime and how long they took, and no secret.
func TestTheStoryOfAStart(t *testing.T) {
	const secret = "s3cr3t"
	r := newRig(t, sim.Options{})
	r.runtime.Inject(sim.Fault{Call: "StartContainer", Kind: sim.Delay, Delay: 50 * time.Millisecond, Times: 1})
	r.start(nil)
	r.write("web.yaml", strings.Replace(manifest("web", "Always", nil, []string{"main app:1"}), "    image: app:1\n",
		"    image: app:1\n    env: [{name: PASSWORD, value: "+secret+"}]\n    args: ["+secret+"]\n", 1))
	var story []supervisors.Entry
	client, until := api.NewClient(r.agent.node.AdminSocket), time.Now().Add(waitLimit)
	for ready := false; !ready && time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		_ = client.Trace(t.Context(), api.TraceOptions{Pod: "web-node"}, func(got *api.Trace) error {
			story = got.Entries
			return nil
		})
		for _, e := range story {
			ready = ready || e.Message == "PodStatusChanged" && strings.Contains(e.Digest, supervisors.Ready)
		}
	}
	seen := map[string]supervisors.Entry{}
	for _, e := range story {
		t.Log(e)
		seen[string(e.Kind)+e.Message] = e
		if strings.Contains(e.String(), secret) {
			t.Errorf("a secret is in %v", e)
		}
	}
	// The preceding entry may be a source's report, after its work or a timer, or the first audit.
	led := slices.ContainsFunc(story, func(e supervisors.Entry) bool { return e.Kind == supervisors.OfWork && e.Flow.Pod == "" })
	if !led || story[0].Flow.Pod != "" || seen["Started"].From == messages.Node {
		t.Fatalf("the story does not begin with what led to it: %v", story[:min(1, len(story))])
	}
	for _, name := range []string{"RunPodSandbox", "CreateContainer", "StartContainer"} {
		if e := seen["call"+name]; e.Took <= 0 || e.Flow.Pod == "" || e.To != messages.Runtime {
			t.Errorf("%s: %v", name, e)
		}
	}
	if took := seen["callStartContainer"].Took; took < 50*time.Millisecond {
		t.Errorf("StartContainer took %s", took)
	}
	path, err := trace.CriticalPath(story, trace.Names{})
	// Both a source's word and the audit lead to it, in whatever order; the path begins with the one that the pod had to wait
	// for.
	begins := func(e supervisors.Entry) bool { return e.Flow.Pod == "" && e.Message == path.Segments[0].Name }
	if err != nil || !slices.ContainsFunc(story, begins) || path.Took > waitLimit/2 ||
		!slices.ContainsFunc(path.Segments, func(s trace.Segment) bool {
			return s.Kind == trace.Calling && s.Name == "StartContainer" && s.Took >= 50*time.Millisecond
		}) || slices.ContainsFunc(path.Segments, func(s trace.Segment) bool { return s.Kind == trace.Outside }) {
		t.Errorf("the critical path is %+v, %v", path, err)
	}
	if path.Adopted {
		t.Error("the start is called an adoption")
	}
	r.stop()
	r.start(nil)
	t.Setenv("PLAYLET_SOCKET", r.agent.node.AdminSocket)
	r.untilPrinted([]string{"trace", "web", "--critical-path"}, "Not the pod's start: the agent found it running and adopted it.")
}

// A request to the API server is a leaf of the work that made it, without its query and its body.
func TestRequestsToTheAPIServerAreRecorded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusConflict) }))
	defer server.Close()
	config := recorded(func() *apiclient.Config { return &apiclient.Config{Host: server.URL} })()
	transport, err := apiclient.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	system, err := supervisors.Start(supervisors.Options{
		Tree: &supervisors.Row{Kind: "node"},
		Constructors: map[supervisors.Kind]supervisors.Constructor{"node": func(string) supervisors.Actor {
			return asker(func(ctx context.Context) {
				req, _ := http.NewRequestWithContext(ctx, http.MethodPatch, server.URL+"/api/v1/pods/web?token=x", nil)
				if resp, err := transport.RoundTrip(req); err == nil {
					_ = resp.Body.Close()
				}
				close(done)
			})
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	<-done
	if err := system.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	node, found := messages.Node, ""
	for _, e := range system.Recorder().Select(supervisors.Query{Actor: &node}) {
		if e.Kind == supervisors.OfCall {
			found = string(e.To) + " " + e.Message + " " + e.Digest
		}
	}
	if found != "sources/apiserver PATCH /api/v1/pods/web failed=409" {
		t.Errorf("recorded is %q", found)
	}
}

type asker func(context.Context)

func (a asker) Receive(ctx supervisors.Context, msg any) {
	if _, ok := msg.(messages.Started); ok {
		ctx.Do(supervisors.Work{Name: "ask", Timeout: time.Minute, Run: func(c context.Context) any { a(c); return messages.GetNode{} }})
	}
}

// At SIGUSR1 the flight recorder is written to its file, which is replaced each time.
func TestTheFlightRecorderIsWrittenAtASignal(t *testing.T) {
	recorder, file, log := supervisors.NewRecorder(), filepath.Join(t.TempDir(), "flight-recorder.log"), &logBuffer{}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); dumpOnSignal(ctx, recorder, file, slog.New(slog.NewTextHandler(log, nil))) }()
	defer func() { end(); <-ended }()
	for _, message := range []string{"First", "Second"} {
		recorder.Add(supervisors.Entry{Message: message, To: messages.Pods})
		for until := time.Now().Add(waitLimit); ; time.Sleep(10 * time.Millisecond) {
			if strings.Contains(log.String(), "flight recorder cannot") || time.Now().After(until) {
				t.Fatal(log.String())
			}
			if syscall.Kill(os.Getpid(), syscall.SIGUSR1) != nil {
				t.Fatal("no signal is sent")
			}
			if got, err := os.ReadFile(file); err == nil && strings.Contains(string(got), "pods "+message) {
				break
			}
		}
	}
}
