package pods

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/base"
	"github.com/playlet-dev/playlet/cmd/playlet/client/fake"
)

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

// await waits until the output equals want, and empties it.
func (s *syncBuffer) await(t *testing.T, want string) {
	t.Helper()
	deadline := time.After(5 * time.Minute)
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
	f := fake.Start(t)
	out, notes := &syncBuffer{more: make(chan struct{}, 1)}, &syncBuffer{more: make(chan struct{}, 1)}
	c := &podsCommand{Command: base.Command{Client: api.NewClient(f.Socket), Output: "table", Out: out, Err: notes,
		Now: func() time.Time { return fake.Noon }}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.watch(ctx) }()

	ok := &api.Node{Runtime: api.Runtime{Ready: true, NetworkReady: true}}
	creating := fake.Pod("a", v1.PodPending, fake.Waits("ContainerCreating"))
	creating.Pod.UID = "u1"
	creating.Pod.Status.PodIP = ""
	creating.Cause, creating.Waiting = "x", &api.Reason{Code: "ErrImagePull"}
	f.Lines <- &api.Change{Version: 1, Full: true, Pods: []api.Pod{*creating}, Node: ok}
	out.await(t, "NAMESPACE   NAME   READY   STATUS              RESTARTS   AGE   IP\n"+
		"default     web    0/1     ContainerCreating   0          5m    <none>\n")
	notes.await(t, "default/web: x\n")

	again := *creating
	again.Waiting = &api.Reason{Code: "ErrImagePull", RetryAt: fake.Noon.Add(time.Minute)}
	f.Lines <- &api.Change{Version: 2, Pods: []api.Pod{again}} // no visible change
	running := fake.Pod("a", v1.PodRunning, fake.Runs(true))
	running.Pod.UID = "u1"
	f.Lines <- &api.Change{Version: 3, Pods: []api.Pod{*running}}
	out.await(t, "default     web    1/1     Running             0          5m    10.0.0.7\n")

	f.Lines <- &api.Change{Version: 4, Node: &api.Node{Runtime: api.Runtime{Since: fake.Noon.Add(-time.Minute)}}}
	notes.await(t, "the container runtime is not ready; pods are shown as they were last seen\n")

	f.Lines <- nil // the agent is killed, and comes back knowing little at first
	notes.await(t, "the agent is gone; waiting for it to come back\n")
	f.Lines <- &api.Change{Version: 0, Full: true, Node: ok}
	f.Lines <- &api.Change{Version: 1, Pods: []api.Pod{*running}}
	f.Lines <- &api.Change{Version: 2, Gone: []api.Ref{running.Ref()}}
	out.await(t, "default     web    -       Gone                0          5m    10.0.0.7\n")

	f.Lines <- &api.Change{Version: 3, Pods: []api.Pod{*running}}
	out.await(t, "default     web    1/1     Running             0          5m    10.0.0.7\n")
	f.Lines <- nil
	notes.await(t, "the agent is gone; waiting for it to come back\n")
	f.Lines <- &api.Change{Version: 1, Full: true, Node: ok} // the agent is back, and the runtime has not answered yet
	knows := &api.Node{Runtime: ok.Runtime, Audited: true}
	f.Lines <- &api.Change{Version: 2, Full: true, Pods: []api.Pod{*running}, Node: knows}
	f.Lines <- nil
	notes.await(t, "the agent is gone; waiting for it to come back\n") // and no line about the pod
	f.Lines <- &api.Change{Version: 9, Full: true, Node: knows}        // it comes back without the pod
	out.await(t, "default     web    -       Gone                0          5m    10.0.0.7\n")

	stop()
	if err := <-ended; err != nil {
		t.Errorf("Ctrl-C is told %v", err)
	}
}

