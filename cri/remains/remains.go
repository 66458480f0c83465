// Package remains removes sandboxes that containerd cannot remove by itself.
//
// If the caller dies in the middle of StartContainer, containerd gives the container up, at times without the task that its shim
// has already made. containerd then considers the container exited and skips it when stopping. It may refuse to remove it
// ("cannot delete running task"), and with it its sandbox, until containerd is restarted. Or it removes both and forgets the
// shim, which runs forever. The shim serves that one pod alone: when it ends, containerd drops its tasks, and the removal
// succeeds.
package remains

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playlet-dev/playlet/cri"
)

// everywhere scans the processes of the machine.
var everywhere = newScans("/proc")

// pauses are the delays between attempts to remove a sandbox after the shim was killed: the runtime notices its end a little
// later.
var pauses = []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}

// linger is how long a shim may take to end by itself after its sandbox was removed.
const linger = 2 * time.Second

// RemoveSandbox removes a stopped sandbox with its contents by calling remove. If the runtime refuses because it considers a part
// of it running, RemoveSandbox kills the sandbox's shim and calls remove again. It also kills a shim that survives a successful
// removal. An absent sandbox is not an error.
func RemoveSandbox(ctx context.Context, id string, remove func(ctx context.Context, id string) error) error {
	err := removeSandbox(ctx, everywhere, linger, id, remove)
	everywhere.note(id, err)
	return err
}

// EndForgotten ends the shims of sandboxes that the runtime has forgotten: it was killed during their removal, did not answer,
// and does not list them. listed reports whether the runtime lists a sandbox. Sandboxes of other agents are never affected.
func EndForgotten(ctx context.Context, listed func(id string) bool) error {
	return everywhere.endForgotten(ctx, linger, listed)
}

// note records whether the removal of a sandbox is unanswered.
func (s *scans) note(id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && !cri.IsAnswered(err) {
		s.unanswered[id] = true
	} else {
		delete(s.unanswered, id)
	}
}

func (s *scans) endForgotten(ctx context.Context, linger time.Duration, listed func(id string) bool) error {
	s.mu.Lock()
	ids := slices.Sorted(maps.Keys(s.unanswered))
	s.mu.Unlock()
	var errs []error
	for _, id := range ids {
		if listed(id) {
			continue
		}
		err := endShims(ctx, s, linger, id)
		if err == nil {
			s.note(id, nil)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func removeSandbox(
	ctx context.Context, shared *scans, linger time.Duration, id string, remove func(ctx context.Context, id string) error,
) error {
	proc, err := shared.proc, ignore(remove(ctx, id))
	if err == nil {
		return endShims(ctx, shared, linger, id)
	}
	if !Refused(err) {
		return err
	}
	n, killErr := killShims(proc, id)
	if killErr != nil || n == 0 {
		return errors.Join(err, killErr)
	}
	for _, pause := range pauses {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
		if err = ignore(remove(ctx, id)); err == nil {
			return nil
		}
	}
	return fmt.Errorf("removing it failed after its shim was killed: %w", err)
}

// endShims waits until the shim of a removed sandbox has ended, and kills it if it does not end by itself. When ctx ends, it
// kills after one look: there is no later attempt, since the runtime no longer lists the sandbox.
func endShims(ctx context.Context, shared *scans, linger time.Duration, sandbox string) error {
	proc := shared.proc
	pids, err := shared.shims(sandbox)
	if err != nil || len(pids) == 0 {
		return err
	}
	pids = slices.Clone(pids)
	ctx, cancel := context.WithTimeout(ctx, linger)
	defer cancel()
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		pids = slices.DeleteFunc(pids, func(pid int) bool { return !isShim(proc, pid, sandbox) })
		if len(pids) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			_, err := killShims(proc, sandbox)
			return err
		}
	}
}

// Refused reports whether the runtime answered a removal with FailedPrecondition, because it considers a part of the sandbox
// running.
func Refused(err error) bool {
	call, ok := errors.AsType[*cri.CallError](err)
	return ok && call.Answered && status.Code(call.Err) == codes.FailedPrecondition
}

func ignore(err error) error {
	if cri.IsNotFound(err) {
		return nil
	}
	return err
}

// shims returns the processes that are shims, by sandbox.
func shims(proc string) (pids map[string][]int, err error) {
	entries, err := os.ReadDir(proc)
	pids = map[string][]int{}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if sandbox := sandboxOf(proc, pid); sandbox != "" {
				pids[sandbox] = append(pids[sandbox], pid)
			}
		}
	}
	return pids, err
}

