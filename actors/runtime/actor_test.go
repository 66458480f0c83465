package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// rig is the actor under test with its fake runtime.

// work does all work except the wait for events, which the test controls.

// take takes the work with this name, to run it later.

// told formats messages as words: "ready", "away", "audit(u v)", and the objects of pods.

// settled runs the actor until all is reported and no work is in progress.

func TestFirstAuditTellsEverything(t *testing.T) {
	f := newFake()
	f.pod("u", "a0x", "a1r")
	f.pod("v", "b0c")
	r := start(t, f, nil)
	r.work()
	r.expect("told", r.sent(), "ready ready audit(u v) u[10.0.0.1,a1=running,a0=exited0] v[10.0.0.1,b0=created]")
	r.expect("calls", f.took(),
		"sandboxes containers container:u/s0/a1 container:u/s0/a0 sandbox:u/s0 container:v/s0/b0 sandbox:v/s0")
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
	r.expect("told when nothing happened", r.sent(), "ready")
	r.expect("calls when nothing happened", f.took(), "sandboxes containers")

	f.set("u/s0/a0", exitedState, 3)
	r.Advance(time.Second)
	r.work()
	r.expect("told", r.sent(), "ready audit(u v) u[10.0.0.1,a0=exited3]")
	r.expect("calls", f.took(), "sandboxes containers container:u/s0/a0")

	f.drop("v")
	r.Advance(time.Second)
	r.work()
	r.expect("told of one that is no more", r.sent(), "v[] ready audit(u)")
}

func TestEverythingIsReportedAgain(t *testing.T) {
	f := newFake()
	f.pod("u", "a0r")
	r := settledRig(t, f, func(o *Options) { o.PollPeriod = 30 * time.Second })
	desired := messages.KeepContainers{At: r.Now().Add(time.Second), Wanted: map[string]bool{"u": true, "not-there-yet": true},
		Heard: true}
	r.Send("pods", desired)
	r.work()
	r.expect("at the first word of pods", r.sent(), "ready u[10.0.0.1,a0=running] not-there-yet[] ready audit(u)")
	r.Send("pods", desired)
	r.work()
	r.expect("at the second", r.sent(), "")
	desired.Heard = false
	r.Send("pods", desired)
	r.work()
	r.expect("of a pods that began anew", r.sent(), "ready u[10.0.0.1,a0=running] not-there-yet[] ready audit(u)")
	r.Advance(30 * time.Second)
	r.work()
	r.expect("before its time", r.sent(), "ready")
	f.took()
	r.Advance(30 * time.Second)
	r.work()
	again := r.Take()
	r.Outbox = again
	r.expect("told", r.sent(), "u[10.0.0.1,a0=running] not-there-yet[] ready audit(u)")
	r.expect("calls", f.took(), "sandboxes containers sandboxes containers") // the audit's and the collector's
	again = slices.DeleteFunc(again, func(m supervisortest.SentMessage) bool { return m.To == messages.Logs })
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
	r.expect("told", r.sent(), "u[10.0.0.1,a1=running,a0=exited0] u[10.0.0.1,a1=running,a0=exited0]")
	r.expect("what cannot have changed is not asked for", f.took(), "sandboxes:u containers:u sandboxes:u containers:u")

	f.set("u/s0/a1", exitedState, 9)
	r.Send("pods/u", messages.ReadPod{UID: "u"})
	r.work()
	r.expect("told", r.sent(), "u[10.0.0.1,a1=exited9,a0=exited0]")
	r.expect("calls", f.took(), "sandboxes:u containers:u container:u/s0/a1")

	f.sandboxes[0].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	r.Send("pods/u", messages.ReadPod{UID: "u"})
	r.work()
	r.expect("told of a stopped sandbox", r.sent(), "u[,a1=exited9,a0=exited0]")
	r.expect("its list suffices", f.took(), "sandboxes:u containers:u")

	f.sandboxes[0].State = runtimeapi.PodSandboxState_SANDBOX_READY
	r.Send("pods/u", messages.ReadPod{UID: "u"})
	r.work()
	r.expect("told of one that is ready again", r.sent(), "u[10.0.0.1,a1=exited9,a0=exited0]")
	r.expect("calls", f.took(), "sandboxes:u containers:u sandbox:u/s0")

	r.Send("pods/x", messages.ReadPod{UID: "x"})
	r.work()
	r.expect("of what is not there", r.sent(), "x[]")
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
	r.expect("told", r.sent(), "u[10.0.0.1,a0=running] u[10.0.0.1,a0=running]")
}

