package safepath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/playlet-dev/playlet/actors/internal/linux/fusetest"
	"github.com/playlet-dev/playlet/cri/stall"
)

// hangs is a duration that only a hung call exceeds.
const hangs = time.Minute

// returns fails the test if a call hangs. The end of the server unblocks the call.
func returns(t *testing.T, s *fusetest.Server, called string, do func() error) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(hangs):
		s.Die()
		t.Fatalf("%s hangs with the server; after its end it returned %v", called, <-ended)
		return nil
	}
}

var servers = []struct {
	name string
	end  func(*fusetest.Server)
}{
	{"dead", (*fusetest.Server).Die},
	{"hung", (*fusetest.Server).Hang},
}

func TestMounts_ServerIsNotAsked(t *testing.T) {
	for _, server := range servers {
		t.Run(server.name, func(t *testing.T) {
			r := openTemp(t)
			must(t, r.MkdirAll("pod/vol", 0o755))
			s := fusetest.Mount(t, filepath.Join(r.Path(), "pod/vol"))
			server.end(s)
			before := s.Requests()
			must(t, returns(t, s, "IsMountPoint", func() error {
				is, err := r.IsMountPoint("pod/vol")
				if !is {
					t.Error("the mount is not seen")
				}
				return err
			}))
			ctx, _ := CountFreed(t.Context())
			err := returns(t, s, "RemoveAllOneFilesystem", func() error { return RemoveAllOneFilesystem(ctx, r, "pod") })
			if mounted := (*MountPointError)(nil); !errors.As(err, &mounted) {
				t.Errorf("removal returned %v, want a MountPointError", err)
			}
			must(t, returns(t, s, "Detach", func() error { return r.Detach("pod/vol") }))
			if n := s.Requests() - before; n > 1 { // from the kernel, at the end of the mount
				t.Errorf("the server got %d requests, want none", n)
			}
			if is, err := r.IsMountPoint("pod/vol"); err != nil || is {
				t.Errorf("after Detach: mounted %t, error %v", is, err)
			}
		})
	}
}

func TestAskServer_DistinguishesDeadFromHung(t *testing.T) {
	r := openTemp(t)
	must(t, r.MkdirAll("vol", 0o755))
	s := fusetest.Mount(t, filepath.Join(r.Path(), "vol"))
	if err := r.AskServer(t.Context(), "vol"); err != nil {
		t.Errorf("a server that answers: %v", err)
	}
	s.Hang()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	for range 3 {
		if err := returns(t, s, "AskServer", func() error { return r.AskServer(ctx, "vol") }); !errors.Is(err, context.DeadlineExceeded) || IsDead(err) {
			t.Errorf("a hung server: %v, want the end of the wait", err)
		}
	}
	if n := openCalls(); n != 1 {
		t.Errorf("%d calls hang after three questions, want one", n)
	}
	s.Die()
	if err := r.AskServer(t.Context(), "vol"); !IsDead(err) {
		t.Errorf("a dead server: %v, want an error of IsDead", err)
	}
	if n := openCalls(); n != 0 {
		t.Errorf("%d calls are in progress after the end of the server, want none", n)
	}
}

func openCalls() int {
	calls.Lock()
	defer calls.Unlock()
	return len(calls.byKey)
}

// hanging makes calls that hang until the test ends or calls release. Their callers do not wait.
func hanging(t *testing.T) (ask func(owner Owner, volume, key string) error, release func()) {
	t.Helper()
	answer, over := make(chan struct{}), sync.WaitGroup{}
	waited, cancel := context.WithCancel(t.Context())
	cancel()
	release = sync.OnceFunc(func() {
		close(answer)
		over.Wait()
		for openCalls() > 0 {
			runtime.Gosched()
		}
	})
	t.Cleanup(release)
	return func(owner Owner, volume, key string) error {
		over.Add(1)
		_, err := Bounded(waited, owner, volume, key, func() (none struct{}, err error) {
			defer over.Done()
			<-answer
			return none, nil
		})
		if errors.Is(err, ErrManyHang) {
			over.Done()
		}
		return err
	}, release
}

// The number of hung calls of one volume is limited. A call that returns no longer counts.
func TestBounded_CapsHungCallsOfAVolume(t *testing.T) {
	ask, release := hanging(t)
	owner := Owner{"ns", "pod"}
	for n := range hungOfVolume {
		if err := ask(owner, "volume", fmt.Sprint(n)); errors.Is(err, ErrManyHang) {
			t.Fatalf("call %d: %v", n, err)
		}
	}
	for _, owner := range []Owner{owner, {"other", "pod"}} {
		err := ask(owner, "volume", "one more")
		if !errors.Is(err, ErrManyHang) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("call %d of one volume: %v", hungOfVolume, err)
		}
	}
	if err := ask(owner, "other", "other"); errors.Is(err, ErrManyHang) {
		t.Errorf("a call of another volume: %v", err)
	}
	release()
	if _, err := Bounded(t.Context(), owner, "volume", "0", func() (none struct{}, err error) { return }); err != nil {
		t.Errorf("after the server answered: %v", err)
	}
}

