package url

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

const secret = "s3cret-token"

// rig is the actor with its server.
type rig struct {
	*testing.T
	opts   Options
	kit    *supervisortest.Kit
	actor  *source
	answer http.HandlerFunc
	asked  []*http.Request
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.asked = append(r.asked, req)
		r.answer(w, req)
	}))
	t.Cleanup(server.Close)
	r.opts = Options{
		URL: server.URL + "/pods?key=" + secret, Node: base.Node{NodeName: "node"}, StateDir: filepath.Join(t.TempDir(), "http"),
		Header: http.Header{"x-token": {"Bearer " + secret}},
	}
	return r
}

func (r *rig) start() {
	r.actor = New(r.opts)("http").(*source)
	r.kit = supervisortest.New(r, messages.URL, r.actor)
	r.settle()
}

// settle completes all due work, including checkpoints.
func (r *rig) settle() {
	r.kit.RunWork()
	r.kit.Advance(base.SaveDelay)
	r.kit.RunWork()
}

// check runs the regular check. It returns the last message: the pods, a mark if they are unknown, the problems.
func (r *rig) check() string {
	r.Helper()
	r.kit.Advance(defaultCheckFrequency)
	r.settle()
	return r.sent()
}

func (r *rig) sent() string {
	r.Helper()
	r.kit.Take()
	r.kit.Send(messages.Sources, messages.ResendDesired{})
	sent := r.kit.Take()
	if len(sent) == 0 {
		return "nothing"
	}
	desired := sent[0].Msg.(messages.SourcePodsWanted)
	var out []string
	for _, p := range desired.Pods {
		out = append(out, p.Namespace+"/"+p.Name+"="+p.Spec.Containers[0].Image)
	}
	if desired.Unknown {
		out = append(out, "unknown")
	}
	for _, p := range desired.Problems {
		text := fmt.Sprintf("%d:%s", p.Line, p.Field)
		if p.Field == "" {
			text = p.Message
		}
		if p.KeptLast {
			text += " kept"
		}
		out = append(out, text)
	}
	inspection, err := json.Marshal(r.actor.Inspect())
	if err != nil {
		r.Fatal(err)
	}
	if all := fmt.Sprintf("%+v %s", desired.Problems, inspection); strings.Contains(all, secret) {
		r.Errorf("a credential is told: %s", all)
	}
	return strings.Join(out, " ")
}

func (r *rig) says(got, want string) {
	r.Helper()
	if got != want {
		r.Errorf("it says %q, and not %q", got, want)
	}
}

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }
}

func yaml(name, image string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata:\n  name: %s\nspec:\n  containers:\n  - name: main\n    image: %s\n",
		name, image)
}

