package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/cri/remains"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// collector is the state of the collection of what is dead.
type collector struct {
	known  bool // pods has told who is wanted
	heard  bool
	wanted map[string]bool
	// asked are pods that have asked to be read, and when, since pods told who is wanted: they may be younger than that
	// word.
	asked    map[string]time.Time
	surveys  bool // a survey is under way
	goneOnly bool // of the next survey only pods that nobody wants are of interest
	// reclaim is what eviction asked for and no survey has begun for; reclaiming is what the collection under way is for.
	reclaim, reclaiming *messages.ReclaimContainers
	reclaimed           messages.ContainersReclaimed
	line                []removal
	removing            int
	kept                map[string]bool // the folders of logs that were reported because they hold other files
	timer               supervisors.Timer
}

type (
	collectDue struct{}
	surveyed   struct {
		holding holding
		err     error
	}
	removalEnded struct {
		uid string
		err error
		removed
	}
	// removed is what was removed of a pod.
	removed struct {
		things int
		freed  int64            // bytes of logs
		kept   map[string]error // the folders of logs that hold other files
	}
)

const (
	surveyTimeout = 2 * time.Minute
	// removeTimeout bounds the removal of one thing.
	removeTimeout = 2 * time.Minute
	// maxRemovals bounds the pods whose remains are removed at once: there is no hurry.
	maxRemovals = 2
)

func (c *collector) keep(m messages.KeepContainers) {
	c.known, c.heard, c.wanted = true, m.Heard, m.Wanted
	maps.DeleteFunc(c.asked, func(_ string, at time.Time) bool { return at.Before(m.At) })
}

// desired is which pods are wanted now.
func (c *collector) desired() desired {
	w := desired{wanted: make(map[string]bool, len(c.wanted)+len(c.asked)), heard: c.heard}
	if c.reclaiming != nil {
		w.over = c.reclaiming.Over
	}
	maps.Copy(w.wanted, c.wanted)
	for uid := range c.asked {
		w.wanted[uid] = true
	}
	return w
}

func (a *actor) planSurvey(ctx supervisors.Context) {
	supervisors.Cancel(a.bin.timer)
	a.bin.timer = ctx.After(a.opts.CollectPeriod, collectDue{})
}

func (a *actor) survey(ctx supervisors.Context) {
	a.planSurvey(ctx)
	if !a.bin.known || a.bin.surveys || len(a.bin.line) > 0 || a.bin.removing > 0 {
		return // nothing may be removed yet, or the last collection is not over
	}
	a.bin.surveys = true
	a.bin.reclaiming, a.bin.reclaim, a.bin.reclaimed = a.bin.reclaim, nil, messages.ContainersReclaimed{}
	uids := a.uids()
	ctx.Do(supervisors.Work{Name: "survey", Timeout: surveyTimeout, Run: func(ctx context.Context) any {
		logs, err := logFolders(a.opts.PodLogsDir) // before the lists: of each folder, the lists tell whether its pod is there
		if err != nil {
			return surveyed{err: err}
		}
		all, only, err := a.listAll(ctx, uids)
		if err == nil && only == nil {
			err = remains.EndForgotten(ctx, func(id string) bool {
				return slices.ContainsFunc(all.Sandboxes, func(s *runtimeapi.PodSandbox) bool { return s.GetId() == id })
			})
		}
		logs = slices.DeleteFunc(logs, func(name string) bool {
			uid, ok := logFolderUID(name)
			return ok && a.opts.Foreign(uid)
		})
		return surveyed{holding{all, logs}, err}
	}})
}

func logFolders(dir string) (names []string, err error) {
	if dir == "" {
		return nil, nil
	}
	root, err := safepath.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return root.Names(".")
}

func (a *actor) surveyEnded(ctx supervisors.Context, m surveyed) {
	a.bin.surveys = false
	if m.err != nil {
		ctx.Log().Debug("survey of dead containers failed", "error", m.err)
		a.suspect(ctx, m.err)
		a.bin.reclaimed.Lack = m.err.Error()
		a.reclaimEnded(ctx)
		return
	}
	maps.DeleteFunc(a.bin.kept, func(name string, _ bool) bool { return !slices.Contains(m.holding.logs, name) })
	a.bin.line = choose(*a.opts.Collect, ctx.Now(), m.holding, a.bin.desired())
	if a.bin.goneOnly && a.bin.reclaiming == nil {
		a.bin.line = slices.DeleteFunc(a.bin.line, func(r removal) bool { return !r.gone })
	}
	a.bin.goneOnly = false
	a.removeNext(ctx)
}

// removeNext begins removals. Who is wanted is asked again for each: a pod may have come back. One that comes while
// its remains are being removed is read after that.
func (a *actor) removeNext(ctx supervisors.Context) {
	for a.bin.removing < maxRemovals && len(a.bin.line) > 0 {
		r := a.bin.line[0]
		a.bin.line = a.bin.line[1:]
		if a.phase != connected || r.gone && !a.bin.desired().gone(r.uid) {
			continue
		}
		a.bin.removing++
		if r.gone {
			a.queue.Hold(r.uid)
		}
		ctx.Do(supervisors.Work{Name: "remove the remains of pod " + r.uid, Pod: r.uid,
			Timeout: time.Duration(len(r.containers)+2*len(r.sandboxes)+len(r.logs)+1) * removeTimeout,
			Run: func(ctx context.Context) any {
				done, err := a.remove(ctx, r)
				return removalEnded{r.uid, err, done}
			}})
	}
	a.reclaimEnded(ctx)
}

