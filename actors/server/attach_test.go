package server

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
)

func (f *fakeRuntime) Attach(ctx context.Context, r *runtimeapi.AttachRequest) (string, error) {
	return f.Exec(ctx, &runtimeapi.ExecRequest{
		ContainerId: r.ContainerId, Cmd: []string{"cat"}, Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Tty: r.Tty,
	})
}

func (f *fakeRuntime) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return []*runtimeapi.PodSandbox{{Id: "old", CreatedAt: 1}, {Id: "s1", CreatedAt: 2}}, nil
}

func (f *fakeRuntime) PortForward(_ context.Context, r *runtimeapi.PortForwardRequest) (string, error) {
	if r.PodSandboxId != "s1" {
		f.Errorf("sandbox %s", r.PodSandboxId)
	}
	return f.ports.URL, f.err
}

// forwards echoes the data of each stream.
func forwards(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Stream-Protocol-Version", r.Header.Get("X-Stream-Protocol-Version"))
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, answered <-chan struct{}) error {
		go func() {
			<-answered
			if s.Headers().Get("streamType") == "data" {
				_, _ = io.WriteString(s, s.Headers().Get("port")+":")
				_, _ = io.Copy(s, s)
			}
			_ = s.Close()
		}()
		return nil
	})
	<-conn.CloseChan()
}

// A container's own process receives the input and writes the output; a UID selects no other pod.
func TestAttach(t *testing.T) {
	r, f := execRig(t)
	var out bytes.Buffer
	terminal := api.Terminal{Stdin: strings.NewReader("typed"), Stdout: &out, Stderr: io.Discard}
	o := api.ExecOptions{Container: "app", UID: "u1", Stdin: true}
	if err := r.client.Attach(t.Context(), "ns", "web", o, terminal); err != nil || out.String() != "typed" {
		t.Errorf("%q, %v", &out, err)
	}
	if asked, _ := f.asked(); asked.ContainerId != "c1" || asked.Tty || !asked.Stderr {
		t.Errorf("%+v", asked)
	}
	for want, o := range map[string]api.ExecOptions{
		`container "done" of pod "web" does not run: it exited with code 4 (Error)`: {Container: "done"},
		`there is no pod "web" in namespace "ns"`:                                   {UID: "u2"},
	} {
		if err := r.client.Attach(t.Context(), "ns", "web", o, terminal); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestPortForward(t *testing.T) {
	r, _ := execRig(t)
	conn, err := r.client.PortForward(t.Context(), "ns", "web", "u1")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // all was read
	s, err := conn.CreateStream(http.Header{"streamType": {"data"}, "port": {"80"}, "requestID": {"0"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(s, "hello"); err != nil {
		t.Fatal(err)
	}
	back := make([]byte, len("80:hello"))
	if _, err := io.ReadFull(s, back); err != nil || string(back) != "80:hello" {
		t.Errorf("%q, %v", back, err)
	}
	if _, err := r.client.PortForward(t.Context(), "ns", "none", ""); err == nil || err.Error() != `there is no pod "none" in namespace "ns"` {
		t.Error(err)
	}
}
