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
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

// fakeAgent answers on a socket what a test wants it to.
type fakeAgent struct {
	socket  string
	mu      sync.Mutex
	pods    api.Pods
	actors  api.Actors
	trace   api.Trace // without entries, there is none of what is asked for
	version api.Version
	figures api.Figures
	cause   string // of what is explained
	chaos   func(r chaos.Rule, dryRun bool) (*api.ChaosRule, *api.Error)
	broken  bool // it answers nothing of use
	queries []string
	lines   chan *api.Change // of every watch; a nil ends the stream
}

func startFakeAgent(t *testing.T) *fakeAgent {
	t.Helper()
	dir, err := os.MkdirTemp("", "cmd") // a short path: unix sockets have short names
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeAgent{socket: filepath.Join(dir, "s"), lines: make(chan *api.Change, 10)}
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
	var out, err bytes.Buffer
	code = run(append(args, "--admin-socket="+f.socket), &out, &err)
	return out.String(), err.String(), code
}

func (f *fakeAgent) has(pods ...*api.Pod) {
	for i, p := range pods {
		p.Pod.APIVersion, p.Pod.Kind = "v1", "Pod"
		if p.Pod.UID == "" {
			p.Pod.UID = types.UID(rune('a' + i))
		}
		f.pods.Pods = append(f.pods.Pods, *p)
	}
}

// run is playlet with these arguments.
func run(args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{Use: "playlet"}
	root.AddCommand(Commands()...)
	return cli.Main(root, args, stdout, stderr)
}
