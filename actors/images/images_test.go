package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/playlet-dev/playlet/actors/images/lanes"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is an image service with configurable images and errors.
type fake struct {
	mu        sync.Mutex
	there     map[string]string // IDs by name
	calls     []string
	lookErr   error
	pullErr   error
	hold      chan struct{} // pulls wait until it is closed
	priority  int64
	pullBegan chan struct{}
	accepts   *string  // only pulls with this user succeed; all others fail with pullErr
	users     []string // of all pulls; "-" for no user
}

func (f *fake) ImageStatus(_ context.Context, image *runtimeapi.ImageSpec, _ bool) (*runtimeapi.Image, map[string]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, "look "+image.Image)
	if id, ok := f.there[image.Image]; ok && f.lookErr == nil {
		return &runtimeapi.Image{Id: id, Size: 1}, nil, nil
	}
	return nil, nil, f.lookErr
}

func (f *fake) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig,
	_ *runtimeapi.PodSandboxConfig) (string, error) {
	f.mu.Lock()
	f.calls = append(f.calls, "pull "+image.Image)
	f.users = append(f.users, cmp.Or(auth.GetUsername(), "-"))
	f.priority = cri.Priority(ctx)
	hold, began := f.hold, f.pullBegan
	f.mu.Unlock()
	if began != nil {
		close(began)
	}
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pullErr != nil && (f.accepts == nil || *f.accepts != auth.GetUsername()) {
		return "", f.pullErr
	}
	f.there[image.Image] = "id of " + image.Image
	return f.there[image.Image], nil
}

func (f *fake) take() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := strings.Join(f.calls, "; ")
	f.calls = nil
	return out
}

func start(t *testing.T, f *fake, ops *cri.Operations) *supervisortest.Kit {
	if ops == nil {
		ops = cri.NewOperations()
	}
	if f.there == nil {
		f.there = map[string]string{}
	}
	return supervisortest.New(t, messages.Images, New(Options{Service: f, Operations: ops, Serialize: true})("images"))
}

func puller(uid, image string, policy v1.PullPolicy) messages.PullImage {
	return messages.PullImage{Key: key(uid, 0), Image: image, Policy: policy, Priority: 7}
}

// reported formats the answers as "address: answer".
func reported(k *supervisortest.Kit) string {
	var out []string
	for _, m := range k.Take() {
		switch a := m.Msg.(type) {
		case messages.ImagePulled:
			out = append(out, fmt.Sprintf("%s: %s pulled=%t", m.To, a.Ref, a.Pulled))
		case messages.ImageFailed:
			out = append(out, fmt.Sprintf("%s: %s permanent=%t", m.To, a.Reason.Code, a.Reason.Permanent))
		}
	}
	return strings.Join(out, "; ")
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestPresentImageCostsOneCallForAll(t *testing.T) {
	f := &fake{there: map[string]string{"img:latest": "sha256:1"}}
	k := start(t, f, nil)
	for _, uid := range []string{"a", "b", "c"} {
		k.Send(messages.PodAddress(uid), puller(uid, "img", v1.PullIfNotPresent))
	}
	k.RunWork()
	expect(t, "calls", f.take(), "look img:latest")
	expect(t, "told", reported(k), "pods/a: sha256:1 pulled=false; pods/b: sha256:1 pulled=false; pods/c: sha256:1 pulled=false")
	if p := k.Pending(); len(p) != 0 {
		t.Errorf("timers are left: %v", p)
	}
}

func TestPull_HasThePodsPriority(t *testing.T) {
	f := &fake{}
	k := start(t, f, nil)
	k.Send("pods/a", puller("a", "img:1", v1.PullIfNotPresent))
	k.RunWork()
	expect(t, "calls", f.take(), "look img:1; pull img:1")
	expect(t, "told", reported(k), "pods/a: id of img:1 pulled=true")
	if f.priority != 7 {
		t.Errorf("priority %d", f.priority)
	}
}

func TestInvalidNameIsPermanent(t *testing.T) {
	f := &fake{}
	k := start(t, f, nil)
	for range 2 {
		k.Send("pods/a", puller("a", "Not A Name", v1.PullAlways))
		expect(t, "told", reported(k), "pods/a: InvalidImageName permanent=true")
	}
	if len(k.Work) != 0 {
		t.Error("work is asked for a name that is none")
	}
}

func TestBackOffIsTimed(t *testing.T) {
	f := &fake{pullErr: errors.New("no such manifest")}
	k := start(t, f, nil)
	k.Send("pods/a", puller("a", "img:1", v1.PullAlways))
	k.RunWork()
	expect(t, "told", reported(k), "pods/a: ErrImagePull permanent=false")
	k.Advance(5 * time.Second)
	expect(t, "told in the back-off", reported(k), "pods/a: ImagePullBackOff permanent=false")
	k.Advance(4 * time.Second)
	if len(k.Work) != 0 {
		t.Fatal("pulled within the back-off")
	}
	f.pullErr = nil
	k.Advance(time.Second)
	k.RunWork()
	expect(t, "calls", f.take(), "pull img:1; pull img:1")
	expect(t, "told at last", reported(k), "pods/a: id of img:1 pulled=true")
}

// A clock that is set changes nothing of the back-off.
func TestBackOff_ClockSet(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, time.Hour} {
		f := &fake{pullErr: errors.New("no such manifest")}
		k := start(t, f, nil)
		k.Send("pods/a", puller("a", "img:1", v1.PullAlways))
		k.RunWork()
		k.SetClock(jump)
		k.Send("pods/b", puller("b", "img:1", v1.PullAlways))
		k.Advance(9 * time.Second)
		if len(k.Work) != 0 {
			t.Errorf("clock set by %s: pulled within the back-off", jump)
		}
		k.Advance(time.Second)
		k.RunWork()
		expect(t, fmt.Sprintf("clock set by %s: calls", jump), f.take(), "pull img:1; pull img:1")
	}
}

