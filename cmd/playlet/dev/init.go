package dev

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/namespaces"
)

// errByHand is the error of a stage that a user starts directly.
var errByHand = errors.New("this is started by playlet dev itself")

// Init is process 1 of the new namespaces: it sets them up, starts node, and reaps until that ends. It writes the result to the
// outcome file. An error means that there is no outcome.
func Init(dir string) error {
	if os.Getpid() != 1 {
		return errByHand
	}
	return writeOutcome(dir, runNode(dir))
}

// writeOutcome writes an error to the outcome file, unless there is one already.
func writeOutcome(dir string, err error) error {
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

func runNode(dir string) error {
	plan, err := readPlan(dir)
	if err != nil {
		return err
	}
	status, err := namespaces.Init([]namespaces.Step{
		{What: "own mounts", Do: func() error { return namespaces.OwnMounts(unix.MS_SLAVE) }},
		{What: "own cgroups", Do: func() error { return namespaces.EnterCgroups(plan.Name) }},
		{What: "own folders", Do: coverFolders},
	}, []string{os.Args[0], "dev", NodeStage, dir}, []*os.File{stagePipe()}, func(os.Signal) os.Signal { return syscall.SIGTERM })
	if err != nil {
		return err
	}
	return endOfNode(status)
}

func endOfNode(status syscall.WaitStatus) error {
	switch {
	case status.Signaled():
		return fmt.Errorf("the node was ended by a signal: %v", status.Signal())
	case status.ExitStatus() != 0:
		return fmt.Errorf("the node exited with code %d", status.ExitStatus())
	default:
		return nil
	}
}

// privateFolders have fixed paths that containerd, its shims and CNI write to, and that a containerd of the machine would share.
// Here, each is a separate temporary file system.
var privateFolders = []string{"/run/containerd", "/var/lib/cni"}

// coverFolders mounts the private folders.
func coverFolders() error {
	for _, dir := range privateFolders {
		if err := namespaces.Tmpfs(dir, "711"); err != nil {
			return err
		}
	}
	return namespaces.ShareMounts()
}
