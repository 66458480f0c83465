package runtime

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/runtime/readqueue"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

const exitedState = runtimeapi.ContainerState_CONTAINER_EXITED

type rig struct {
	*supervisortest.Kit
	t     *testing.T
	f     *fake
	ops   *cri.Operations
	state *State
	queue func() *readqueue.Queue
}

func start(t *testing.T, f *fake, change func(*Options)) *rig {
	r := &rig{t: t, f: f, ops: cri.NewOperations(), state: &State{}}
	opts := Options{CRI: f, Operations: r.ops, State: r.state, Endpoint: "unix:///x"}
	if change != nil {
		change(&opts)
	}
	a := New(opts)("runtime").(*actor)
	r.queue = func() *readqueue.Queue { return a.queue }
	r.Kit = supervisortest.New(t, messages.Runtime, a)
	return r
}

func (r *rig) work() {
	for i := 0; i < len(r.Work); {
		w := r.Work[i]
		if w.Name == "GetContainerEvents" {
			i++
			continue
		}
		r.Work = append(r.Work[:i:i], r.Work[i+1:]...)
		r.RunOne(w)
	}
}

func (r *rig) take(name string) supervisors.Work {
	r.t.Helper()
	for i, w := range r.Work {
		if w.Name == name {
			r.Work = append(r.Work[:i:i], r.Work[i+1:]...)
			return w
		}
	}
	r.t.Fatalf("no work %q in %+v", name, r.Work)
	return supervisors.Work{}
}

func (r *rig) sent() string {
	var out []string
	for _, m := range r.Take() {
		switch a := m.Msg.(type) {
		case messages.RuntimeStateChanged:
			word := map[bool]string{true: "ready", false: "away"}[a.Ready]
			if a.Ready && !a.NetworkReady {
				word = "without a network (" + a.NetworkReason + ")"
			}
			out = append(out, word)
		case messages.RuntimeAudited:
			var uids []string
			for _, p := range a.Pods {
				uids = append(uids, p.UID)
			}
			out = append(out, "audit("+strings.Join(uids, " ")+")")
		case messages.PodObserved:
			if m.To != messages.PodAddress(a.Facts.UID) {
				r.t.Errorf("told %s of %s", m.To, a.Facts.UID)
			}
			out = append(out, summary(a.Facts))
		}
	}
	return strings.Join(out, " ")
}

func summary(p messages.PodFacts) string {
	var parts []string
	for _, s := range p.Sandboxes {
		parts = append(parts, strings.Join(s.IPs, "+"))
	}
	for _, c := range p.Containers {
		text := fmt.Sprintf("%s%d=%s", c.Name, c.Attempt, c.State)
		if c.State == messages.ContainerExited {
			text += fmt.Sprint(c.ExitCode)
		}
		parts = append(parts, text)
	}
	return p.UID + "[" + strings.Join(parts, ",") + "]"
}

func (r *rig) expect(what, got, want string) {
	r.t.Helper()
	if got != want {
		r.t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

func settledRig(t *testing.T, f *fake, change func(*Options)) *rig {
	r := start(t, f, change)
	r.work()
	r.sent()
	f.took()
	r.Advance(time.Millisecond)
	return r
}

func (r *rig) hold(key string) (release func()) {
	begun, end, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		_, err := r.ops.Do(context.Background(), key, time.Hour, func(context.Context) (any, error) {
			close(begun)
			<-end
			return nil, nil
		})
		if err != nil {
			r.t.Error(err)
		}
	}()
	<-begun
	return func() { close(end); <-over }
}