func TestForgottenBackOffLeavesNoTimer(t *testing.T) {
	k := start(t, &fake{pullErr: errors.New("x")}, nil)
	k.Send("pods/a", puller("a", "img:1", v1.PullAlways))
	k.RunWork()
	k.Send("pods/a", messages.ForgetImages{UID: "a"})
	if p := k.Pending(); len(p) != 0 {
		t.Errorf("timers are left: %v", p)
	}
}

func TestReasonsComeFromTheirCauses(t *testing.T) {
	call := func(answered bool, code codes.Code, msg string, reason error) error {
		return &cri.CallError{Call: "PullImage", Object: "img", Answered: answered, Reason: reason, Err: status.Error(code, msg)}
	}
	tests := map[string]struct {
		err            error
		wantPull, look string
		result         result
	}{
		"the runtime is away": {call(false, codes.Unavailable, "refused", nil), messages.ReasonRuntimeUnavailable,
			messages.ReasonRuntimeUnavailable, unreachable},
		"no such manifest": {call(true, codes.NotFound, "not found", nil), messages.ReasonErrImagePull,
			messages.ReasonImageInspectError, failed},
		"no answer": {call(false, codes.DeadlineExceeded, "late", nil), messages.ReasonErrImagePull,
			messages.ReasonImageInspectError, failed},
		"the registry is away": {
			call(true, codes.Unknown, "RegistryUnavailable: 503", crierrors.ErrRegistryUnavailable),
			messages.ReasonRegistryUnavailable, messages.ReasonRegistryUnavailable, failed,
		},
		"the registry is away, without a code": {
			&cri.CallError{Call: "PullImage", Object: "img", Answered: true, Reason: crierrors.ErrRegistryUnavailable, Inferred: true,
				Err: status.Error(codes.Unavailable, "503")},
			messages.ReasonErrImagePull, messages.ReasonImageInspectError, failed,
		},
		"a bad signature": {
			call(true, codes.Unknown, "SignatureValidationFailed: key", crierrors.ErrSignatureValidationFailed),
			"SignatureValidationFailed", "SignatureValidationFailed", failed,
		},
		"we are shutting down": {fmt.Errorf("x: %w", cri.ErrOperationsClosed), messages.ReasonRuntimeUnavailable,
			messages.ReasonRuntimeUnavailable, unreachable},
		"a panic": {&cri.PanicError{Key: "k", Value: "v"}, messages.ReasonErrImagePull,
			messages.ReasonImageInspectError, failed},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if o := failure(tc.err, messages.ReasonErrImagePull); o.code != tc.wantPull || o.result != tc.result || o.msg == "" {
				t.Errorf("a pull: %+v", o)
			}
			if o := failure(tc.err, messages.ReasonImageInspectError); o.code != tc.look || o.result != tc.result {
				t.Errorf("a look: %+v", o)
			}
		})
	}
}

// waitContext calls waits at each call of Done. A caller that joins an operation has joined it by then.
type waitContext struct {
	context.Context
	waits func()
}

func (c waitContext) Done() <-chan struct{} {
	c.waits()
	return c.Context.Done()
}

