// Package fake is an agent for tests of the commands, with pods to show.
package fake

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

// Agent is a fake of the agent that returns the test's answers on a socket.
type Agent struct {
	Commands []func() *cobra.Command // that are under test
	Socket   string
	Mu       sync.Mutex
	Pods     api.Pods
	Actors   api.Actors
	Trace    api.Trace // without entries, the trace does not exist
	Version  api.Version
	Figures  api.Figures
	Cause    string // in explanations
	Chaos    func(r chaos.Rule, dryRun bool) (*api.ChaosRule, *api.Error)
	Broken   bool // it answers nothing of use
	Queries  []string
	Lines    chan *api.Change // of every watch; a nil ends the stream
}

// Start starts an agent without pods, which ends with the test.
func Start(t *testing.T, commands ...func() *cobra.Command) *Agent {
	t.Helper()
	dir, err := os.MkdirTemp("", "cmd") // a short path: unix sockets have short names
	if err != nil {
		t.Fatal(err)
	}
	f := &Agent{Commands: commands, Socket: filepath.Join(dir, "s"), Lines: make(chan *api.Change, 10)}
	f.Pods.Runtime = api.Runtime{Ready: true, NetworkReady: true}
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/pods", f.answerPods)
	for path, answer := range map[string]func(*http.Request) any{
		"GET /v1/actors":             func(*http.Request) any { return f.Actors },
		"GET /v1/events":             func(*http.Request) any { return v1.EventList{} },
		"GET /v1/figures":            func(*http.Request) any { return f.Figures },
		"GET /v1/version":            func(*http.Request) any { return f.Version },
		"GET /v1/explain/pod/{name}": f.explain,
		"GET /v1/trace":              f.trace,
		"POST /v1/chaos":             f.addChaos,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			f.Mu.Lock()
			defer f.Mu.Unlock()
			out := answer(r)
			if refused, ok := out.(*api.Error); ok {
				w.WriteHeader(refused.Status)
			}
			_ = json.NewEncoder(w).Encode(out)
		})
	}
	mux.HandleFunc("GET /v1/logs/{namespace}/{pod}", func(w http.ResponseWriter, r *http.Request) {
		who := r.PathValue("pod") + " " + r.URL.Query().Get("container")
		if r.URL.Query().Get("container") == "late" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"status":400,"error":"late has not been started yet"}`)
			return
		}
		_, _ = io.WriteString(w, who+" 1\n"+who+" 2")
	})
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "unix", f.Socket)
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

// explain explains all pods of a name.
func (f *Agent) explain(r *http.Request) any {
	var out api.Explanations
	for _, p := range f.Pods.Pods {
		if p.Pod.Name == r.PathValue("name") {
			var e api.Explanation
			e.Namespace, e.Name, e.UID = p.Pod.Namespace, p.Pod.Name, string(p.Pod.UID)
			e.Cause = cmp.Or(f.Cause, "the cause of "+p.Pod.Name)
			out.Items = append(out.Items, e)
		}
	}
	return out
}

func (f *Agent) trace(r *http.Request) any {
	f.Queries = append(f.Queries, r.URL.RawQuery)
	if q := r.URL.Query(); len(f.Trace.Entries) == 0 {
		return &api.Error{Status: http.StatusNotFound, Text: "there is no " + q.Get("pod") + q.Get("actor")}
	}
	return f.Trace
}

func (f *Agent) addChaos(r *http.Request) any {
	var rule chaos.Rule
	_ = json.NewDecoder(r.Body).Decode(&rule)
	added, refused := f.Chaos(rule, r.URL.Query().Get("dryRun") != "")
	if refused != nil {
		return refused
	}
	return added
}

func (f *Agent) answerPods(w http.ResponseWriter, r *http.Request) {
	f.Mu.Lock()
	f.Queries = append(f.Queries, r.URL.RawQuery)
	pods, broken := f.Pods, f.Broken
	f.Mu.Unlock()
	if broken {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if r.URL.Query().Get("watch") == "" {
		_ = json.NewEncoder(w).Encode(pods)
		return
	}
	for {
		select {
		case line := <-f.Lines:
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

// Command runs playlet with these arguments, and returns its output.
func (f *Agent) Command(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return Run(append(args, "--admin-socket="+f.Socket), f.Commands...)
}

// Has gives it more pods.
func (f *Agent) Has(pods ...*api.Pod) {
	for i, p := range pods {
		p.Pod.APIVersion, p.Pod.Kind = "v1", "Pod"
		if p.Pod.UID == "" {
			p.Pod.UID = types.UID(rune('a' + i))
		}
		f.Pods.Pods = append(f.Pods.Pods, *p)
	}
}

// HasActors sets a tree with two pods of the same name. One of them hangs, and one is in quarantine.
func (f *Agent) HasActors() {
	actor := func(path messages.Address, kind supervisors.Kind, pod string) api.Actor {
		vitals := supervisors.Vitals{Path: path, Kind: kind, State: supervisors.Running, Since: Noon.Add(-time.Hour)}
		return api.Actor{Vitals: vitals, Pod: pod}
	}
	hangs, quarantined := actor("pods/u1", "pod", "default/web"), actor("pods/u2", "pod", "other/web")
	hangs.Handling = &supervisors.HandledMessage{Message: "ImagePulled", From: "images", Sent: Noon.Add(-9 * time.Second),
		Began: Noon.Add(-8 * time.Second)}
	hangs.Waiting, hangs.Restarts = 4, 2
	hangs.Failure = &supervisors.Failure{Reason: "nil map \x1b[31m", At: Noon.Add(-time.Minute)}
	quarantined.State, quarantined.Until = supervisors.Quarantined, Noon.Add(4*time.Minute)
	quarantined.Failure = &supervisors.Failure{Reason: "out of range", At: Noon.Add(-time.Minute)}
	container := actor("pods/u1/c", "container", "default/web")
	container.Desired = "RunContainer container=c"
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Actors = api.Actors{At: Noon, Actors: []api.Actor{
		actor("", "node", ""), actor("images", "images", ""), actor("pods", "pods", ""), hangs,
		container, quarantined, actor("sources", "sources", ""),
		actor("sources/file", "file", ""),
	}}
}

// Run is playlet with these arguments, of the commands that are made so.
func Run(args []string, commands ...func() *cobra.Command) (stdout, stderr string, code int) {
	root := &cobra.Command{Use: "playlet"}
	for _, c := range commands {
		root.AddCommand(c())
	}
	var out, err bytes.Buffer
	code = cli.Main(root, args, &out, &err)
	return out.String(), err.String(), code
}
