// Package program runs programs of the host that end by themselves and may block in the kernel.
package program

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const (
	// outputDelay is the wait for the output after the end of the program: daemons that it started may keep it open.
	outputDelay = 5 * time.Second
	// maxOutput limits the recorded output, in bytes.
	maxOutput = 4096
)

// Run runs a program to its end, and returns the end of its output: 4 KiB of both streams. It kills the process group when ctx
// ends or the agent dies. A success does not wait for daemons that keep the output open. Arguments are visible to all users.
func Run(ctx context.Context, path string, args ...string) (output string, err error) {
	// The kernel kills the program when the thread ends that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var out tail
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", &out, &out
	cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = outputDelay
	if err = cmd.Run(); errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it ended with success
	}
	return out.String(), err
}

// tail is the end of a program's output. os/exec writes both streams from one goroutine.
type tail struct{ bytes.Buffer }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.Buffer.Write(p)
	t.Next(max(0, t.Len()-maxOutput))
	return len(p), nil
}
