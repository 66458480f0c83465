package images_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/playlet-dev/playlet/actors/images"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// pod is a pod's actor that forwards the messages it receives.
type pod struct{ reported chan any }

func (p pod) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		if ctx.Self() == messages.Pods {
			for i := range pods {
				ctx.Spawn(uid(i))
			}
		}
	case messages.PullImage, messages.ForgetImages:
		ctx.Tell(messages.Images, m)
	case messages.ImagePulled, messages.ImageFailed, messages.ServiceStarted:
		p.reported <- m
	}
}

const pods = 20

func uid(i int) string { return fmt.Sprintf("uid-%d", i) }

type node struct {
	t        *testing.T
	ctx      context.Context
	sim      *sim.Runtime
	sys      *supervisors.System
	reported chan any
}

// run starts the runtime and the actors. If a clock is given, it stands still.
func run(t *testing.T, so sim.Options, standing clock.WithDelayedExecution) *node {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	n := &node{t: t, ctx: ctx, reported: make(chan any, 1000)}
	so.Socket = filepath.Join(t.TempDir(), "s")
	var err error
	if n.sim, err = sim.Start(so); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.sim.Close)
	client, err := cri.Dial(cri.Options{RuntimeEndpoint: n.sim.Endpoint()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, client.Close()) })
	ops := cri.NewOperations()
	t.Cleanup(func() { check(t, ops.Close(ctx)) })
	strategy := supervisors.Strategy{Panics: 5, Within: time.Minute, Then: supervisors.Escalate}
	play := func(string) supervisors.Actor { return pod{n.reported} }
	n.sys, err = supervisors.Start(supervisors.Options{
		Tree: &supervisors.Row{Kind: "node", Strategy: strategy, Children: []supervisors.Row{
			{Kind: "pods", Strategy: strategy, Children: []supervisors.Row{{Kind: "pod", Dynamic: true, Strategy: strategy}}},
			{Kind: "images", Strategy: strategy, Clients: []messages.Address{messages.Pods}},
		}},
		Constructors: map[supervisors.Kind]supervisors.Constructor{
			"node": play, "pods": play, "pod": play,
			"images": images.New(images.Options{Service: client, Operations: ops, MaxParallel: 2}),
		},
		Clock: standing,
		Fatal: func(err error) { t.Error(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, n.sys.Shutdown(ctx)) })
	await[messages.ServiceStarted](n)
	return n
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// await returns the next message, which must be of this type.
func await[T any](n *node) T {
	n.t.Helper()
	select {
	case msg := <-n.reported:
		m, ok := msg.(T)
		if !ok {
			n.t.Fatalf("told %+v", msg)
		}
		return m
	case <-n.ctx.Done():
		n.t.Fatalf("a %T was never told", *new(T))
	}
	panic("not reached")
}

// ask sends a request through the pod's own actor, so the pods' tree must be running.
func (n *node) ask(i int, image string, policy v1.PullPolicy) {
	n.sys.Tell(messages.PodAddress(uid(i)), messages.PullImage{
		Key: messages.ImageKey{UID: uid(i), Container: "c"}, Image: image, Policy: policy, Priority: int64(i),
	})
}

func TestOnePullForManyWaiters(t *testing.T) {
	n := run(t, sim.Options{Images: map[string]sim.Image{"img:1": {Takes: 50 * time.Millisecond}}}, nil)
	for i := range pods {
		n.ask(i, "img:1", v1.PullIfNotPresent)
	}
	ref := ""
	for range pods {
		m := await[messages.ImagePulled](n)
		if ref = m.Ref; ref == "" {
			t.Errorf("%+v", m)
		}
	}
	if got := len(n.sim.Calls("PullImage")); got != 1 {
		t.Errorf("%d pulls", got)
	}
	n.ask(0, "img:1", v1.PullNever)
	if m := await[messages.ImagePulled](n); m.Pulled || m.Ref != ref {
		t.Errorf("%+v, not %s", m, ref)
	}
}

func TestRealCausesHaveTheirReasons(t *testing.T) {
	n := run(t, sim.Options{Images: map[string]sim.Image{
		"missing:1": {Err: status.Error(codes.NotFound, "failed to resolve reference: not found")},
		"away:1":    {Err: status.Error(codes.Unavailable, "registry answers 503")},
		"said:1":    {Err: status.Error(codes.Unknown, "RegistryUnavailable: pull access to x is limited")},
		"forged:1":  {Err: status.Error(codes.Unknown, "SignatureValidationFailed: no key")},
	}}, clocktesting.NewFakeClock(time.Now()))
	n.sim.Inject(sim.Fault{Call: "ImageStatus", Times: 1, Kind: sim.Error})
	tests := []struct {
		image  string
		policy v1.PullPolicy
		want   string
	}{
		{"broken:1", v1.PullIfNotPresent, messages.ReasonImageInspectError}, // by the injected fault, which occurs once
		{"missing:1", v1.PullAlways, messages.ReasonErrImagePull},
		{"away:1", v1.PullAlways, messages.ReasonErrImagePull},
		{"said:1", v1.PullAlways, messages.ReasonRegistryUnavailable},
		{"forged:1", v1.PullAlways, "SignatureValidationFailed"},
		{"none:1", v1.PullNever, messages.ReasonErrImageNeverPull},
		{"NOT A NAME", v1.PullAlways, messages.ReasonInvalidImageName},
		{"missing:1", v1.PullAlways, messages.ReasonImagePullBackOff}, // the second case has just failed
	}
	for i, tc := range tests {
		n.ask(i, tc.image, tc.policy)
		m := await[messages.ImageFailed](n)
		if m.Key.UID != uid(i) || m.Reason.Code != tc.want || m.Reason.Message == "" {
			t.Errorf("%s: %+v, want %s", tc.image, m, tc.want)
		}
		if m.Reason.RetryAt.IsZero() != m.Reason.Permanent {
			t.Errorf("%s: %+v", tc.image, m)
		}
	}
}

func TestPullGoesOnAfterTheRuntimeDied(t *testing.T) {
	n := run(t, sim.Options{}, nil)
	n.sim.Inject(sim.Fault{Call: "PullImage", Kind: sim.CrashBefore})
	n.ask(0, "img:1", v1.PullIfNotPresent)
	if m := await[messages.ImageFailed](n); m.Reason.Code != messages.ReasonRuntimeUnavailable || m.Reason.Permanent {
		t.Errorf("%+v", m)
	}
	check(t, n.sim.WaitFor(n.ctx, func(s sim.Snapshot) bool { return !s.Up }))
	check(t, n.sim.Up())
	for {
		select {
		case msg := <-n.reported:
			if m, ok := msg.(messages.ImagePulled); ok && m.Pulled {
				return
			}
		case <-n.ctx.Done():
			t.Fatal("never pulled")
		}
	}
}

func TestKilledActorJoinsItsPull(t *testing.T) {
	n := run(t, sim.Options{}, nil)
	cancel := n.sim.Inject(sim.Fault{Call: "PullImage", Kind: sim.Hang})
	n.ask(0, "img:1", v1.PullAlways)
	if _, err := n.sim.WaitCall(n.ctx, func(e sim.Entry) bool { return e.Call == "PullImage" }); err != nil {
		t.Fatal(err)
	}
	n.sys.Kill(messages.Images, "test")
	await[messages.ServiceStarted](n)
	n.ask(0, "img:1", v1.PullAlways)
	// Earlier messages have been handled once these actors, one after the other, have answered.
	for _, a := range []messages.Address{messages.PodAddress(uid(0)), messages.Images} {
		if _, err := n.sys.Ask(n.ctx, a, messages.GetInspection{}); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if m := await[messages.ImagePulled](n); !m.Pulled {
		t.Errorf("%+v", m)
	}
	// The pull may end before the successor's work has joined it. The successor then pulls again, but no two pulls run at once.
	calls := n.sim.Calls("PullImage")
	for i := 1; i < len(calls); i++ {
		if !calls[i-1].Done() || calls[i-1].EndSeq > calls[i].Seq {
			t.Errorf("two pulls at once: %+v", calls)
		}
	}
	if len(calls) > 2 {
		t.Errorf("%d pulls", len(calls))
	}
}
