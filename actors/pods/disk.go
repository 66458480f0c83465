package pods

import (
	"errors"
	"io/fs"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/actors/internal/overdue"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

const (
	savePatience = 15 * time.Second // for one write; a disk may hang
	saveTimeout  = 2 * savePatience
)

// disk has the checkpoints. It is the process's: what an earlier life of the actor writes is never beside, or after, what this
// one does.
type disk struct {
	finished *overdue.Writing[map[string]*v1.PodStatus]
	failing  *overdue.Writing[map[string]messages.PodFailure]
}

func newDisk(finished string) disk {
	return disk{
		finished: overdue.NewWriting("the checkpoint of finished pods", savePatience, func(pods map[string]*v1.PodStatus) error {
			return atomicfile.Save(finished, finishedVersion, pods)
		}),
		failing: overdue.NewWriting("the checkpoint of pods that are ended for others", savePatience,
			func(pods map[string]messages.PodFailure) error {
				return atomicfile.Save(failingPath(finished), failingVersion, pods)
			}),
	}
}

// recall gives a checkpoint: what an earlier life of the actor wanted written, which may not be on the disk, or else what the
// disk has.
func recall[T any](w *overdue.Writing[map[string]T], path string, version int) (pods map[string]T, written bool, err error) {
	if newest, ok := w.Newest(); ok {
		return newest, false, nil
	}
	pods = map[string]T{}
	err = atomicfile.Load(path, version, &pods)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // there are none yet
	}
	return pods, true, err
}

// wrote takes how a write of a checkpoint went, for the log and for health: what it means that it cannot be written, and why.
func (a *actor) wrote(ctx supervisors.Context, path, means string, problem error) {
	now, was := "", a.unwritten[path]
	if problem != nil {
		now = means + ": " + problem.Error()
	}
	switch {
	case now == was:
		return
	case now == "":
		ctx.Log().Info("a checkpoint can be written again", "path", path)
		delete(a.unwritten, path)
	default:
		ctx.Log().Error(means+"; an agent that is killed now forgets it", "path", path, "error", problem)
		a.unwritten[path] = now
	}
	a.changed(ctx)
}
