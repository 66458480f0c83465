package dev

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// errByHand is for those who start a stage themselves.
var errByHand = errors.New("this is started by playlet dev itself")

// Init is process 1 of the new namespaces: it sets them up, starts node, and reaps until that ends. What happens is told
// in the outcome; the error is for what cannot be.
func Init(dir string) error {
	if os.Getpid() != 1 {
		return errByHand
	}
	runtime.LockOSThread() // a cgroup namespace is a thread's; node must be started by the one that has it
	err := setUp(dir)
	if err == nil {
		err = runNode(dir)
	}
	return tell(dir, err)
}

// tell leaves an error as the outcome, unless there is one already.
func tell(dir string, err error) error {
	path := folder(dir).at(outcomeFile)
	if _, there := os.Lstat(path); there == nil {
		return nil
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	return writeFile(path, []byte(text), 0o600)
}

func setUp(dir string) error {
	plan, err := readPlan(dir)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"own mounts", ownMounts},
		{"own cgroups", func() error { return enterCgroups(plan.Name) }},
		{"own folders", coverFolders},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// runNode starts node, passes signals on to it, and reaps everything until it has ended.
func runNode(dir string) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	node, err := os.StartProcess(self(), []string{os.Args[0], "dev", NodeStage, dir}, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, asked()},
	})
	if err != nil {
		return err
	}
	pid := node.Pid
	go func() {
		for range signals {
			_ = syscall.Kill(pid, syscall.SIGTERM) // it may have ended meanwhile
		}
	}()
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if got == pid {
			return endOfNode(status)
		}
	}
}

func endOfNode(status syscall.WaitStatus) error {
	switch {
	case status.Signaled():
		return fmt.Errorf("the node was ended by a signal: %v", status.Signal())
	case status.ExitStatus() != 0:
		return fmt.Errorf("the node has ended with exit code %d", status.ExitStatus())
	default:
		return nil
	}
}
