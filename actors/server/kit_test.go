package server

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// waitLimit bounds waits that end at once in a passing test.
const waitLimit = 5 * time.Minute

// fakeTree is a running tree whose actors answer, or hang.
type fakeTree struct {
	mu          sync.Mutex
	kinds       map[messages.Address]supervisors.Kind
	quarantined map[messages.Address]messages.ChildQuarantined
	hangs       bool
	asked       int
	question    any   // the last one
	answer      any   // to questions other than an inspection
	answers     []any // answers to the next questions, used first
	recorder    *supervisors.Recorder
}

func newFakeTree() *fakeTree {
	return &fakeTree{kinds: map[messages.Address]supervisors.Kind{
		messages.Node: "node", messages.Pods: "pods", "pods/u1": "pod", messages.Server: "server",
		messages.Submit: "submit",
	}, recorder: supervisors.NewRecorder(), quarantined: map[messages.Address]messages.ChildQuarantined{}}
}

func (f *fakeTree) Ask(ctx context.Context, to messages.Address, question any) (any, error) {
	f.mu.Lock()
	f.asked++
	f.question = question
	hangs, kind, answer := f.hangs, f.kinds[to], f.answer
	if len(f.answers) > 0 {
		answer, f.answers = f.answers[0], f.answers[1:]
	}
	f.mu.Unlock()
	if hangs { // like a stuck actor, without the delay
		return nil, &supervisors.ErrNoAnswer{Actor: to, Question: "GetInspection", Err: context.DeadlineExceeded}
	}
	if _, limited := ctx.Deadline(); !limited {
		panic("asked without a deadline")
	}
	if _, ok := question.(messages.GetInspection); !ok {
		return answer, nil
	}
	return messages.Inspection{Path: to.String(), Kind: string(kind), Handled: 7, Detail: map[string]string{"pod": "a/b"}}, nil
}

func (f *fakeTree) Vitals() []supervisors.Vitals {
	var out []supervisors.Vitals
	for _, a := range []messages.Address{messages.Node, messages.Pods, "pods/u0", "pods/u1", messages.Server} {
		if v, ok := f.VitalsOf(a); ok {
			out = append(out, v)
		}
	}
	return out
}

func (f *fakeTree) VitalsOf(a messages.Address) (supervisors.Vitals, bool) {
	v := supervisors.Vitals{Path: a, Kind: f.kinds[a], State: supervisors.Running}
	if q, ok := f.Quarantined()[a]; ok {
		v.State, v.Until, v.Failure = supervisors.Quarantined, q.Until, &supervisors.Failure{Reason: q.Reason}
	} else if f.hangs {
		v.Handling, v.Waiting = &supervisors.HandledMessage{Message: "GetDesired", From: "pods/u1", Began: time.Now().Add(-time.Hour)}, 3
	}
	return v, v.Kind != "" || v.State == supervisors.Quarantined
}
func (f *fakeTree) Quarantined() map[messages.Address]messages.ChildQuarantined {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[messages.Address]messages.ChildQuarantined{}
	for k, v := range f.quarantined {
		out[k] = v
	}
	return out
}
func (f *fakeTree) Recorder() *supervisors.Recorder { return f.recorder }

// rig is a Listeners on a socket in a folder of its own, with a client.
type rig struct {
	*testing.T
	dir, socket string
	board       *board.Board
	tree        *fakeTree
	listeners   *Listeners
	client      *api.Client

	mu      sync.Mutex
	runtime api.Runtime
}

func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	r := &rig{
		T: t, dir: tempDir(t), board: board.New(), tree: newFakeTree(),
		runtime: api.Runtime{Endpoint: "unix:///c.sock", Name: "containerd", Version: "2.4.2", Ready: true, NetworkReady: true},
	}
	r.socket = filepath.Join(r.dir, "playlet", "admin.sock")
	conf := Config{AdminSocket: r.socket, Board: r.board, Runtime: r.word, Version: "v1", Kubernetes: "1.36.3"}
	if change != nil {
		change(&conf)
	}
	r.listeners = NewListeners(conf)
	r.client = api.NewClient(r.socket)
	t.Cleanup(func() {
		if err := r.listeners.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return r
}

// openRig returns an open rig, with a tree attached.
func openRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, nil)
	if err := r.listeners.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.listeners.Attach(r.tree)
	return r
}

func (r *rig) word() api.Runtime {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runtime
}

func (r *rig) setRuntime(w api.Runtime) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runtime = w
}

// tempDir returns a folder with a short name, as required for sockets.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "srv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// raw makes a request to the admin socket without the client.
func (r *rig) raw(method, path string) *http.Response {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, "http://playlet"+path, nil)
	if err != nil {
		r.Fatal(err)
	}
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", r.socket)
	}}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func pod(namespace, name, uid string, status *v1.PodStatus) board.Pod {
	return board.Pod{Pod: &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i", Env: []v1.EnvVar{{Name: "K", Value: "v"}}}}},
	}, Status: status, Source: messages.File, Phase: "running"}
}