// hold keeps an operation in flight until the returned function is called.

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
	r.expect("told meanwhile", r.sent(), "v[]")
	r.expect("calls meanwhile", f.took(), "sandboxes:v containers:v")
	release()
	r.Work = append(r.Work, settle)
	r.work()
	r.expect("told", r.sent(), "u[10.0.0.1,a0=running]")
}

func TestAuditTellsNoHalves(t *testing.T) {
	f := newFake()
	f.pod("u", "a0r")
	r := settledRig(t, f, nil)
	release := r.hold("u/start/a")
	f.set("u/s0/a0", exitedState, 1)
	r.Advance(time.Second)
	r.work()
	r.expect("told meanwhile", r.sent(), "ready audit(u)")
	f.drop("u")
	r.Advance(time.Second)
	r.work()
	r.expect("told meanwhile", r.sent(), "ready audit()")
	release()
	f.pod("u", "a0x")
	r.Advance(time.Second)
	r.work()
	r.expect("told", r.sent(), "ready audit(u) u[10.0.0.1,a0=exited0]")
}

func TestReadingThatFailsIsDoneAgain(t *testing.T) {
	f := newFake()
	f.pod("u", "a0r")
	r := settledRig(t, f, func(o *Options) { o.PollPeriod = time.Hour })
	f.fail("containers", errors.New("no"))
	r.Send("pods/u", messages.ReadPod{UID: "u"})
	r.work()
	f.fail("containers", nil)
	r.expect("told", r.sent(), "")
	r.Advance(time.Second)
	r.work()
	r.expect("told", r.sent(), "u[10.0.0.1,a0=running]")
}

func TestRemovedWhileItIsRead(t *testing.T) {
	f := newFake()
	f.pod("u", "a0x", "a1r")
	r := start(t, f, nil)
	f.fail("container", notFound())
	f.fail("sandbox", notFound())
	r.work()
	r.expect("told", r.sent(), "ready ready audit(u) u[]")
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
	r.sent()
	f.took()
	r.Send(messages.Runtime, late)
	r.work()
	r.expect("told", r.sent(), "ready")
	r.expect("calls", f.took(), "")
}

func TestInspection(t *testing.T) {
	var a supervisors.Actor
	f := newFake()
	f.pod("u", "a0r")
	a = New(Options{CRI: f, Operations: cri.NewOperations()})("runtime")
	k := supervisortest.New(t, messages.Runtime, a)
	k.RunWork()
	in := a.(supervisors.Inspector).Inspect().(Inspection)
	if in.Phase != "connected" || in.Pods != 1 || in.ToRead != 0 || in.Reading != 0 || !in.Runtime.Ready {
		t.Errorf("%+v", in)
	}
	k.Send("pods", struct{}{})
	if len(k.Ignored) != 1 {
		t.Error("a message that is none of its own was not recorded")
	}
}

// A start that begins after the audit, and may end before it, appears incomplete in the lists.
func TestAudit_OmitsPodsStartedMeanwhile(t *testing.T) {
	f := newFake()
	f.pod("u")
	r := settledRig(t, f, nil)
	f.between = func() { // the two lists
		release := r.hold("v/start/sandbox")
		f.pod("v", "b0r") // one list shows the container, the other no sandbox
		release()
		f.between = nil
	}
	r.Advance(time.Second)
	r.work()
	r.expect("told", r.sent(), "ready audit(u v)")
	r.Advance(time.Second)
	r.work()
	r.expect("told afterwards", r.sent(), "ready audit(u v) v[10.0.0.1,b0=running]")
}