func TestRestartedActorJoinsThePull(t *testing.T) {
	ops := cri.NewOperations()
	f := &fake{there: map[string]string{}, hold: make(chan struct{}), pullBegan: make(chan struct{})}
	first := start(t, f, ops)
	first.Send("pods/a", puller("a", "img:1", v1.PullAlways))
	ctx, die := context.WithCancel(context.Background())
	ended := make(chan any)
	go func() { ended <- first.Work[0].Run(ctx) }()
	<-f.pullBegan
	die()
	<-ended // the worker has ended; the pull continues

	second := start(t, f, ops)
	second.Send("pods/b", puller("b", "img:2", v1.PullAlways)) // one at a time: it waits for its turn
	second.Send("pods/a", puller("a", "img:1", v1.PullAlways))
	if len(second.Work) != 1 {
		t.Fatalf("%d pulls beside the one under way", len(second.Work))
	}
	f.mu.Lock()
	f.pullBegan = nil
	f.mu.Unlock()
	join := second.Work[0]
	second.Work = nil
	second.Send(messages.Images, join.Run(waitContext{context.Background(), sync.OnceFunc(func() { close(f.hold) })}))
	second.RunWork()
	expect(t, "told", reported(second), "pods/a: id of img:1 pulled=true; pods/b: id of img:2 pulled=true")
	expect(t, "calls", f.take(), "pull img:1; pull img:2")
	if err := ops.Settle(context.Background(), ""); err != nil {
		t.Error(err)
	}
}

func TestAdoptedPullThatIsOverIsDoneAgain(t *testing.T) {
	ops := cri.NewOperations()
	begun, end := make(chan struct{}), make(chan struct{})
	go func() {
		_, err := ops.Do(context.Background(), pullKey{"", "img:1"}.String(), time.Hour, func(context.Context) (any, error) {
			close(begun)
			<-end
			return "id", nil
		})
		if err != nil {
			t.Error(err)
		}
	}()
	<-begun
	f := &fake{}
	k := start(t, f, ops)
	close(end)
	if err := ops.Settle(context.Background(), ""); err != nil {
		t.Fatal(err)
	}
	k.Send("pods/a", puller("a", "img:1", v1.PullAlways))
	k.RunWork()
	expect(t, "told", reported(k), "pods/a: id of img:1 pulled=true")
	expect(t, "calls", f.take(), "pull img:1")
}

// A predecessor's pull without needs is cut off in the table of operations.
func TestAdoptedPull_NoNeedCutsOff(t *testing.T) {
	ops, ended := cri.NewOperations(), make(chan error, 1)
	go func() {
		_, err := ops.Do(t.Context(), pullKey{"", "img:1"}.String(), time.Hour, func(ctx context.Context) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		ended <- err
	}()
	for len(ops.InFlight(pullPrefix)) == 0 {
		runtime.Gosched()
	}
	k := start(t, &fake{}, ops)
	k.Advance(unneededLimit)
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("the pull goes on")
	}
	k.RunWork()
}

func TestInspection(t *testing.T) {
	k := start(t, &fake{pullErr: errors.New("x")}, nil)
	actor := New(Options{Service: &fake{}, Operations: cri.NewOperations(), MaxParallel: 3})("images").(*images)
	if in := actor.Inspect().(Inspection); in.Limit != 3 || len(in.Images) != 0 {
		t.Errorf("%+v", in)
	}
	if in := New(Options{Service: &fake{},
		Operations: cri.NewOperations()})("images").(*images).Inspect().(Inspection); in.Limit != lanes.AtOnce {
		t.Errorf("%+v", in)
	}
	k.Send("pods/a", struct{}{})
	if len(k.Ignored) != 1 {
		t.Error("a message that is none of its own was not recorded")
	}
}

// A pull that takes several times the timeout is neither cut off nor restarted while the runtime answers.
func TestPull_TakesAsLongAsTheRuntimeAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{there: map[string]string{}, hold: make(chan struct{})}
		const limit = 240 * time.Millisecond
		opts := Options{Service: f, Operations: cri.NewOperations(), Serialize: true, PullTimeout: limit}
		k := supervisortest.New(t, messages.Images, New(opts)("images"))
		k.Send("pods/a", puller("a", "img:1", v1.PullAlways))
		go func() {
			for looks := 0; looks < 180; time.Sleep(limit / 60) { // each is a sixtieth of the timeout after the last
				f.mu.Lock()
				looks = strings.Count(strings.Join(f.calls, " "), "look")
				f.mu.Unlock()
			}
			close(f.hold)
		}()
		k.RunWork()
		expect(t, "told", reported(k), "pods/a: id of img:1 pulled=true")
		if calls := f.take(); strings.Count(calls, "pull") != 1 {
			t.Errorf("got %s, want one pull", calls)
		}
	})
}
