package remains

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playlet-dev/playlet/cri"
)

const sandbox = "7d645b53aa0a241fcc948de25f7f936281659c0e3835cb4bed850771301fecd9"

func answered(code codes.Code) error {
	return &cri.CallError{Call: "RemovePodSandbox", Answered: true, Err: status.Error(code, "cannot delete running task")}
}

// process starts a process that has this command line in a fake procfs; the channel is closed when it ends.
func process(t *testing.T, proc string, args ...string) (ended chan struct{}) {
	t.Helper()
	cmd := exec.Command("sleep", "3600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended = make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	dir := filepath.Join(proc, strconv.Itoa(cmd.Process.Pid))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cmdline"), []byte(strings.Join(args, "\x00")+"\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	return ended
}

func TestRemoval_RepeatedAfterShimIsKilled(t *testing.T) {
	proc := t.TempDir()
	shim := process(t, proc, "/usr/bin/containerd-shim-runc-v2", "-namespace", "k8s.io", "-id", sandbox, "-address",
		"/run/c.sock")
	others := map[string]chan struct{}{
		"the shim of another pod": process(t, proc, "/usr/bin/containerd-shim-runc-v2", "-id", strings.Repeat("0", 64),
			"-address", sandbox),
		"a client that names it":         process(t, proc, "crictl", "rmp", "-id", sandbox),
		"a shim with nothing after -id":  process(t, proc, "containerd-shim-runc-v2", "-id"),
		"a process without command line": process(t, proc),
	}
	for _, dir := range []string{"self", "123456789"} { // the latter has ended in the meantime
		if err := os.Mkdir(filepath.Join(proc, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	calls := 0
	err := removeSandbox(t.Context(), newScans(proc), 0, sandbox, func(_ context.Context, id string) error {
		if calls++; calls == 1 || id != sandbox {
			return answered(codes.FailedPrecondition)
		}
		<-shim
		return nil
	})
	if err != nil || calls != 2 {
		t.Errorf("%v after %d calls", err, calls)
	}
	for what, ended := range others {
		select {
		case <-ended:
			t.Errorf("%s was killed", what)
		default:
		}
	}
}

func TestNothingIsKilledForAnotherError(t *testing.T) {
	proc := t.TempDir()
	shim := process(t, proc, "containerd-shim-runc-v2", "-id", sandbox)
	for name, c := range map[string]struct{ answer, want error }{
		"refused for another reason": {answered(codes.Unknown), answered(codes.Unknown)},
		"not answered":               {context.DeadlineExceeded, context.DeadlineExceeded},
	} {
		calls := 0
		err := removeSandbox(t.Context(), newScans(proc), 0, sandbox, func(context.Context, string) error { calls++; return c.answer })
		if (err == nil) != (c.want == nil) || calls != 1 {
			t.Errorf("%s: %v after %d calls", name, err, calls)
		}
	}
	select {
	case <-shim:
		t.Error("the shim was killed")
	default:
	}
}

// containerd may forget a shim after removing its sandbox. A shim that ends by itself is not killed.
func TestAShimThatOutlivesARemovalIsKilled(t *testing.T) {
	for name, answer := range map[string]error{"removed": nil, "gone": answered(codes.NotFound)} {
		proc := t.TempDir()
		shim := process(t, proc, "/usr/bin/containerd-shim-runc-v2", "-namespace", "k8s.io", "-id", sandbox)
		other := process(t, proc, "/usr/bin/containerd-shim-runc-v2", "-id", strings.Repeat("0", 64))
		err := removeSandbox(t.Context(), newScans(proc), time.Millisecond, sandbox, func(context.Context, string) error { return answer })
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		select {
		case <-shim:
		case <-time.After(5 * time.Minute):
			t.Fatalf("%s: the shim goes on", name)
		}
		select {
		case <-other:
			t.Errorf("%s: another pod's shim was killed", name)
		default:
		}
	}
}

func TestShim_ThatExitsIsNotKilled(t *testing.T) {
	proc := t.TempDir()
	shim := process(t, proc, "containerd-shim-runc-v2", "-id", sandbox)
	removed := func(context.Context, string) error {
		time.AfterFunc(20*time.Millisecond, func() { _ = os.RemoveAll(filepath.Join(proc)) }) // as the kernel does at its end
		return nil
	}
	if err := removeSandbox(t.Context(), newScans(proc), time.Hour, sandbox, removed); err != nil {
		t.Error(err)
	}
	select {
	case <-shim:
		t.Error("the shim was killed")
	default:
	}
}

// When a node is emptied, one scan that begins after the calls serves many sandboxes.
func TestScansAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScans(t.TempDir())
		if pids, err := s.shims(sandbox); err != nil || len(pids) > 0 {
			t.Fatalf("%v, %v", pids, err)
		}
		dir := filepath.Join(s.proc, "7")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "cmdline"),
			[]byte("containerd-shim-runc-v2\x00-id\x00"+sandbox+"\x00"), 0o600)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var scans sync.Map // by their result
		for range 100 {
			go func() {
				pids, err := s.shims(sandbox)
				if err != nil || !slices.Equal(pids, []int{7}) {
					t.Errorf("%v, %v", pids, err)
					return
				}
				scans.Store(&pids[0], true)
				if d := time.Since(began); d != scanEvery {
					t.Errorf("the answer came after %s", d)
				}
			}()
		}
		synctest.Wait()
		time.Sleep(scanEvery)
		synctest.Wait()
		made := 0
		scans.Range(func(any, any) bool { made++; return true })
		if made != 1 {
			t.Errorf("%d scans for all", made)
		}
	})
}

