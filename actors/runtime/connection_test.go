package runtime

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

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
	r.expect("told", r.sent(), "away")
	reason := r.state.Load().Reason.Message
	if !strings.Contains(reason, "unix:///x") || !strings.Contains(reason, "start the runtime") {
		t.Errorf("reason %q", reason)
	}
	r.Send("pods/u", messages.ReadPod{UID: "u"})
	for range 20 {
		r.Advance(200 * time.Millisecond)
		r.work()
	}
	r.expect("told while it is away", r.sent(), "")
	r.expect("read while it is away", f.took(), "")
	r.Advance(2 * time.Second)
	r.work()
	r.expect("told again from time to time", r.sent(), "away")

	since := r.Now()
	f.fail("", nil)
	r.Advance(checkRetry.Max)
	r.work()
	r.expect("told when it is there", r.sent(), "ready ready audit(u v) u[10.0.0.1,a0=running] v[10.0.0.1,b0=running]")
	if s := r.state.Load(); !s.Ready || s.Reason.Code != "" || s.Since.Before(since) {
		t.Errorf("%+v", s)
	}
	f.took()

	f.fail("", away()) // it dies: the next audit fails
	r.Advance(time.Second)
	r.work()
	r.expect("told when it died", r.sent(), "away")
	f.fail("", nil)
	f.set("u/s0/a0", exitedState, 0)
	r.Advance(checkRetry.Max)
	r.work()
	r.expect("told when it is back", r.sent(), "ready v[10.0.0.1,b0=running] ready audit(u v) u[10.0.0.1,a0=exited0]")
}

func TestNotReadyIsAway(t *testing.T) {
	f := newFake()
	f.notReady = true
	r := start(t, f, nil)
	r.work()
	r.expect("told", r.sent(), "away")
	if m := r.state.Load().Reason.Message; !strings.Contains(m, "Sulking: it does not want to") {
		t.Error(m)
	}
	f.notReady, f.noNetwork = false, true
	r.Advance(checkRetry.Max)
	r.work()
	if s := r.state.Load(); !s.Ready || s.NetworkReady || s.NetworkReason != "NoCNI" {
		t.Errorf("%+v", s)
	}
	r.sent()
	f.notReady = true
	r.Advance(5 * time.Second)
	r.work()
	if got := r.sent(); !strings.HasSuffix(got, "away") {
		t.Error(got)
	}
}

// Like the kubelet, the actor reports a runtime without RuntimeConfig in a metric that names the release to drop such runtimes.
func TestConnection_ReportsAnOutdatedRuntime(t *testing.T) {
	for want, err := range []error{nil, &cri.CallError{Call: "RuntimeConfig", Answered: true,
		Err: status.Error(codes.Unimplemented, "unknown method")}} {
		f := newFake()
		f.fail("RuntimeConfig", err)
		start(t, f, nil).work()
		if got, err := testutil.GatherAndCount(metrics.Registry, "kubelet_cri_losing_support"); err != nil || got != want {
			t.Errorf("got %d metrics, want %d: %v", got, want, err)
		}
	}
}

// Changes of the network's state are reported at once; without a network, checks are more frequent.
func TestTheNetworkComesAndGoes(t *testing.T) {
	f := newFake()
	r := start(t, f, nil)
	r.work()
	r.sent()
	for _, c := range []struct {
		gone  bool
		after time.Duration
		want  string
	}{{true, 5 * time.Second, "without a network (NoCNI)"}, {false, checkRetry.Max, "ready"}} {
		f.noNetwork = c.gone
		r.Advance(c.after)
		r.work()
		if got := r.sent(); !strings.HasSuffix(got, c.want) {
			t.Errorf("told %q, want %q at the end", got, c.want)
		}
	}
}

func TestExplain(t *testing.T) {
	call := func(answered bool, code codes.Code, msg string) error {
		return &cri.CallError{Call: "Version", Answered: answered, Err: status.Error(code, msg)}
	}
	tests := []struct {
		err  error
		want string
	}{
		{call(false, codes.Unavailable, "dial unix /x: connect: no such file or directory"), "there is no socket"},
		{call(false, codes.Unavailable, "dial unix /x: connect: connection refused"), "nobody listens"},
		{call(false, codes.Unavailable, "dial unix /x: connect: permission denied"), "permission denied"},
		{call(true, codes.Unavailable, "server is not initialized yet"), "is still starting"},
		{call(true, codes.Unknown, "server is not initialized yet"), "is still starting"},
		{call(false, codes.Unavailable, "EOF"), "cannot be reached: "},
		{call(false, codes.DeadlineExceeded, "deadline"), "it hangs"},
		{context.DeadlineExceeded, "it hangs"},
		{&cri.PermanentError{CallError: &cri.CallError{Answered: true,
			Err: status.Error(codes.Unimplemented, "unknown service")}}, "cannot be used"},
		{errors.New("odd"), "answers with an error: odd"},
	}
	for _, tc := range tests {
		if got := explain(tc.err); !strings.Contains(got, tc.want) {
			t.Errorf("%v: %q; want %q in it", tc.err, got, tc.want)
		}
	}
}

// Pods receive the length of an outage of the runtime.
func TestPodsAreToldHowLongItWasAway(t *testing.T) {
	f := newFake()
	f.pod("u", "a0r")
	r := settledRig(t, f, nil)
	f.fail("", away())
	r.Advance(statusPeriod)
	r.work()
	r.Advance(10 * time.Second)
	r.work()
	r.Take()
	f.fail("", nil)
	r.Advance(checkRetry.Max)
	r.work()
	var got time.Duration
	for _, m := range r.Take() {
		if told, ok := m.Msg.(messages.PodObserved); ok {
			got = told.Facts.Away
		}
	}
	if got < 11*time.Second || got > 11*time.Second+2*statusPeriod {
		t.Errorf("away for %s, want 11s and at most two checks more", got)
	}
}

// The order of handlers is the same whatever the runtime's: containerd's differs each time, and each change would be a write of
// the Node (kubernetes/kubernetes#135358).
func TestDescribe_OrderOfHandlers(t *testing.T) {
	var got [2]Snapshot
	for i, names := range [][]string{{"", "kata", "runc"}, {"runc", "", "kata"}} {
		reply := &runtimeapi.StatusResponse{}
		for _, name := range names {
			reply.RuntimeHandlers = append(reply.RuntimeHandlers, &runtimeapi.RuntimeHandler{Name: name})
		}
		got[i].describe(&runtimeapi.VersionResponse{}, reply)
	}
	if !reflect.DeepEqual(got[0].Handlers, got[1].Handlers) {
		t.Errorf("%v and %v", got[0].Handlers, got[1].Handlers)
	}
}
