// Package remains removes sandboxes that containerd cannot remove by itself.
//
// A caller that dies in the middle of StartContainer makes containerd give the container up, at times without the task
// that its shim has made already. containerd then calls the container exited and passes over it when it is stopped. It may
// refuse to remove it ("cannot delete running task"), and with it its sandbox, until containerd is started again. Or it
// removes both and forgets the shim, which goes on for ever. The shim serves that one pod alone: when it ends, containerd
// drops the tasks that it had, and the removal succeeds.
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

// everywhere is the processes of the machine.
var everywhere = newScans("/proc")

// pauses come before another try of a removal once the shim has got its signal: the runtime hears of its end a little
// later.
var pauses = []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}

// linger is how long a shim may take to end by itself once its sandbox is removed.
const linger = 2 * time.Second

// RemoveSandbox removes a sandbox that has been stopped, with what is in it, by calling remove. Where the runtime refuses
// because of the state that it believes something of it to be in, the sandbox's shim is killed, and remove is called again.
// A shim that goes on after a removal that succeeded is killed, too. That the sandbox is gone already is no error.
func RemoveSandbox(ctx context.Context, id string, remove func(ctx context.Context, id string) error) error {
	err := removeSandbox(ctx, everywhere, linger, id, remove)
	everywhere.note(id, err)
	return err
}

// EndForgotten ends the shims of sandboxes that the runtime has forgotten: it was killed during their removal, did not answer,
// and does not list them. listed reports whether the runtime lists a sandbox. Sandboxes of other agents are never among them.
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

// endShims waits until the shim of a sandbox that is removed has ended, and kills it where it does not end by itself. It
// kills as soon as it has looked when ctx ends: nobody will look again, as the runtime lists the sandbox no more.
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

// Refused says that the runtime answered a removal with FailedPrecondition: something is believed to run still.
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

// shims lists the processes that are shims, by sandbox.
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

// scanEvery is the least time between two scans of all processes: one costs milliseconds, and where a node is emptied each
// sandbox asks for one.
const scanEvery = 100 * time.Millisecond

// scans looks through all processes once for all who ask at about one time. Safe for concurrent use.
type scans struct {
	proc  string        // where processes are read
	slot  chan struct{} // has what the holder of the fields below has put in
	began time.Time     // the last one
	pids  map[string][]int
	err   error

	mu         sync.Mutex
	unanswered map[string]bool // sandboxes with an unanswered removal
}

func newScans(proc string) *scans {
	return &scans{proc: proc, slot: make(chan struct{}, 1), unanswered: map[string]bool{}}
}

// shims lists the processes that are shims of the sandbox, by a scan that begins after the call. The result is shared.
func (s *scans) shims(sandbox string) ([]int, error) {
	asked := time.Now()
	s.slot <- struct{}{}
	defer func() { <-s.slot }()
	if !s.began.After(asked) { // nobody else's began meanwhile
		time.Sleep(time.Until(s.began.Add(scanEvery)))
		begun := time.Now()
		s.pids, s.err = shims(s.proc)
		s.began = begun // where it panicked, who waits scans anew
	}
	return s.pids[sandbox], s.err
}

// killShims sends SIGKILL to the shim that serves the sandbox, and counts what got it.
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

// kill holds the process by a descriptor (a pidfd, inside os.Process) while it is looked at again, so that a number that
// has been given to another process since does not get the signal.
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

// maxCommandLine is how much is read of a process's command line, in bytes: a shim's is far shorter.
const maxCommandLine = 64 << 10

// isShim says whether a process is the shim of this sandbox. One that has gone is none.
func isShim(proc string, pid int, sandbox string) bool {
	return sandbox != "" && sandboxOf(proc, pid) == sandbox
}

// sandboxOf is the sandbox that a process is the shim of, by its command line: "containerd-shim-… -id SANDBOX …". It is empty
// where the process is no shim.
func sandboxOf(proc string, pid int) string {
	f, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // only read
	// A process can show any part of its memory as its command line (PR_SET_MM), and make it as large as it likes.
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