// reclaimEnded tells eviction of the end of a collection that it asked for, and begins the next one that it asks for.
func (a *actor) reclaimEnded(ctx supervisors.Context) {
	if a.bin.surveys || a.bin.removing > 0 || len(a.bin.line) > 0 {
		return
	}
	if a.bin.reclaiming != nil {
		a.bin.reclaiming = nil
		ctx.Tell(messages.Eviction, a.bin.reclaimed)
	}
	if a.bin.reclaim != nil && a.phase == connected {
		a.survey(ctx)
	}
}

func (a *actor) removedOne(ctx supervisors.Context, m removalEnded) {
	a.bin.removing--
	a.bin.reclaimed.Removed += m.things
	a.bin.reclaimed.Freed += m.freed
	a.queue.Release(m.uid)
	if m.things > 0 {
		level := slog.LevelDebug
		if m.freed > 0 {
			level = slog.LevelInfo
		}
		ctx.Log().Log(context.Background(), level, "removed dead containers, sandboxes and logs of a pod", "pod", m.uid,
			"objects", m.things, "freedBytes", m.freed)
	}
	for name, err := range m.kept {
		if !a.bin.kept[name] {
			if a.bin.kept == nil {
				a.bin.kept = map[string]bool{}
			}
			a.bin.kept[name] = true
			ctx.Log().Warn("kept a folder among the logs of pods; move other files out and it is removed",
				"folder", name, "error", err)
		}
	}
	if m.err != nil {
		ctx.Log().Warn("could not remove all dead containers, sandboxes and logs of a pod; will retry", "pod", m.uid, "error",
			m.err)
		if a.opts.NodeName != "" {
			ctx.Tell(messages.Events, messages.NodeEvent(a.opts.NodeName, v1.EventTypeWarning, messages.EventContainerGCFailed,
				m.err.Error(), ctx.Now()))
		}
		a.bin.reclaimed.Lack = m.err.Error()
		a.suspect(ctx, m.err)
	}
	a.removeNext(ctx)
	a.pump(ctx)
}

// remove removes what was chosen of one pod. A container's log goes before it, so that it is tried again where that
// fails; a sandbox goes only when its containers have gone, since it would take them along, and a log folder only when
// nothing is left that writes there.
func (a *actor) remove(ctx context.Context, r removal) (done removed, err error) {
	if r.gone && len(a.opts.Operations.InFlight(r.uid+"/")) > 0 {
		return done, nil // somebody is at work on it after all
	}
	done.kept = map[string]error{}
	ctx, freed := safepath.CountFreed(ctx)
	defer func() { done.freed = freed.Load() }()
	var problems []error
	tried := func(err error) bool {
		if err != nil {
			problems = append(problems, err)
			return false
		}
		done.things++
		return true
	}
	kept := map[string]bool{}
	for _, c := range r.containers {
		err := removeLog(ctx, a.opts.PodLogsDir, c.log)
		if err == nil {
			err = a.removeOne(ctx, r.uid, c.id, a.opts.CRI.RemoveContainer)
		}
		kept[c.sandbox] = !tried(err) || kept[c.sandbox]
	}
	for _, id := range r.sandboxes {
		if !kept[id] {
			tried(a.removeOne(ctx, r.uid, id, func(ctx context.Context, id string) error {
				return a.removeSandbox(ctx, r.uid, id)
			}))
		}
	}
	if len(problems) == 0 {
		for _, name := range r.logs {
			err := removeLogs(ctx, a.opts.PodLogsDir, name)
			if _, kept := errors.AsType[*otherFileError](err); kept {
				done.kept[name] = err
			} else {
				tried(err)
			}
		}
	}
	return done, errors.Join(problems...)
}

func (a *actor) removeOne(ctx context.Context, uid, id string, remove func(context.Context, string) error) error {
	_, err := a.opts.Operations.Do(ctx, uid+"/remove/"+id, removeTimeout, func(ctx context.Context) (any, error) {
		return nil, remove(ctx, id)
	})
	return err
}

// removeSandbox stops first: what a sandbox that died has left of its network is taken down by that alone.
func (a *actor) removeSandbox(ctx context.Context, uid, id string) error {
	if err := a.opts.Operations.StopSandbox(ctx, a.opts.CRI, uid, id, removeTimeout, nil); err != nil {
		return err
	}
	return remains.RemoveSandbox(ctx, id, a.opts.CRI.RemovePodSandbox)
}

// removeLogs removes a pod's folder of logs. One that holds other files is kept whole: the error is an *otherFileError.
func removeLogs(ctx context.Context, dir, name string) (err error) {
	root, err := safepath.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if err := checkLogFolder(root, name); err != nil {
		return noneIsFine(err)
	}
	if err := safepath.RemoveAllOneFilesystem(ctx, root, name); err != nil {
		return fmt.Errorf("log folder %s: %w", name, err)
	}
	return nil
}