func TestTheLastGoodListStays(t *testing.T) {
	r := newRig(t)
	r.answer = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, secret, 500) }
	r.start()
	r.says(r.sent(), "unknown it cannot be read: the server answers 500 Internal Server Error")
	r.answer = text(yaml("web", "one"))
	r.says(r.check(), "default/web-node=one")
	r.answer = text(yaml("web", "one") + "---\n" + yaml("db", "two"))
	r.says(r.check(), "default/web-node=one default/db-node=two")
	good := "default/web-node=one default/db-node=two"
	for _, bad := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"gone", http.NotFound, " it cannot be read: the server answers 404 Not Found kept"},
		{"one bad document", text(yaml("web", "three") + "---\n" + yaml("db", "''")), " 17:spec.containers[0].image kept"},
		{"garbage with a credential", text("{" + secret), ""},
		{"a credential sent back as a value", text(strings.Replace(yaml("web", "one"), "spec:", "spec:\n  restartPolicy: "+secret,
			1)),
			" 6:spec.restartPolicy kept"},
		{"a UID twice", text(strings.ReplaceAll(yaml("a", "i")+"---\n"+yaml("b", "i"), "\nspec:", "\n  uid: u\nspec:")),
			" 0:metadata.uid kept"},
		{"too large", text(strings.Repeat("#", maxBody+1)),
			" it cannot be read: it is larger than the 10 MiB that a manifest may have kept"},
		{"a bomb", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = z.Write(bytes.Repeat([]byte("#"), maxBody+1))
			_ = z.Close()
			_, _ = w.Write(b.Bytes())
		}, " it cannot be read: it is larger than the 10 MiB that a manifest may have kept"},
		{"cut off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(yaml("web", "three")))
		}, " it cannot be read: unexpected EOF kept"},
		{"unasked for", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) },
			" it cannot be read: the server answers 304 Not Modified kept"},
	} {
		t.Run(bad.name, func(t *testing.T) {
			r.T = t
			r.answer = bad.answer
			if got := r.check(); !strings.HasPrefix(got, good+bad.want) || len(got) == len(good) {
				t.Errorf("it says %q, want %q", got, good+bad.want)
			}
		})
	}
	r.T = t
	r.start()
	if got := r.sent(); !strings.HasPrefix(got, good) || !strings.HasSuffix(got, "kept") {
		t.Errorf("a restart makes it %q", got)
	}
	r.answer = text(yaml("web", "one"))
	r.says(r.check(), "default/web-node=one")
	r.answer = text("apiVersion: v1\nkind: PodList\nitems: []\n")
	r.says(r.check(), "")
	r.answer = text("") // no pod depends on it
	r.says(r.check(), "")
}

// An empty answer ends no pod, also not one that an earlier agent started and whose list is lost.
func TestEmptyAnswer(t *testing.T) {
	r := newRig(t)
	unread := func() []string {
		r.kit.Take()
		r.kit.Send(messages.Sources, messages.ResendDesired{})
		return r.kit.Take()[0].Msg.(messages.SourcePodsWanted).Unread
	}
	const empty = "the answer is empty; an empty list (items: []) ends the pods"
	for _, body := range []string{"", " \n", "null", "\ufeff"} {
		r.answer = text(body)
		r.start()
		for range 2 {
			if r.says(r.sent(), empty); len(unread()) != 1 {
				t.Errorf("%q ends the pods that an earlier agent started", body)
			}
			r.check()
		}
		r.answer = text(yaml("web", "one"))
		if r.says(r.check(), "default/web-node=one"); len(unread()) != 0 {
			t.Errorf("after %q a good manifest is unread", body)
		}
		r.answer = text(body)
		r.says(r.check(), "default/web-node=one "+empty+" kept")
		r.start()
		r.says(r.sent(), "default/web-node=one "+empty+" kept")
		r.opts.StateDir = filepath.Join(t.TempDir(), "http") // the list is lost
	}
	r.answer = text("kind: List\napiVersion: v1\nitems: []\n")
	r.start()
	if r.says(r.sent(), ""); len(unread()) != 0 {
		t.Error("an empty list is unread")
	}
}

func TestRequestsAreConditional(t *testing.T) {
	r := newRig(t)
	r.answer = func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Last-Modified", "Fri, 02 Jan 2026 03:04:05 GMT")
		if req.Header.Get("If-None-Match") == `"v1"` && req.Header.Get("If-Modified-Since") != "" {
			w.WriteHeader(304)
			return
		}
		text(yaml("web", "one"))(w, req)
	}
	r.start()
	r.says(r.sent(), "default/web-node=one")
	before := r.actor.state
	r.says(r.check(), "default/web-node=one")
	if after := r.actor.state; after.answer != "304 Not Modified" || after.pods[0] != before.pods[0] {
		t.Errorf("the answer was %s", after.answer)
	}
	r.start() // the validators are on disk with their pods
	if s := r.actor.state; s.answer != "304 Not Modified" || len(s.pods) != 1 {
		t.Errorf("after a restart: %+v", s)
	}
	r.opts.Node.NodeName = "other"
	r.start()
	r.says(r.sent(), "default/web-other=one")
}