// scanEvery is the minimum interval between two scans of all processes: one costs milliseconds, and each removed sandbox needs
// one.
const scanEvery = 100 * time.Millisecond

// scans shares one scan of all processes between concurrent callers. Safe for concurrent use.
type scans struct {
	proc  string        // the folder of the process table
	slot  chan struct{} // holds one element while a caller owns the fields below
	began time.Time     // start of the last scan
	pids  map[string][]int
	err   error

	mu         sync.Mutex
	unanswered map[string]bool // sandboxes with an unanswered removal
}

func newScans(proc string) *scans {
	return &scans{proc: proc, slot: make(chan struct{}, 1), unanswered: map[string]bool{}}
}

// shims returns the processes that are shims of the sandbox, from a scan that begins after the call. The result is shared.
func (s *scans) shims(sandbox string) ([]int, error) {
	asked := time.Now()
	s.slot <- struct{}{}
	defer func() { <-s.slot }()
	if !s.began.After(asked) { // no other caller has begun a scan since
		time.Sleep(time.Until(s.began.Add(scanEvery)))
		begun := time.Now()
		s.pids, s.err = shims(s.proc)
		s.began = begun // set first: if the scan panics, waiting callers scan again
	}
	return s.pids[sandbox], s.err
}

// killShims sends SIGKILL to the shim of the sandbox, and returns the number of processes that it was sent to.
func killShims(proc, sandbox string) (n int, err error) {
	pids, err := shims(proc)
	errs := []error{err}
	for _, pid := range pids[sandbox] {
		killed, err := kill(proc, pid, sandbox)
		if killed {
			n++
		}
		errs = append(errs, err)
	}
	return n, errors.Join(errs...)
}

// kill holds the process by a descriptor (a pidfd, inside os.Process) while it checks it again, so that a process with a reused
// PID does not get the signal.
func kill(proc string, pid int, sandbox string) (bool, error) {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false, fmt.Errorf("process %d: %w", pid, err)
	}
	defer p.Release() //nolint:errcheck // nothing was written
	if !isShim(proc, pid, sandbox) {
		return false, nil
	}
	if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return false, fmt.Errorf("kill process %d: %w", pid, err)
	}
	return true, nil
}

// maxCommandLine limits the bytes read of a process's command line: a shim's is far shorter.
const maxCommandLine = 64 << 10

// isShim reports whether a process is the shim of this sandbox. It is false for a process that has ended.
func isShim(proc string, pid int, sandbox string) bool {
	return sandbox != "" && sandboxOf(proc, pid) == sandbox
}

// sandboxOf returns the sandbox served by the shim with this PID, from its command line: "containerd-shim-… -id SANDBOX …". It
// returns "" if the process is no shim.
func sandboxOf(proc string, pid int) string {
	f, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // only read
	// A process can present any part of its memory as its command line (PR_SET_MM), of any size.
	line, err := io.ReadAll(io.LimitReader(f, maxCommandLine))
	if err != nil {
		return ""
	}
	args := bytes.Split(line, []byte{0})
	if !bytes.HasPrefix([]byte(filepath.Base(string(args[0]))), []byte("containerd-shim")) {
		return ""
	}
	if i := slices.IndexFunc(args, func(arg []byte) bool { return string(arg) == "-id" }); i >= 0 && i+1 < len(args) {
		return string(args[i+1])
	}
	return ""
}
