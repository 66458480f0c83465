package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/namespaces"
	"github.com/playlet-dev/playlet/cmd/playlet/dev/progress"
)

// Options are the values of the command line.
type Options struct {
	// Dir is the folder for everything; a temporary one where it is empty.
	Dir string
	// Programs are folders to look in first.
	Programs []string
	// Install lets missing programs be installed.
	Install bool
	// Page is the port of the web page on the loopback; -1 has none. Chaos lets actors be broken. ObjectDir is the folder of
	// ConfigMaps and Secrets; one of the run's own when it is empty.
	Page      int
	Chaos     bool
	ObjectDir string
	// Pods are manifests that are run beside the sample pod: files, folders and URLs.
	Pods []string
	// Tour shows the node in steps that each wait for a line on In.
	Tour bool
	In   io.Reader
	// Once ends the run as soon as the sample pod has answered.
	Once bool
	// AdminSocket is the path of the agent's. Where it is empty, DefaultSocket is taken unless another agent owns it.
	AdminSocket, DefaultSocket string
	// Out is where progress goes; the processes below write it to os.Stdout.
	Out io.Writer
}

const (
	// storeDir holds the record of the run there is. It outlives the boot, as the run's files do.
	storeDir = "/var/lib/playlet-dev"
	procDir  = "/proc"
	// kernelTimeout bounds each wait for something that the kernel is about to do.
	kernelTimeout = 20 * time.Second
)

// errInterrupted is the error of a run with Once that ended before the answer.
var errInterrupted = errors.New("interrupted before the sample pod had answered")

// Run runs `playlet dev` completely. It returns when ctx or the run has ended. The machine is restored then, or the error names
// the remains. It needs root, and only one run can be active on a machine.
func Run(ctx context.Context, o Options) (err error) {
	// A closed terminal or pipe must not leave anything behind.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	defer stop()
	p := progress.New(o.Out)
	s, _, err := begin(storeDir, p)
	if err != nil {
		return err
	}
	undone := true
	defer func() { err = errors.Join(err, s.close(undone)) }()
	p.Line("A node for trying things out. Ctrl-C ends it and leaves the machine as it was.")
	plan, r, err := prepare(ctx, o, p)
	if err == nil {
		err = s.save(r)
	}
	if err != nil {
		return unlessEnded(ctx, o.Once, err)
	}
	undone = false
	err = unlessEnded(ctx, o.Once, makeAll(ctx, plan, r))
	if err == nil && ctx.Err() == nil {
		err = runInit(ctx, s, r, o)
	}
	cleaned := p.Step("clean-up", func(func(string)) (string, error) { return undo(r, "the machine is as it was") })
	undone = cleaned == nil
	if cleaned != nil {
		cleaned = fmt.Errorf("not everything could be removed (playlet dev --clean tries again): %w", cleaned)
	}
	return errors.Join(err, cleaned)
}

// unlessEnded returns the error of an operation, unless ctx has ended: then pending operations fail as expected. A run with Once
// returns errInterrupted instead.
func unlessEnded(ctx context.Context, once bool, err error) error {
	switch {
	case ctx.Err() == nil:
		return err
	case once:
		return errInterrupted
	default:
		return nil
	}
}

// Clean undoes the remains of a killed run, and reports that.
func Clean(o Options) error {
	p := progress.New(o.Out)
	s, left, err := begin(storeDir, p)
	if err != nil {
		return err
	}
	if !left {
		p.Line("nothing was left")
	}
	return s.close(true)
}

// begin takes the lock, and undoes the remains of an earlier run. left reports whether there were any.
func begin(dir string, p *progress.Progress) (s *store, left bool, err error) {
	if os.Geteuid() != 0 {
		return nil, false,
			errors.New("playlet dev takes root, as it starts containerd and makes a network for pods: sudo playlet dev")
	}
	if s, err = openStore(dir); err != nil {
		return nil, false, err
	}
	r, err := s.load()
	if err != nil {
		return nil, false, errors.Join(err, s.close(false))
	}
	if r == nil {
		return s, false, nil
	}
	err = p.Step("leftovers", func(func(string)) (string, error) {
		return undo(r, fmt.Sprintf("removed what an earlier run (process %d) had left", r.Outer.PID))
	})
	if err == nil {
		err = os.Remove(s.path())
	}
	if err != nil {
		return nil, false, errors.Join(fmt.Errorf("cleaning up after an earlier run: %w", err), s.close(false))
	}
	return s, true, nil
}

// makeAll creates the recorded changes on the machine.
func makeAll(ctx context.Context, plan *Plan, r *Record) error {
	if err := makeFolders(r.Folders); err != nil {
		return err
	}
	f := folder(r.Dir)
	if err := f.make(r.ID, r.Sample); err != nil {
		return err
	}
	text, err := json.MarshalIndent(plan, "", "  ")
	if err != nil {
		return err
	}
	if err := writeFile(f.at(planFile), text, 0o600); err != nil {
		return err
	}
	if err := namespaces.MakeCgroups(r.Name(), r.Controllers); err != nil {
		return err
	}
	return r.Make(ctx, plan.Programs.IPTables, r.Name())
}

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}