func TestThePodIsTheKubelets(t *testing.T) {
	r := newRig(t)
	r.answer = text(yaml("web", "one"))
	r.start()
	pod := r.actor.state.pods[0]
	if pod.Annotations["kubernetes.io/config.source"] != "http" || pod.Spec.NodeName != "node" || pod.UID == "" {
		t.Errorf("%+v", pod.ObjectMeta)
	}
	r.kit.Advance(time.Hour)
	r.answer = text("# a comment\n" + yaml("web", "one"))
	r.check()
	if again := r.actor.state.pods[0]; again != pod {
		t.Error("what says the same became another object")
	}
}

func TestHeadersGoNowhereElse(t *testing.T) {
	var there http.Header
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		there = req.Header
		text(yaml("far", "one"))(w, req)
	}))
	defer other.Close()
	r := newRig(t)
	r.answer = func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/pods" {
			http.Redirect(w, req, "/moved", http.StatusFound)
			return
		}
		http.Redirect(w, req, other.URL, http.StatusFound)
	}
	r.start()
	r.says(r.sent(), "default/far-node=one")
	for _, req := range r.asked {
		if req.Header.Get("X-Token") != "Bearer "+secret {
			t.Errorf("%s was asked without the header", req.URL.Path)
		}
	}
	if there == nil || strings.Contains(fmt.Sprint(there), secret) {
		t.Errorf("the other host was sent %v", there)
	}
	r.answer = func(w http.ResponseWriter, req *http.Request) { http.Redirect(w, req, "/pods", http.StatusFound) }
	r.says(r.check(), "default/far-node=one it cannot be read: it redirects more than 10 times kept")
}