func TestPodsWatchOfObjects(t *testing.T) {
	f := fake.Start(t)
	out := &syncBuffer{more: make(chan struct{}, 1)}
	c := &podsCommand{Command: base.Command{Client: api.NewClient(f.Socket), Output: "json", Out: out, Err: &bytes.Buffer{},
		Now: func() time.Time { return fake.Noon }}}
	c.print, _ = cli.PrinterOf("json", false)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.watch(ctx) }()
	p := fake.Pod("a", v1.PodRunning, fake.Runs(true))
	f.Lines <- &api.Change{Full: true, Pods: []api.Pod{*p}}
	var want bytes.Buffer
	if err := cli.PrintObject(&want, p.Pod, "json"); err != nil {
		t.Fatal(err)
	}
	out.await(t, want.String())

	// One that goes is printed once more, with the time of that.
	f.Lines <- &api.Change{Version: 2, Gone: []api.Ref{p.Ref()}}
	last := p.Pod.DeepCopy()
	last.DeletionTimestamp = &metav1.Time{Time: fake.Noon}
	want.Reset()
	if err := cli.PrintObject(&want, last, "json"); err != nil {
		t.Fatal(err)
	}
	out.await(t, want.String())
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The duration of a pull is printed again as time passes, and a finished pull is not mentioned.
func TestPodsWatchSaysHowFarAPullIs(t *testing.T) {
	for output, want := range map[string]string{
		"table": "default/web: web:1 (for 90s)\n", "wide": "   web:1 (for 90s)\n",
	} {
		f := fake.Start(t)
		out := &syncBuffer{more: make(chan struct{}, 1)}
		ticks := make(chan time.Time)
		c := &podsCommand{Command: base.Command{Client: api.NewClient(f.Socket), Output: output, Out: out, Err: out,
			Now: func() time.Time { return fake.Noon }}, ticks: ticks}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.watch(ctx) }()
		p := fake.Pod("a", v1.PodPending, fake.Waits("ContainerCreating"))
		p.Cause, p.Waiting = "web:1", &api.Reason{Code: "Pulling", Since: fake.Noon.Add(-90 * time.Second)}
		f.Lines <- &api.Change{Full: true, Pods: []api.Pod{*p}}
		out.awaitTimes(t, want, 1)
		ticks <- fake.Noon
		ticks <- fake.Noon
		out.awaitTimes(t, want, 3)
		p.Waiting, p.Cause = nil, ""
		f.Lines <- &api.Change{Version: 2, Pods: []api.Pod{*p},
			Node: &api.Node{Runtime: api.Runtime{Ready: true, NetworkReady: false, NetworkReason: "x"}}}
		out.awaitTimes(t, "the runtime's network is not ready", 1) // the change is handled
		ticks <- fake.Noon
		ticks <- fake.Noon // the one before has been dealt with
		out.awaitTimes(t, want, 3)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// awaitTimes waits until this was written so many times, and never more.
func (s *syncBuffer) awaitTimes(t *testing.T, want string, times int) {
	t.Helper()
	deadline := time.After(5 * time.Minute)
	for {
		s.mu.Lock()
		got := s.b.String()
		s.mu.Unlock()
		switch n := strings.Count(got, want); {
		case n == times:
			return
		case n > times:
			t.Fatalf("%q is there %d times, not %d:\n%s", want, n, times, got)
		}
		select {
		case <-s.more:
		case <-deadline:
			t.Fatalf("%q is not there %d times:\n%s", want, times, got)
		}
	}
}

// heldBuffer is output that blocks at the line about a missing agent. Like a file, it has no lock.
type heldBuffer struct {
	b             strings.Builder
	held, release chan struct{}
}

func (h *heldBuffer) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte("the agent is gone")) {
		h.held <- struct{}{}
		<-h.release
	}
	return h.b.Write(p)
}

// While the agent is gone, the progress of a pull is unknown and not printed. Output is written by one goroutine at a time.
func TestPodsWatch_OmitsPullsWithoutTheAgent(t *testing.T) {
	f := fake.Start(t)
	out, notes := &syncBuffer{more: make(chan struct{}, 1)}, &heldBuffer{held: make(chan struct{}), release: make(chan struct{})}
	ticks := make(chan time.Time)
	c := &podsCommand{Command: base.Command{Client: api.NewClient(f.Socket), Output: "table", Out: out, Err: notes,
		Now: func() time.Time { return fake.Noon }}, ticks: ticks}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.watch(ctx) }()
	p := fake.Pod("a", v1.PodPending, fake.Waits("ContainerCreating"))
	p.Cause, p.Waiting = "web:1", &api.Reason{Code: "Pulling", Since: fake.Noon.Add(-90 * time.Second)}
	f.Lines <- &api.Change{Version: 1, Full: true, Pods: []api.Pod{*p}}
	out.awaitTimes(t, "ContainerCreating", 1)
	f.Lines <- nil
	<-notes.held
	ticks <- fake.Noon
	notes.release <- struct{}{}
	ticks <- fake.Noon
	ticks <- fake.Noon // the one before has been dealt with
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := notes.b.String(); got != "default/web: web:1 (for 90s)\nthe agent is gone; waiting for it to come back\n" {
		t.Errorf("%q", got)
	}
}