// Lists that fail for longer than three periods are stale: the Node is not ready then, as with a stuck PLEG of the kubelet.
func TestStaleListsAreReported(t *testing.T) {
	f := newFake()
	f.pod("u", "a0r")
	r := settledRig(t, f, func(o *Options) { o.AuditPeriod = 10 * time.Second })
	stale := func() string {
		sent := ""
		for _, m := range r.Take() {
			if s, ok := m.Msg.(messages.RuntimeStateChanged); ok {
				sent = s.Stale
			}
		}
		if got := r.state.Load().Stale; got != sent {
			t.Errorf("published %q, told %q", got, sent)
		}
		return sent
	}
	f.fail("containers", errors.New("it has lost its head"))
	for range 29 {
		r.Advance(time.Second)
		r.work()
	}
	if got := stale(); got != "" {
		t.Errorf("after three periods: %s", got)
	}
	for range 10 {
		r.Advance(time.Second)
		r.work()
	}
	if got := stale(); !strings.Contains(got, "stale") || !strings.Contains(got, "lost its head") {
		t.Errorf("after four: %q", got)
	}
	f.fail("containers", nil)
	r.Advance(time.Second)
	r.work()
	if got := stale(); got != "" {
		t.Errorf("when it is well: %s", got)
	}
}

// Many pods requested at once, as after a start of the agent, share the lists of one audit that begins after the requests.
func TestManyReadingsShareTheLists(t *testing.T) {
	f := newFake()
	var uids []string
	for i := range shareAbove + 4 {
		uids = append(uids, fmt.Sprintf("u%d", i))
		f.pod(uids[i], "a0r")
	}
	r := settledRig(t, f, func(o *Options) { o.MaxReads, o.PollPeriod = 1, time.Hour })
	release := r.hold(cri.StartPrefix("u3") + "x") // a starting pod makes its own lists afterwards
	for _, uid := range append(uids, "absent") {
		r.Send(messages.PodAddress(uid), messages.ReadPod{UID: uid})
	}
	settle := supervisors.Work{}
	for len(r.Work) > 0 {
		w := r.Work[0]
		r.Work = r.Work[1:]
		if strings.HasPrefix(w.Name, "settle") {
			settle = w
			continue
		}
		r.RunOne(w)
	}
	// The first was being read; the last three were requested after the audit's start, and are few.
	r.expect("calls", f.took(), "sandboxes:u0 containers:u0 sandboxes containers "+
		"sandboxes:u6 containers:u6 sandboxes:u7 containers:u7 sandboxes:absent containers:absent")
	sent := r.sent()
	for _, uid := range append(uids, "absent") {
		if want := uid != "u3"; strings.Contains(sent, uid+"[") != want {
			t.Errorf("%s: want %v in %q", uid, want, sent)
		}
	}
	release()
	r.RunOne(settle)
	r.work()
	r.expect("told of the one", r.sent(), "u3[10.0.0.1,a0=running]")
	r.expect("calls", f.took(), "sandboxes:u3 containers:u3")
	// A failed audit serves no pod, and blocks none.
	f.fail("sandboxes", errors.New("no"))
	for _, uid := range uids {
		r.Send(messages.PodAddress(uid), messages.ReadPod{UID: uid})
	}
	r.work()
	if all, reading, resting := r.queue().Counts(); reading > 0 || resting != all {
		t.Errorf("%+v", r.queue())
	}
}

// A restarted logs actor receives all containers.
func TestLogsHearsOfAllContainers(t *testing.T) {
	f := newFake()
	f.pod("u", "a0r")
	r := settledRig(t, f, nil)
	r.Take()
	r.Send(messages.Node, messages.ServiceStarted{Service: messages.Logs})
	got := r.Take()
	if len(got) != 1 || got[0].To != messages.Logs || len(got[0].Msg.(messages.ContainersChanged).Facts.Containers) != 1 {
		t.Errorf("%+v", got)
	}
}
