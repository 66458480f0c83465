package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/crilog"
)

// tend removes the leftovers of one log and rotates it if it is too large. It joins a call in progress.
func (w work) tend(ctx context.Context, c container, now time.Time) error {
	_, err := w.opts.Operations.Do(ctx, c.uid+"/log/"+c.id, tendTimeout, func(ctx context.Context) (any, error) {
		return nil, w.tendNow(ctx, c, now)
	})
	if p, ok := errors.AsType[*cri.PanicError](err); ok {
		panic(p) // a bug in this actor
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("the disk is full: %w", err)
	}
	return err
}

func (w work) tendNow(ctx context.Context, c container, now time.Time) (err error) {
	root, err := safepath.OpenRoot(w.opts.PodLogsDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	dir, err := root.Sub(filepath.Dir(c.log))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the pod has been removed
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	l := &log{container: c, dir: dir, base: filepath.Base(c.log), cri: w.opts.CRI}
	names, err := dir.Names(".")
	if err == nil { // remove files of a compression that a crash interrupted
		err = l.remove(crilog.Leftovers(names, l.base))
	}
	return errors.Join(err, w.keepSmall(ctx, l, now))
}

// keepSmall rotates a log that is too large.
func (w work) keepSmall(ctx context.Context, l *log, now time.Time) error {
	info, err := l.dir.Lstat(l.base)
	switch {
	case w.opts.MaxSize < 0 || !l.running:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		// A crash, or a missing answer of the runtime, separated the two steps of a rotation. The runtime still writes to the
		// rotated file.
		return unlessEnded(l.reopen(ctx))
	case err != nil:
		return err
	case !info.Mode().IsRegular() || info.Size() < w.opts.MaxSize:
		return nil
	}
	return l.rotate(ctx, now, w.opts.MaxFiles)
}

// log is the log of one container, with its folder open.
type log struct {
	container
	dir  *safepath.Root
	base string
	cri  CRI
}

func (l *log) remove(names []string) error {
	var errs []error
	for _, name := range names {
		if err := l.dir.Unlink(name); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// rotate makes the runtime write to a new file, and then compresses older ones. Nothing is written to those any more, since the
// runtime has just reopened the log's path.
func (l *log) rotate(ctx context.Context, now time.Time, maxFiles int) error {
	names, err := l.dir.Names(".")
	if err != nil {
		return err
	}
	plan := crilog.PlanRotation(names, l.base, now, maxFiles)
	left := l.remove(plan.Remove)
	if err := l.dir.RenameNew(l.base, plan.To); err != nil {
		return errors.Join(left, err)
	}
	if err := l.reopen(ctx); err != nil {
		return errors.Join(left, l.rotateBack(plan.To, err))
	}
	for _, name := range plan.Compress {
		if err := crilog.Compress(ctx, l.dir, name); err != nil {
			return errors.Join(left, fmt.Errorf("it is rotated, but an older part cannot be compressed: %w", err))
		}
	}
	return left
}

// rotateBack restores the log's name. If a file of that name exists, the runtime has opened it after all.
func (l *log) rotateBack(from string, why error) error {
	err := l.dir.RenameNew(from, l.base)
	if errors.Is(err, unix.EEXIST) {
		err = nil
	}
	return errors.Join(unlessEnded(why), err)
}

// reopen makes the runtime reopen the log's path. It returns errEnded if the container has ended in the meantime.
func (l *log) reopen(ctx context.Context) error {
	err := l.cri.ReopenContainerLog(ctx, l.id)
	if err == nil {
		return nil
	}
	now, statusErr := l.cri.ContainerStatus(ctx, l.id, false)
	if cri.IsNotFound(statusErr) || statusErr == nil &&
		now.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return errEnded
	}
	return fmt.Errorf("the runtime does not open it anew: %w", err)
}

// errEnded means that a log needs no rotation any more.
var errEnded = errors.New("the container has ended")

// unlessEnded drops errEnded and returns any other error.
func unlessEnded(err error) error {
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}