// Without a shim the refusal is returned, and so is a refusal that never ends.
func TestARefusalIsPassedOn(t *testing.T) {
	proc := t.TempDir()
	calls := 0
	refuse := func(context.Context, string) error { calls++; return answered(codes.FailedPrecondition) }
	if err := removeSandbox(t.Context(), newScans(proc), 0, sandbox, refuse); !Refused(err) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
	process(t, proc, "containerd-shim-runc-v2", "-id", sandbox)
	ctx, cancel := context.WithCancel(t.Context())
	err := removeSandbox(ctx, newScans(proc), 0, sandbox, func(context.Context,
		string) error {
		cancel()
		return answered(codes.FailedPrecondition)
	})
	if !Refused(err) || errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := removeSandbox(t.Context(), newScans(filepath.Join(proc, "none")), 0, sandbox, refuse); !errors.Is(err, os.ErrNotExist) ||
		!Refused(err) {
		t.Errorf("without a procfs: %v", err)
	}
}

// A process may present any amount of memory as its command line.
func TestACommandLineIsNotReadWhole(t *testing.T) {
	file := filepath.Join(t.TempDir(), "1", "cmdline")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("containerd-shim-runc-v2\x00-id\x00"+sandbox+"\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 1<<40); err != nil {
		t.Fatal(err)
	}
	if !isShim(filepath.Dir(filepath.Dir(file)), 1, sandbox) {
		t.Error("it is not seen to be the shim")
	}
}

// A runtime that is killed during a removal may forget the sandbox and leave its shim. The shim is ended once the runtime no
// longer lists the sandbox. The shim of a sandbox with an answered removal is left to the runtime.
func TestForgottenShimsAreEnded(t *testing.T) {
	proc := t.TempDir()
	other := strings.Repeat("0", 64)
	shim := process(t, proc, "containerd-shim-runc-v2", "-id", sandbox)
	spared := process(t, proc, "containerd-shim-runc-v2", "-id", other)
	s := newScans(proc)
	s.note(sandbox, &cri.CallError{Call: "RemovePodSandbox", Err: status.Error(codes.Unavailable, "EOF")})
	s.note(other, answered(codes.Unknown))
	for _, listed := range []bool{true, false} {
		if err := s.endForgotten(t.Context(), time.Millisecond, func(string) bool { return listed }); err != nil {
			t.Fatal(err)
		}
		if n := len(s.unanswered); n == 0 == listed {
			t.Errorf("listed %v: %d sandboxes are remembered", listed, n)
		}
	}
	<-shim
	select {
	case <-spared:
		t.Error("the shim of a sandbox whose removal was answered is gone")
	default:
	}
}
