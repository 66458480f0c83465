// Package nfs mounts folders of NFS servers by the host's program mount.nfs, as the kubelet does by mount(8). source.go makes
// its arguments, mounter.go runs it, causes.go reads its errors. The package kinds has the kind of volume.
//
// The program may wait for a server for minutes, in the kernel. It runs in a process group of its own, ends with the agent (also
// one that is killed), with its deadline, and with the end of its pod. Mount returns only when the program has ended, so that the
// operation of the volume is in progress until then, and no second one begins.
package nfs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/moby/sys/mountinfo"

	"github.com/playlet-dev/playlet/actors/internal/linux/program"
	"github.com/playlet-dev/playlet/cri/stall"
	"github.com/playlet-dev/playlet/messages"
)

// Mounter runs mount.nfs for the volumes of pods. It lives as long as the process and is safe for concurrent use. The zero
// value is ready.
type Mounter struct {
	Program     string   // the path of mount.nfs; empty: searched for
	FileSystems []string // types of mounts to recognise in addition to those of IsType

	mu      sync.Mutex
	running map[*run]bool
}

// run is a program in progress.
type run struct {
	pod  string // its UID
	stop context.CancelCauseFunc
}

// mount(8) looks in these folders, too, if they are not in PATH.
var programs = []string{helper, "/sbin/" + helper, "/usr/sbin/" + helper}

const (
	helper = "mount.nfs"
	// packages are the packages with the program, of Debian and of Fedora.
	packages = "nfs-common or nfs-utils"
	// deadline is longer than the two minutes for which mount.nfs retries by default, and than one attempt of the kernel
	// (three minutes), so that its own error is reported.
	deadline = 5 * time.Minute
)

// errStopped is the cause of a stopped program.
var errStopped = errors.New("the pod is ending")

// Find returns the path of mount.nfs. The error has its cause.
func Find() (string, error) { return find(programs...) }

func find(names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", messages.Cause{Code: messages.CauseMountProgramAbsent, Name: helper, Detail: packages}.Errorf(
		"nfs needs the program %s of the package %s, which is not installed on this node", helper, packages)
}

// Mount mounts the source on a folder. It returns when the program has ended. An error does not mean that nothing is mounted.
func (m *Mounter) Mount(ctx context.Context, pod string, s Source, target string) error {
	names := programs
	if m.Program != "" {
		names = []string{m.Program}
	}
	path, err := find(names...)
	if err != nil {
		return err
	}
	args := []string{s.Export(), target}
	if options := s.options(); options != "" {
		args = append(args, "-o", options)
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer m.enter(&run{pod, stop})()
	stall.Progress(ctx, Wait{s.Export()})
	output, err := program.Run(ctx, path, args...)
	switch cause := context.Cause(ctx); {
	case err == nil:
		return nil
	case errors.Is(cause, errStopped):
		return fmt.Errorf("mounting %s was stopped: %w", s.Export(), cause)
	case cause != nil:
		return unanswered(s.Export(), fmt.Sprintf("no answer within %s", deadline))
	default:
		return failure(s, output, err)
	}
}

// enter adds a program in progress, and returns its removal.
func (m *Mounter) enter(r *run) (leave func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running == nil {
		m.running = map[*run]bool{}
	}
	m.running[r] = true
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.running, r)
	}
}

// Stop kills the programs of a pod, and does not wait for their ends.
func (m *Mounter) Stop(pod string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for r := range m.running {
		if r.pod == pod {
			r.stop(errStopped)
		}
	}
}

// Recognise returns an error if the topmost mount on a folder is not of the source. A mount of another server's name or folder
// is accepted with a warning, as servers may refer to others.
func (m *Mounter) Recognise(log *slog.Logger, s Source, at *mountinfo.Info) error {
	switch {
	case !IsType(at.FSType) && !slices.Contains(m.FileSystems, at.FSType):
		return fmt.Errorf("%s of the type %s is mounted on %s: unmount it", at.Source, at.FSType, at.Mountpoint)
	case s.ReadOnly && !isReadOnly(at):
		return fmt.Errorf("%s is mounted on %s with write access, and the volume is read-only: unmount it",
			at.Source, at.Mountpoint)
	case !s.isAt(at):
		log.Warn("an nfs volume is mounted from a different source; the mount is kept", "mount", at.Mountpoint, "from", at.Source,
			"want", s.Export())
	}
	return nil
}
