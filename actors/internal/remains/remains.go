// Package remains removes sandboxes that containerd cannot remove by itself.
//
// A caller that dies in the middle of StartContainer makes containerd give the container up, at times without the task
// that its shim has made already. containerd then calls the container exited, passes over it when it is stopped, and
// refuses to remove it ("cannot delete running task"), and with it its sandbox, until containerd is started again. The
// shim serves that one pod alone: when it ends, containerd drops the tasks that it had, and the removal succeeds.
package remains

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playlet-dev/playlet/cri"
)

// procfs is where processes are read.
const procfs = "/proc"

// pauses come before another try of a removal once the shim has got its signal: the runtime hears of its end a little
// later.
var pauses = []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}

// RemoveSandbox removes a sandbox that has been stopped, with what is in it, by calling remove. Where the runtime refuses
// because of the state that it believes something of it to be in, the sandbox's shim is killed, and it is called again.
// That the sandbox is gone already is no error.
func RemoveSandbox(ctx context.Context, id string, remove func(ctx context.Context, id string) error) error {
	return removeSandbox(ctx, procfs, id, remove)
}

func removeSandbox(ctx context.Context, proc, id string, remove func(ctx context.Context, id string) error) error {
	err := ignore(remove(ctx, id))
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
	return fmt.Errorf("its shim was killed, and yet: %w", err)
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

// killShims sends SIGKILL to the shim that serves the sandbox, and counts what got it.
func killShims(proc, sandbox string) (n int, err error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !isShim(proc, pid, sandbox) {
			continue
		}
		killed, err := kill(proc, pid, sandbox)
		if killed {
			n++
		}
		errs = append(errs, err)
	}
	return n, errors.Join(errs...)
}

// kill holds the process by a descriptor while it is looked at again, so that a number that has been given to another
// process since does not get the signal.
func kill(proc string, pid int, sandbox string) (bool, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("process %d: %w", pid, err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	if !isShim(proc, pid, sandbox) {
		return false, nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return false, fmt.Errorf("kill process %d: %w", pid, err)
	}
	return true, nil
}

// isShim says whether a process is the shim of this sandbox, by its command line: "containerd-shim-… -id SANDBOX …". One
// that has gone is none.
func isShim(proc string, pid int, sandbox string) bool {
	line, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return false
	}
	args := bytes.Split(line, []byte{0})
	if !bytes.HasPrefix([]byte(filepath.Base(string(args[0]))), []byte("containerd-shim")) {
		return false
	}
	for i, arg := range args[:len(args)-1] {
		if string(arg) == "-id" && sandbox != "" && string(args[i+1]) == sandbox {
			return true
		}
	}
	return false
}
