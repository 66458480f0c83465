package client

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

	"k8s.io/apimachinery/pkg/types"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

// fakeAgent answers on a socket what a test wants it to.
type fakeAgent struct {
	commands []func() *cobra.Command // that are under test
	socket   string
	mu       sync.Mutex
	pods     api.Pods
	actors   api.Actors
	trace    api.Trace // without entries, there is none of what is asked for
	version  api.Version
	figures  api.Figures
	cause    string // of what is explained
	chaos    func(r chaos.Rule, dryRun bool) (*api.ChaosRule, *api.Error)
	broken   bool // it answers nothing of use
	queries  []string
	lines    chan *api.Change // of every watch; a nil ends the stream
}

// startFakeAgent starts an agent without pods, which ends with the test.
func startFakeAgent(t *testing.T, commands ...func() *cobra.Command) *fakeAgent {
	t.Helper()
	dir, err := os.MkdirTemp("", "cmd") // a short path: unix sockets have short names
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeAgent{commands: commands, socket: filepath.Join(dir, "s"), lines: make(chan *api.Change, 10)}
	f.pods.Runtime = api.Runtime{Ready: true, NetworkReady: true}
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/pods", f.answerPods)
	mux.HandleFunc("GET /v1/actors", func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		_ = json.NewEncoder(w).Encode(f.actors)
	})
	mux.HandleFunc("GET /v1/figures", func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		_ = json.NewEncoder(w).Encode(f.figures)
	})
	mux.HandleFunc("GET /v1/explain/pod/{name}", f.explain)
	mux.HandleFunc("POST /v1/chaos", f.addChaos)
	mux.HandleFunc("GET /v1/trace", func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.queries = append(f.queries, r.URL.RawQuery)
		if q := r.URL.Query(); len(f.trace.Entries) == 0 {
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(api.Error{Status: http.StatusNotFound, Text: "there is no " + q.Get("pod") + q.Get("actor")})
			return
		}
		_ = json.NewEncoder(w).Encode(f.trace)
	})
	mux.HandleFunc("GET /v1/logs/{namespace}/{pod}", func(w http.ResponseWriter, r *http.Request) {
		who := r.PathValue("pod") + " " + r.URL.Query().Get("container")
		if r.URL.Query().Get("container") == "late" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"status":400,"error":"late has not been started yet"}`)
			return
		}
		_, _ = io.WriteString(w, who+" 1\n"+who+" 2")
	})
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

// explain explains all pods of a name.
func (f *fakeAgent) explain(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out api.Explanations
	for _, p := range f.pods.Pods {
		if p.Pod.Name == r.PathValue("name") {
			var e api.Explanation
			e.UID, e.Cause = string(p.Pod.UID), cmp.Or(f.cause, "the cause of "+p.Pod.Name)
			out.Items = append(out.Items, e)
		}
	}
	_ = json.NewEncoder(w).Encode(out)
}

func (f *fakeAgent) addChaos(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var rule chaos.Rule
	_ = json.NewDecoder(r.Body).Decode(&rule)
	added, refused := f.chaos(rule, r.URL.Query().Get("dryRun") != "")
	if refused != nil {
		w.WriteHeader(refused.Status)
		_ = json.NewEncoder(w).Encode(refused)
		return
	}
	_ = json.NewEncoder(w).Encode(added)
}

func (f *fakeAgent) answerPods(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.queries = append(f.queries, r.URL.RawQuery)
	pods, broken := f.pods, f.broken
	f.mu.Unlock()
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
	return run(append(args, "--admin-socket="+f.socket), f.commands...)
}

// has gives it more pods.
func (f *fakeAgent) has(pods ...*api.Pod) {
	for i, p := range pods {
		p.Pod.APIVersion, p.Pod.Kind = "v1", "Pod"
		if p.Pod.UID == "" {
			p.Pod.UID = types.UID(rune('a' + i))
		}
		f.pods.Pods = append(f.pods.Pods, *p)
	}
}

// hasActors is a tree with two pods of one name, one of which hangs and one of which is in quarantine.
func (f *fakeAgent) hasActors() {
	actor := func(path messages.Address, kind supervisors.Kind, pod string) api.Actor {
		return api.Actor{Vitals: supervisors.Vitals{Path: path, Kind: kind, State: supervisors.Running, Since: noon.Add(-time.Hour)}, Pod: pod}
	}
	hangs, quarantined := actor("pods/u1", "pod", "default/web"), actor("pods/u2", "pod", "other/web")
	hangs.Handling = &supervisors.Handling{Message: "ImagePulled", From: "images", Sent: noon.Add(-9 * time.Second),
		Began: noon.Add(-8 * time.Second)}
	hangs.Waiting, hangs.Restarts = 4, 2
	hangs.Failure = &supervisors.Failure{Reason: "nil map \x1b[31m", At: noon.Add(-time.Minute)}
	quarantined.State, quarantined.Until = supervisors.Quarantined, noon.Add(4*time.Minute)
	quarantined.Failure = &supervisors.Failure{Reason: "out of range", At: noon.Add(-time.Minute)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.actors = api.Actors{At: noon, Actors: []api.Actor{
		actor("", "node", ""), actor("images", "images", ""), actor("pods", "pods", ""), hangs, actor("pods/u1/c", "container", "default/web"),
		quarantined, actor("sources", "sources", ""), actor("sources/file", "file", ""),
	}}
}

// run is playlet with these arguments, of the commands that are made so.
func run(args []string, commands ...func() *cobra.Command) (stdout, stderr string, code int) {
	root := &cobra.Command{Use: "playlet"}
	for _, c := range commands {
		root.AddCommand(c())
	}
	var out, err bytes.Buffer
	code = cli.Main(root, args, &out, &err)
	return out.String(), err.String(), code
}