// A pod with a hung server for each of many volumes leaves calls for other pods. A namespace with many such pods leaves calls
// for other namespaces.
func TestBounded_SharesByPodAndNamespace(t *testing.T) {
	ask, _ := hanging(t)
	fill := func(owner Owner) (n int) {
		for ; n <= maxCalls; n++ {
			name := fmt.Sprint(owner, " ", n)
			if err := ask(owner, name, name); errors.Is(err, ErrManyHang) {
				return n
			}
		}
		return n
	}
	if n := fill(Owner{"a", "1"}); n > maxCalls/4 {
		t.Errorf("one pod got %d calls of %d", n, maxCalls)
	}
	total := 0
	for pod := 2; pod < 100; pod++ {
		total += fill(Owner{"a", fmt.Sprint(pod)})
	}
	if total > maxCalls/2 {
		t.Errorf("the pods of one namespace got %d calls of %d", total, maxCalls)
	}
	if n := fill(Owner{"", "/pods/unknown"}); n < maxCalls/8 {
		t.Errorf("a pod of no known namespace got %d calls of %d", n, maxCalls)
	}
	for ns := range 100 {
		if fill(Owner{fmt.Sprint("ns", ns), "1"}) == 0 {
			t.Errorf("namespace %d got no call", ns)
			break
		}
	}
}

// The calls of a root count toward its owner's share, regardless of their volumes.
func TestRootBounded_CountsForItsOwner(t *testing.T) {
	ask, _ := hanging(t)
	r := openTemp(t)
	r.SetOwner(Owner{"ns", "pod"})
	for n := 0; !errors.Is(ask(Owner{"ns", "pod"}, fmt.Sprint(n), fmt.Sprint(n)), ErrManyHang); n++ {
	}
	call := func(*Root) error { return nil }
	if err := r.Bounded(t.Context(), "volume", "key", call); !errors.Is(err, ErrManyHang) {
		t.Errorf("got %v, want ErrManyHang, as the pod has its share", err)
	}
	r.SetOwner(Owner{"other", "pod"})
	must(t, r.Bounded(t.Context(), "volume", "key", call))
}

func TestBounded_PanicReachesTheCaller(t *testing.T) {
	defer func() {
		if p := recover(); p != "a bug" {
			t.Errorf("recovered %v, want the panic of the call", p)
		}
	}()
	_, _ = Bounded(t.Context(), Owner{}, "", "panic", func() (int, error) { panic("a bug") })
}

func TestIsDead(t *testing.T) {
	for err, want := range map[error]bool{
		unix.ENOTCONN: true, unix.ESTALE: true, unix.EIO: true, unix.EHOSTDOWN: true, unix.ECONNABORTED: true,
		unix.ENOENT: false, unix.EBUSY: false, unix.EACCES: false, context.DeadlineExceeded: false,
	} {
		if IsDead(err) != want {
			t.Errorf("IsDead(%v) = %t", err, !want)
		}
	}
	if IsDead(nil) {
		t.Error("IsDead(nil) = true")
	}
}

func TestRemoveAll_ContinuesDuringProgress(t *testing.T) {
	r := openTemp(t)
	write(t, filepath.Join(r.Path(), "pod/file"), "")
	clock := clocktesting.NewFakeClock(time.Now())
	ctx, cancel := stall.New(t.Context(), clock, time.Minute)
	defer cancel()
	must(t, RemoveAllOneFilesystem(ctx, r, "pod"))
	clock.Step(time.Minute)
	for end := time.Now().Add(time.Minute); !clock.HasWaiters() && ctx.Err() == nil && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if err := ctx.Err(); err != nil {
		t.Errorf("the removal counts as stalled: %v", err)
	}
}

// descriptors counts the open files of the process.
func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(open)
}

// Calls that are joined or rejected leave no copy of the root, and a call that ends closes its copy.
func TestRootBounded_LeavesNoDescriptor(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a finalizer would close a leaked copy
	r := openTemp(t)
	answer, results := make(chan struct{}), make(chan error, hungOfVolume)
	waited, cancel := context.WithCancel(t.Context())
	cancel()
	ask := func(key string) error {
		own, err := OpenRoot(r.Path())
		must(t, err)
		err = own.Bounded(waited, "volume", key, func(pod *Root) error {
			<-answer
			_, err := pod.Names(".")
			results <- err
			return err
		})
		must(t, own.Close()) // while the call hangs
		return err
	}
	before := descriptors(t)
	for n := range hungOfVolume {
		if err := ask(fmt.Sprint("call ", n)); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want the end of the wait", err)
		}
	}
	hanging := descriptors(t)
	for range 100 {
		if err := ask("call 0"); !errors.Is(err, context.Canceled) {
			t.Fatalf("a call that is joined: got %v, want the end of the wait", err)
		}
		if err := ask("one more"); !errors.Is(err, ErrManyHang) {
			t.Fatalf("a call over the limit: got %v, want ErrManyHang", err)
		}
	}
	if got := descriptors(t); got != hanging {
		t.Errorf("%d descriptors after calls that were joined or refused, want %d", got, hanging)
	}
	close(answer)
	for range hungOfVolume {
		must(t, <-results)
	}
	for openCalls() > 0 {
		runtime.Gosched()
	}
	if got := descriptors(t); got != before {
		t.Errorf("%d descriptors after the end of all calls, want %d", got, before)
	}
}
