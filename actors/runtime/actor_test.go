package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

const exitedState = runtimeapi.ContainerState_CONTAINER_EXITED

// rig is the actor under test with its fake runtime.
type rig struct {
	*supervisortest.Kit
	t     *testing.T
	f     *fake
	ops   *cri.Operations
	state *State
}

func start(t *testing.T, f *fake, change func(*Options)) *rig {
	r := &rig{t: t, f: f, ops: cri.NewOperations(), state: &State{}}
	opts := Options{CRI: f, Operations: r.ops, State: r.state, Endpoint: "unix:///x"}
	if change != nil {
		change(&opts)
	}
	r.Kit = supervisortest.New(t, messages.Runtime, New(opts)("runtime"))
	return r
}

// work does all work but the wait for events, which a test plays itself.
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

// take takes the work of this name, to be done later.
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

// told writes what was told as words: "ready", "away", "audit(u v)", and of pods what they consist of.
func (r *rig) told() string {
	var out []string
	for _, m := range r.Take() {
		switch a := m.Msg.(type) {
		case messages.RuntimeStateChanged:
			out = append(out, map[bool]string{true: "ready", false: "away"}[a.Ready])
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

// settled brings the actor to where everything is told and nothing is under way.
func settledRig(t *testing.T, f *fake, change func(*Options)) *rig {
	r := start(t, f, change)
	r.work()
	r.told()
	f.took()
	r.Advance(time.Millisecond)
	return r
}

func TestFirstAuditTellsEverything(t *testing.T) {
	f := newFake()
	f.pod("u", "a0x", "a1r")
	f.pod("v", "b0c")
	r := start(t, f, nil)
	r.work()
	r.expect("told", r.told(), "ready ready audit(u v) u[10.0.0.1,a1=running,a0=exited0] v[10.0.0.1,b0=created]")
	r.expect("calls", f.took(), "sandboxes containers container:u/s0/a1 container:u/s0/a0 sandbox:u/s0 container:v/s0/b0 sandbox:v/s0")
	if s := r.state.Load(); !s.Ready || s.Name != "fake" || s.Hints != ByPolling || !s.NetworkReady || s.Audited.IsZero() ||
		!s.Features.SupplementalGroupsPolicy || len(s.Handlers) != 1 || !s.Handlers[0].UserNamespaces {
		t.Errorf("%+v", s)
	}
}

func TestPollingNoticesADifference(t *testing.T) {
	f := newFake()
	f.pod("u", "a0r")
	f.pod("v", "b0r")
	r := settledRig(t, f, nil)
	r.Advance(time.Second)
	r.work()
	r.expect("told when nothing happened", r.told(), "ready")
	r.expect("calls when nothing happened", f.took(), "sandboxes containers")

	f.set("u/s0/a0", exitedState, 3)
	r.Advance(time.Second)
	r.work()
	r.expect("told", r.told(), "ready audit(u v) u[10.0.0.1,a0=exited3]")
	r.expect("calls", f.took(), "sandboxes containers container:u/s0/a0")

	f.drop("v")
	r.Advance(time.Second)
	r.work()
	r.expect("told of one that is no more", r.told(), "v[] ready audit(u)")
}

func TestEverythingIsToldAgain(t *testing.T) {
	f := newFake()
	f.pod("u", "a0r")
	r := settledRig(t, f, func(o *Options) { o.PollPeriod = 30 * time.Second })
	wish := messages.KeepContainers{Wanted: map[string]bool{"u": true, "not-there-yet": true}, Heard: true}
	r.Send("pods", wish)
	r.work()
	r.expect("at the first word of pods", r.told(), "ready u[10.0.0.1,a0=running] not-there-yet[] ready audit(u)")
	r.Send("pods", wish)
	r.work()
	r.expect("at the second", r.told(), "")
	wish.Heard = false
	r.Send("pods", wish)
	r.work()
	r.expect("of a pods that began anew", r.told(), "ready u[10.0.0.1,a0=running] not-there-yet[] ready audit(u)")
	r.Advance(30 * time.Second)
	r.work()
	r.expect("before its time", r.told(), "ready")
	f.took()
	r.Advance(30 * time.Second)
	r.work()
	again := r.Take()
	r.Outbox = again
	r.expect("told", r.told(), "u[10.0.0.1,a0=running] not-there-yet[] ready audit(u)")
	r.expect("calls", f.took(), "sandboxes containers sandboxes containers") // the audit's and the collector's
	if got := again[0].Msg.(messages.PodObserved).Facts.ReadAt; r.Now().Sub(got) > time.Second {
		t.Errorf("as of %s, at %s", got, r.Now())
	}
}

func TestReadPod(t *testing.T) {
	f := newFake()
	f.pod("u", "a0x", "a1r")
	r := settledRig(t, f, nil)
	r.Send("pods/u", messages.ReadPod{UID: "u"})
	r.Send("pods/u", messages.ReadPod{UID: "u"})
	r.work()
	r.expect("told", r.told(), "u[10.0.0.1,a1=running,a0=exited0] u[10.0.0.1,a1=running,a0=exited0]")
	r.expect("what cannot have changed is not asked for", f.took(), "sandboxes:u containers:u sandboxes:u containers:u")

	f.set("u/s0/a1", exitedState, 9)
	r.Send("pods/u", messages.ReadPod{UID: "u"})
	r.work()
	r.expect("told", r.told(), "u[10.0.0.1,a1=exited9,a0=exited0]")
	r.expect("calls", f.took(), "sandboxes:u containers:u container:u/s0/a1")

	r.Send("pods/x", messages.ReadPod{UID: "x"})
	r.work()
	r.expect("of what is not there", r.told(), "x[]")
}

func TestReadPodIsCoalesced(t *testing.T) {
	f := newFake()
	f.pod("u", "a0r")
	r := settledRig(t, f, nil)
	r.Send("pods/u", messages.ReadPod{UID: "u"})
	first := r.Work[len(r.Work)-1]
	r.Work = nil
	for range 5 {
		r.Send("pods/u", messages.ReadPod{UID: "u"})
	}
	if len(r.Work) != 0 {
		t.Fatal("two readings of one pod at once")
	}
	r.RunOne(first)
	if len(r.Work) != 1 {
		t.Fatalf("%d readings follow", len(r.Work))
	}
	r.work()
	r.expect("told", r.told(), "u[10.0.0.1,a0=running] u[10.0.0.1,a0=running]")
}

// hold keeps an operation in flight until the returned function is called.
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

func TestReadingWaitsForStartsOfThePod(t *testing.T) {
	f := newFake()
	f.pod("u", "a0r")
	r := settledRig(t, f, nil)
	release := r.hold("u/start/a")
	r.Send("pods/u", messages.ReadPod{UID: "u"})
	r.Send("pods/v", messages.ReadPod{UID: "v"})
	r.RunOne(r.take("read pod u"))
	r.RunOne(r.take("read pod v"))
	settle := r.take("settle pod u")
	r.expect("told meanwhile", r.told(), "v[]")
	r.expect("calls meanwhile", f.took(), "sandboxes:v containers:v")
	release()
	r.Work = append(r.Work, settle)
	r.work()
	r.expect("told", r.told(), "u[10.0.0.1,a0=running]")
}

func TestAuditTellsNoHalves(t *testing.T) {
	f := newFake()
	f.pod("u", "a0r")
	r := settledRig(t, f, nil)
	release := r.hold("u/start/a")
	f.set("u/s0/a0", exitedState, 1)
	r.Advance(time.Second)
	r.work()
	r.expect("told meanwhile", r.told(), "ready audit(u)")
	f.drop("u")
	r.Advance(time.Second)
	r.work()
	r.expect("told meanwhile", r.told(), "ready audit()")
	release()
	f.pod("u", "a0x")
	r.Advance(time.Second)
	r.work()
	r.expect("told", r.told(), "ready audit(u) u[10.0.0.1,a0=exited0]")
}

func TestEventsAreHints(t *testing.T) {
	f := newFake()
	f.pod("u", "a0r")
	f.pod("v", "b0r")
	s := newStream()
	e := NewEvents(s)
	defer e.Close()
	r := settledRig(t, f, func(o *Options) { o.Events = e })
	happens := func(b Batch) { // the one wait there is ends with this
		t.Helper()
		if len(r.Work) != 1 || r.Work[0].Name != "GetContainerEvents" {
			t.Fatalf("work: %+v", r.Work)
		}
		r.Work = nil
		r.Send(messages.Runtime, happened{b})
		r.work()
	}
	happens(Batch{Opened: true})
	r.expect("told after the subscription", r.told(), "ready")
	if got := r.state.Load().Hints; got != ByEvents {
		t.Error(got)
	}
	f.took()
	r.Advance(time.Second)
	r.work()
	r.expect("one more audit, soon", f.took(), "sandboxes containers")
	r.told()
	r.Advance(30 * time.Second)
	r.work()
	r.expect("and then seldom", f.took(), "")

	f.set("u/s0/a0", exitedState, 2)
	happens(Batch{Pods: []string{"u"}})
	r.expect("told", r.told(), "u[10.0.0.1,a0=exited2]")
	r.expect("calls", f.took(), "sandboxes:u containers:u container:u/s0/a0")

	f.drop("v")
	happens(Batch{Objects: []string{"v/s0", "unknown"}})
	r.expect("told of what is gone", r.told(), "v[]")

	happens(Batch{Ended: errors.New("broken")})
	if got := r.state.Load().Hints; got != ByPolling {
		t.Error(got)
	}
	r.expect("told when it broke", r.told(), "ready audit(u)")
	r.Advance(subscribeBase)
	happens(Batch{Opened: true})
	if got := r.state.Load().Hints; got != ByEvents {
		t.Error(got)
	}
}

func TestRuntimeWithoutEventsIsPolled(t *testing.T) {
	f := newFake()
	e := NewEvents(newStream())
	defer e.Close()
	r := settledRig(t, f, func(o *Options) { o.Events = e })
	r.Work = nil
	r.Send(messages.Runtime, happened{Batch{Opened: true, Ended: &cri.PermanentError{CallError: &cri.CallError{
		Call: "GetContainerEvents", Answered: true, Err: status.Error(codes.Unimplemented, "unknown method"),
	}}}})
	r.work()
	f.took()
	for range 3 {
		r.Advance(time.Second)
		r.work()
	}
	r.expect("calls", f.took(), "sandboxes containers sandboxes containers sandboxes containers")
	if len(r.Work) != 0 {
		t.Errorf("asked for events again: %+v", r.Work)
	}
}

func TestRuntimeAwayAndBack(t *testing.T) {
	f := newFake()
	f.pod("u", "a0r")
	f.pod("v", "b0r")
	f.fail("", away())
	r := start(t, f, nil)
	if s := r.state.Load(); s.Ready || s.Reason.Code != messages.ReasonRuntimeUnavailable {
		t.Errorf("before the first word: %+v", s)
	}
	r.work()
	r.expect("told", r.told(), "away")
	reason := r.state.Load().Reason.Message
	if !strings.Contains(reason, "unix:///x") || !strings.Contains(reason, "start the runtime") {
		t.Errorf("reason %q", reason)
	}
	r.Send("pods/u", messages.ReadPod{UID: "u"})
	for range 20 {
		r.Advance(200 * time.Millisecond)
		r.work()
	}
	r.expect("told while it is away", r.told(), "")
	r.expect("read while it is away", f.took(), "")
	r.Advance(2 * time.Second)
	r.work()
	r.expect("told again from time to time", r.told(), "away")

	since := r.Now()
	f.fail("", nil)
	r.Advance(checkCap)
	r.work()
	r.expect("told when it is there", r.told(), "ready ready audit(u v) u[10.0.0.1,a0=running] v[10.0.0.1,b0=running]")
	if s := r.state.Load(); !s.Ready || s.Reason.Code != "" || s.Since.Before(since) {
		t.Errorf("%+v", s)
	}
	f.took()

	f.fail("", away()) // it dies: the next audit meets it
	r.Advance(time.Second)
	r.work()
	r.expect("told when it died", r.told(), "away")
	f.fail("", nil)
	f.set("u/s0/a0", exitedState, 0)
	r.Advance(checkCap)
	r.work()
	r.expect("told when it is back", r.told(), "ready v[10.0.0.1,b0=running] ready audit(u v) u[10.0.0.1,a0=exited0]")
}

func TestNotReadyIsAway(t *testing.T) {
	f := newFake()
	f.notReady = true
	r := start(t, f, nil)
	r.work()
	r.expect("told", r.told(), "away")
	if m := r.state.Load().Reason.Message; !strings.Contains(m, "Sulking: it does not want to") {
		t.Error(m)
	}
	f.notReady, f.noNetwork = false, true
	r.Advance(checkCap)
	r.work()
	if s := r.state.Load(); !s.Ready || s.NetworkReady || s.NetworkReason != "NoCNI" {
		t.Errorf("%+v", s)
	}
	r.told()
	f.notReady = true
	r.Advance(5 * time.Second)
	r.work()
	if got := r.told(); !strings.HasSuffix(got, "away") {
		t.Error(got)
	}
}

func TestReadingThatFailsIsDoneAgain(t *testing.T) {
	f := newFake()
	f.pod("u", "a0r")
	r := settledRig(t, f, func(o *Options) { o.PollPeriod = time.Hour })
	f.fail("containers", errors.New("no"))
	r.Send("pods/u", messages.ReadPod{UID: "u"})
	r.work()
	f.fail("containers", nil)
	r.expect("told", r.told(), "")
	r.Advance(time.Second)
	r.work()
	r.expect("told", r.told(), "u[10.0.0.1,a0=running]")
}

func TestRemovedWhileItIsRead(t *testing.T) {
	f := newFake()
	f.pod("u", "a0x", "a1r")
	r := start(t, f, nil)
	f.fail("container", notFound())
	f.fail("sandbox", notFound())
	r.work()
	r.expect("told", r.told(), "ready ready audit(u) u[]")
}

func TestOldAuditTellsNothingOld(t *testing.T) {
	f := newFake()
	f.pod("u", "a0r")
	r := settledRig(t, f, nil)
	r.Advance(time.Second)
	if len(r.Work) != 1 {
		t.Fatalf("%+v", r.Work)
	}
	late := r.Work[0].Run(context.Background()) // listed now, handled late
	r.Work = nil
	r.Advance(time.Millisecond)
	f.set("u/s0/a0", exitedState, 0)
	r.Send("pods/u", messages.ReadPod{UID: "u"})
	r.work()
	r.told()
	f.took()
	r.Send(messages.Runtime, late)
	r.work()
	r.expect("told", r.told(), "ready")
	r.expect("calls", f.took(), "")
}

func TestCollector(t *testing.T) {
	f := newFake()
	f.pod("u", "a0x", "a1x", "a2r")
	f.pod("gone", "b0x")
	f.sandboxes[1].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	f.pod("back", "c0x")
	dir := t.TempDir()
	for _, name := range []string{"ns_name_u", "ns_name_gone", "ns_name_back", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "c"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := settledRig(t, f, func(o *Options) { o.PodLogsDir, o.PollPeriod = dir, time.Hour })
	r.Advance(time.Minute)
	r.work()
	r.expect("before pods has told who is wanted", f.took(), "")
	r.Send("pods", messages.KeepContainers{Wanted: map[string]bool{"u": true}, Heard: true})
	r.Send("pods/back", messages.ReadPod{UID: "back"}) // younger than that word
	r.work()
	f.took()
	r.Advance(time.Minute)
	r.work()
	r.expect("calls", f.took(), "sandboxes containers rm:gone/s0/b0 stopp:gone/s0 rmp:gone/s0 rm:u/s0/a0")
	for name, want := range map[string]bool{"ns_name_u": true, "ns_name_gone": false, "ns_name_back": true, "other": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("log folder %s: %v", name, err)
		}
	}
	r.Send("pods", messages.KeepContainers{Wanted: map[string]bool{"u": true, "back": true}, Heard: true})
	r.Advance(time.Minute)
	r.work()
	r.expect("nothing is left to do", f.took(), "sandboxes containers")
}

func TestCollectorKeepsWhatItCannotRemove(t *testing.T) {
	f := newFake()
	f.pod("gone", "b0x")
	f.sandboxes[0].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "ns_name_gone"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := settledRig(t, f, func(o *Options) { o.PodLogsDir, o.PollPeriod = dir, time.Hour })
	f.fail("rm", errors.New("busy"))
	r.Send("pods", messages.KeepContainers{Heard: true})
	r.work()
	f.took()
	r.Advance(time.Minute)
	r.work()
	r.expect("calls", f.took(), "sandboxes containers rm:gone/s0/b0")
	if _, err := os.Stat(filepath.Join(dir, "ns_name_gone")); err != nil {
		t.Error(err)
	}
	f.fail("rm", nil)
	r.Advance(time.Minute)
	r.work()
	r.expect("calls", f.took(), "sandboxes containers rm:gone/s0/b0 stopp:gone/s0 rmp:gone/s0")
}

func TestOneThatComesBackIsReadAfterItsRemainsAreGone(t *testing.T) {
	f := newFake()
	f.pod("gone", "b0x")
	r := settledRig(t, f, func(o *Options) { o.PollPeriod = time.Hour })
	r.Send("pods", messages.KeepContainers{Heard: true})
	r.Advance(time.Minute)
	r.RunOne(r.take("survey"))
	removal := r.take("remove the remains of pod gone")
	r.work()
	r.told()
	r.Send("pods/gone", messages.ReadPod{UID: "gone"})
	if len(r.Work) != 0 {
		t.Fatalf("read while its remains are removed: %+v", r.Work)
	}
	r.RunOne(removal)
	r.work()
	r.expect("told", r.told(), "gone[10.0.0.1]")
}

func TestExplain(t *testing.T) {
	call := func(answered bool, code codes.Code, msg string) error {
		return &cri.CallError{Call: "Version", Answered: answered, Err: status.Error(code, msg)}
	}
	tests := []struct {
		err  error
		want cause
	}{
		{call(false, codes.Unavailable, "dial unix /x: connect: no such file or directory"), noSocket},
		{call(false, codes.Unavailable, "dial unix /x: connect: connection refused"), refused},
		{call(false, codes.Unavailable, "dial unix /x: connect: permission denied"), forbidden},
		{call(true, codes.Unavailable, "server is not initialized yet"), starting},
		{call(true, codes.Unknown, "server is not initialized yet"), starting},
		{call(false, codes.Unavailable, "EOF"), unreachable},
		{call(false, codes.DeadlineExceeded, "deadline"), hangs},
		{context.DeadlineExceeded, hangs},
		{&cri.PermanentError{CallError: &cri.CallError{Answered: true, Err: status.Error(codes.Unimplemented, "unknown service")}}, noCRI},
		{errors.New("odd"), fails},
	}
	for _, tc := range tests {
		text, got := explain(tc.err)
		if got != tc.want || text == "" {
			t.Errorf("%v: %s, %q; want %s", tc.err, got, text, tc.want)
		}
	}
}

func TestInspection(t *testing.T) {
	var a supervisors.Actor
	f := newFake()
	f.pod("u", "a0r")
	a = New(Options{CRI: f, Operations: cri.NewOperations()})("runtime")
	k := supervisortest.New(t, messages.Runtime, a)
	k.RunWork()
	in := a.(supervisors.Inspectable).Inspect().(Inspection)
	if in.Phase != "connected" || in.Pods != 1 || in.ToRead != 0 || in.Reading != 0 || !in.Runtime.Ready {
		t.Errorf("%+v", in)
	}
	k.Send("pods", struct{}{})
	if len(k.Ignored) != 1 {
		t.Error("a message that is none of its own was not recorded")
	}
}