func TestNobodyAnswers(t *testing.T) {
	r := newRig(t)
	r.opts.URL = "http://127.0.0.1:1/pods?" + secret
	r.start()
	if got := r.sent(); !strings.HasPrefix(got, "unknown it cannot be read: ") || !strings.Contains(got, "connection refused") {
		t.Errorf("it says %q", got)
	}
	f := newFetcher(r.opts)
	f.client.Transport = slow{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if got := f.fetch(ctx, validators{}, time.Now()); got.failure != "it cannot be read: there is no whole answer within 10s" {
		t.Errorf("a slow one: %+v", got)
	}
}

type slow struct{}

func (slow) RoundTrip(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func TestDamagedCheckpoint_StartsAnyway(t *testing.T) {
	r := newRig(t)
	r.answer = text(yaml("web", "one"))
	r.start()
	if err := os.WriteFile(base.Path(r.opts.StateDir), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.answer = http.NotFound
	r.start()
	r.says(r.sent(), "unknown it cannot be read: the server answers 404 Not Found")
	r.answer = text(yaml("web", "one"))
	r.says(r.check(), "default/web-node=one")
}

// FuzzAnswers checks that any answer is a list of pods with unique names, or a problem that leaves the last list in force.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte(yaml("web", "one")))
	f.Add([]byte(yaml("web", "one") + "---\n" + yaml("db", "two")))
	f.Add([]byte("{"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, body []byte) {
		server := roundTrip(func() *http.Response {
			rec := httptest.NewRecorder()
			_, _ = rec.Write(body)
			return rec.Result()
		})
		fetcher := newFetcher(Options{URL: "http://h/p", Node: base.Node{NodeName: "node"}, Transport: server})
		good, _ := state{}.after(fetcher.fetch(t.Context(), validators{}, time.Unix(0, 0)), "http://h/p")
		faulty := slices.ContainsFunc(good.problems, func(p messages.ManifestProblem) bool { return !p.Warning })
		if good.loaded == (faulty && !good.hollow) || !good.loaded && len(good.pods) > 0 {
			t.Fatalf("%+v", good)
		}
		names := map[string]bool{}
		for _, p := range good.pods {
			if names[p.Namespace+"/"+p.Name] || names[string(p.UID)] {
				t.Fatalf("%s/%s twice", p.Namespace, p.Name)
			}
			names[p.Namespace+"/"+p.Name], names[string(p.UID)] = true, true
		}
	})
}

type roundTrip func() *http.Response

func (f roundTrip) RoundTrip(*http.Request) (*http.Response, error) { return f(), nil }

// A server that gives each answer a new date or tag does not cause a write at each check: the checkpoint is for the list.
func TestOnlyAChangedListIsWrittenToDisk(t *testing.T) {
	r := newRig(t)
	asked := 0
	body := yaml("web", "one")
	r.answer = func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("ETag", fmt.Sprintf(`"%d"`, asked))
		text(body)(w, nil)
	}
	r.start()
	writes := func() int {
		r.kit.Advance(defaultCheckFrequency)
		n := 0
		for range 2 {
			for len(r.kit.Work) > 0 {
				w := r.kit.Work[0]
				r.kit.Work = r.kit.Work[1:]
				if w.Name == "SaveLastGood" {
					n++
				}
				r.kit.RunOne(w)
			}
			r.kit.Advance(base.SaveDelay)
		}
		return n
	}
	if n := writes() + writes(); n != 0 {
		t.Errorf("%d writes of the same pods", n)
	}
	if last := r.asked[len(r.asked)-1]; last.Header.Get("If-None-Match") != `"2"` {
		t.Errorf("asked with %q", last.Header.Get("If-None-Match")) // the newest known tag
	}
	body = yaml("web", "two")
	if n := writes(); n != 1 {
		t.Errorf("%d writes of other pods", n)
	}
	r.start()
	r.says(r.sent(), "default/web-node=two")
}

// A pod that left the manifest is reported as gone until it has ended, also when the next process cannot read the manifest.
func TestDeparted_OutlivesTheProcess(t *testing.T) {
	r := newRig(t)
	r.opts.Board = board.New()
	r.answer = text(yaml("web", "one") + "---\n" + yaml("db", "two"))
	r.start()
	web := string(r.actor.state.pods[0].UID)
	r.answer = text(yaml("db", "two"))
	r.says(r.check(), "default/db-node=two")
	gone := func(want ...string) {
		t.Helper()
		if got := slices.Collect(maps.Keys(r.actor.desired.Gone)); !slices.Equal(got, want) {
			t.Errorf("gone are %v, want %v", got, want)
		}
	}
	gone(web)
	r.answer = http.NotFound
	r.start()
	if r.check(); len(r.actor.desired.Unread) != 1 {
		t.Errorf("unread %v, want the URL", r.actor.desired.Unread)
	}
	gone(web)
	r.opts.Board.Publish(board.Snapshot{Audited: true})
	for range 4 {
		r.check() // until a minute has passed since the start
	}
	gone()
	r.start()
	gone()
}

// A warning ends no pod, and stays reported after a "not modified" answer.
func TestState_Warnings(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}}
	warning := messages.ManifestProblem{Path: "u", Field: "spec.x", Message: "is not a field", Warning: true}
	s, changed := state{}.after(fetchResult{pods: []*v1.Pod{pod}, problems: []messages.ManifestProblem{warning}}, "u")
	if !changed || len(s.pods) != 1 || !slices.Equal(s.problems, []messages.ManifestProblem{warning}) {
		t.Fatalf("got %+v, want the pod and the warning", s)
	}
	if s, _ = s.after(fetchResult{same: true}, "u"); !slices.Equal(s.problems, []messages.ManifestProblem{warning}) {
		t.Fatalf("unchanged: got problems %v, want the warning", s.problems)
	}
	s, _ = s.after(fetchResult{problems: []messages.ManifestProblem{warning, {Path: "u", Message: "bad"}}}, "u")
	if len(s.pods) != 1 || s.problems[0].KeptLast || !s.problems[1].KeptLast {
		t.Fatalf("with a fault: got %+v, want the last good pod, kept for the fault alone", s)
	}
}
