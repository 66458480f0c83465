package agent

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/cri/sim"
)

// serve makes the rig's agent, once it starts, run the pods of a URL. It returns a function that sets the manifest there; with
// "" the server fails.
func (r *rig) serve(manifest string) func(string) {
	r.t.Helper()
	var now atomic.Pointer[string]
	set := func(m string) { now.Store(&m) }
	set(manifest)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text := *now.Load()
		if text == "" {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte(text))
	}))
	r.t.Cleanup(server.Close)
	r.flags = append(r.flags, "--manifest-url="+server.URL+"/pods.yaml", "--http-check-frequency=100ms")
	return set
}

// untilKept waits until a file has that in it.
func (r *rig) untilKept(path, want string) {
	r.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(20 * time.Millisecond) {
		has, err := os.ReadFile(path)
		if bytes.Contains(has, []byte(want)) {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s has not %q in it, but %q (%v)", path, want, has, err)
		}
	}
}

// TestPodsOfAURL: they come and change with it, and stay when it fails, also over a restart of the agent.
func TestPodsOfAURL(t *testing.T) {
	r := newRig(t, sim.Options{})
	set := r.serve("")
	r.start(nil)
	r.untilPrinted([]string{"pods"}, "sources/url has not reported yet",
		"/pods.yaml: it cannot be read: the server answers 500")
	set(manifest("web", "Always", nil, []string{"main one"}))
	r.untilPrinted([]string{"pods", "-o", "wide"}, "web-node", "Running", "sources/url")
	uid := r.runtime.Snapshot().Container("web-node", "main").PodUID
	set(manifest("web", "Always", nil, []string{"main two"}) + "---\n" + manifest("more", "Always", nil, []string{"main one"}))
	r.await("the change", func(s sim.Snapshot) bool {
		c := s.Container("web-node", "main")
		return c != nil && c.PodUID != uid && c.Running() && s.Running() == 2 && len(s.Sandboxes) == 2
	})
	set("garbage")
	r.untilPrinted([]string{"pods"}, "(the last good version keeps running)")
	set("")
	r.untilKept(base.Path(filepath.Join(stateDir(r.node()), "http-source")), "more-node") // it is written a little after the change
	r.stop()
	started := len(r.runtime.Calls("StartContainer"))
	r.start(nil)
	r.untilPrinted([]string{"pods"}, "the server answers 500", "(the last good version keeps running)", "more-node")
	r.refuses([]string{"rm", "more"}, "was not submitted: it comes from the manifests of staticPodURL; to end it, remove it there")
	if n := len(r.runtime.Calls("StartContainer")); n != started || r.runtime.Snapshot().Running() != 2 {
		t.Errorf("%d containers were started, and %d run", n-started, r.runtime.Snapshot().Running())
	}
	set("apiVersion: v1\nkind: PodList\nitems: []\n")
	r.await("the end of all", func(s sim.Snapshot) bool { return len(s.Sandboxes) == 0 })
	if strings.Contains(r.log.String(), "panic") {
		t.Error("something panicked")
	}
}
