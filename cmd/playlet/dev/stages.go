package dev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/namespaces"
)

// InitStage and NodeStage are the sub-commands of `playlet dev` that Run starts, with the run's folder as argument.
const (
	InitStage = "init"
	NodeStage = "node"
)

// askedFD is the reading end of a pipe in init and in node: at its end, which the writing process's death is too, node
// has to stop. Lines that are typed go through it. A signal would be lost on a process 1 that is not ready for it, and kill any
// other.
const askedFD = 3

// stagePipe gives the pipe of this stage, which programs started from it do not get.
func stagePipe() *os.File {
	syscall.CloseOnExec(askedFD)
	return os.NewFile(askedFD, "asked to end")
}

// runInit starts init and waits for it. All processes of its PID namespace are gone before its end is reported. A first
// signal, or the end of ctx, asks node to stop; a second signal does not ask.
func runInit(ctx context.Context, s *store, r *Record, o Options) error {
	// The kernel ends init when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command(namespaces.Self(), "dev", InitStage, r.Dir)
	cmd.Args[0] = os.Args[0]
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{read}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true, // Ctrl-C is for us; we pass it on
	}
	err = cmd.Start()
	_ = read.Close() // init's by now
	if err != nil {
		return errors.Join(fmt.Errorf("new namespaces: %w", err), write.Close())
	}
	stopped := make(chan struct{})
	go pass(ctx, signals, stopped, func() { _ = write.Close() }, func() { _ = cmd.Process.Kill() })
	if o.Tour {
		go passLines(o.In, write) // nothing ends the read of a terminal but the process's end
	}
	identity, err := identify(procDir, cmd.Process.Pid)
	if err == nil {
		r.Init = identity
		err = s.save(r)
	}
	if err != nil {
		err = errors.Join(err, cmd.Process.Kill())
	}
	ended := cmd.Wait()
	close(stopped)
	_ = write.Close() // unless pass has
	if err != nil {
		return err
	}
	return outcome(ctx, folder(r.Dir), o.Once, ended)
}

// pass calls ask at the first signal, or when ctx has ended, which one signal may do both, and kill at the second
// signal, until stopped is closed. Both may be called more than once.
func pass(ctx context.Context, signals <-chan os.Signal, stopped <-chan struct{}, ask, kill func()) {
	done := ctx.Done()
	for count := 0; ; {
		select {
		case <-stopped:
			return
		case <-done:
			done = nil
		case <-signals:
			count++
		}
		if count > 1 {
			kill()
		} else {
			ask()
		}
	}
}

// outcome returns the result that node wrote, or else the exit of its process.
func outcome(ctx context.Context, f folder, once bool, ended error) error {
	text, err := os.ReadFile(f.at(outcomeFile))
	switch {
	case err == nil && len(text) > 0:
		return errors.New(string(text))
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case ctx.Err() != nil:
		return unlessEnded(ctx, once, nil) // it was not given the time
	case ended != nil:
		return fmt.Errorf("the node has ended: %w", ended)
	default:
		return errors.New("the node has ended without a word")
	}
}
