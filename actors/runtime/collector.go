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

// collector is the state of garbage collection.
type collector struct {
	received    bool // the desired pods were received
	complete    bool
	desiredUIDs map[string]bool
	finished    map[string]bool // KeepContainers.Over
	// readAt maps pods to the time of their ReadPod, if later than the last list of desired pods: they may be newer than that
	// list.
	readAt   map[string]time.Time
	surveys  bool // a survey is in progress
	goneOnly bool // the next survey is limited to pods that are gone
	// reclaim is eviction's request until a survey begins for it; reclaiming is the request behind the current collection.
	reclaim, reclaiming *messages.ReclaimContainers
	reclaimed           messages.ContainersReclaimed
	queue               []removal
	removing            int
	reportedFolders     map[string]bool // log folders already reported because they hold other files
	timer               supervisors.Timer
}

type (
	collectDue   struct{}
	surveyResult struct {
		holding existingState
		err     error
	}
	removalEnded struct {
		uid string
		err error
		removalResult
	}
	// removalResult is the result of a removal.
	removalResult struct {
		things      int
		freed       int64            // bytes of logs
		keptFolders map[string]error // the log folders that hold other files
	}
)

const (
	surveyTimeout = 2 * time.Minute
	// removeTimeout bounds the removal of one object.
	removeTimeout = 2 * time.Minute
	// maxRemovals bounds the concurrent removals, which are not urgent.
	maxRemovals = 2
)

func (c *collector) keep(m messages.KeepContainers) {
	c.received, c.complete, c.desiredUIDs, c.finished = true, m.Heard, m.Wanted, m.Over
	maps.DeleteFunc(c.readAt, func(_ string, at time.Time) bool { return at.Before(m.At) })
}

// desired returns the currently desired pods.
func (c *collector) desired() desiredPods {
	w := desiredPods{uids: make(map[string]bool, len(c.desiredUIDs)+len(c.readAt)), complete: c.complete,
		finished: maps.Clone(c.finished), reclaim: c.reclaiming != nil}
	maps.Copy(w.uids, c.desiredUIDs)
	for uid := range c.readAt {
		w.uids[uid] = true
		delete(w.finished, uid) // it may be a new pod with the same UID
	}
	return w
}

func (a *actor) planSurvey(ctx supervisors.Context) {
	supervisors.Cancel(a.collector.timer)
	a.collector.timer = ctx.After(a.opts.CollectPeriod, collectDue{})
}

func (a *actor) survey(ctx supervisors.Context) {
	a.planSurvey(ctx)
	if !a.collector.received || a.collector.surveys || len(a.collector.queue) > 0 || a.collector.removing > 0 {
		return // the desired pods are unknown, or the last collection is still running
	}
	a.collector.surveys = true
	a.collector.reclaiming, a.collector.reclaim, a.collector.reclaimed = a.collector.reclaim, nil, messages.ContainersReclaimed{}
	uids := a.uids()
	ctx.Do(supervisors.Work{Name: "survey", Timeout: surveyTimeout, Run: func(ctx context.Context) any {
		logs, err := logFolders(a.opts.PodLogsDir) // before the lists, so that they cover the pod of each folder
		if err != nil {
			return surveyResult{err: err}
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
		return surveyResult{existingState{all, logs}, err}
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

func (a *actor) surveyEnded(ctx supervisors.Context, m surveyResult) {
	a.collector.surveys = false
	if m.err != nil {
		ctx.Log().Debug("survey of dead containers failed", "error", m.err)
		a.suspect(ctx, m.err)
		a.collector.reclaimed.Problem = m.err.Error()
		a.reclaimEnded(ctx)
		return
	}
	maps.DeleteFunc(a.collector.reportedFolders, func(name string, _ bool) bool { return !slices.Contains(m.holding.logs, name) })
	a.collector.queue = choose(*a.opts.Collect, ctx.Now(), m.holding, a.collector.desired())
	if a.collector.goneOnly && a.collector.reclaiming == nil {
		a.collector.queue = slices.DeleteFunc(a.collector.queue, func(r removal) bool { return !r.podGone })
	}
	a.collector.goneOnly = false
	a.removeNext(ctx)
}

// removeNext starts removals. It checks each pod again, because it may have returned. A pod that returns during its removal is
// read afterwards.
func (a *actor) removeNext(ctx supervisors.Context) {
	for a.collector.removing < maxRemovals && len(a.collector.queue) > 0 {
		r := a.collector.queue[0]
		a.collector.queue = a.collector.queue[1:]
		if a.phase != connected || r.podGone && !a.collector.desired().undesired(r.uid) {
			continue
		}
		a.collector.removing++
		if r.podGone {
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

// reclaimEnded reports a finished collection to eviction, and starts the next requested one.
func (a *actor) reclaimEnded(ctx supervisors.Context) {
	if a.collector.surveys || a.collector.removing > 0 || len(a.collector.queue) > 0 {
		return
	}
	if a.collector.reclaiming != nil {
		a.collector.reclaiming = nil
		ctx.Tell(messages.Eviction, a.collector.reclaimed)
	}
	if a.collector.reclaim != nil && a.phase == connected {
		a.survey(ctx)
	}
}

func (a *actor) removedOne(ctx supervisors.Context, m removalEnded) {
	a.collector.removing--
	a.collector.reclaimed.Removed += m.things
	a.collector.reclaimed.Freed += m.freed
	a.queue.Release(m.uid)
	if m.things > 0 {
		level := slog.LevelDebug
		if m.freed > 0 {
			level = slog.LevelInfo
		}
		ctx.Log().Log(context.Background(), level, "removed dead containers, sandboxes and logs of a pod", "pod", m.uid,
			"objects", m.things, "freedBytes", m.freed)
	}
	for name, err := range m.keptFolders {
		if !a.collector.reportedFolders[name] {
			if a.collector.reportedFolders == nil {
				a.collector.reportedFolders = map[string]bool{}
			}
			a.collector.reportedFolders[name] = true
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
		a.collector.reclaimed.Problem = m.err.Error()
		a.suspect(ctx, m.err)
	}
	a.removeNext(ctx)
	a.pump(ctx)
}

// remove removes the objects chosen of one pod. A container's log is removed first, so that a failure is retried. A sandbox is
// removalResult after its containers, since it would take them along, and a log folder after all its writers.
func (a *actor) remove(ctx context.Context, r removal) (done removalResult, err error) {
	if r.podGone && len(a.opts.Operations.InFlight(r.uid+"/")) > 0 {
		return done, nil // an operation on the pod is still in flight
	}
	done.keptFolders = map[string]error{}
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
				done.keptFolders[name] = err
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

// removeSandbox stops the sandbox first, unless this process has done so: only that releases the network of a dead sandbox.
func (a *actor) removeSandbox(ctx context.Context, uid, id string) error {
	ops := a.opts.Operations
	if !ops.SandboxStopped(uid, id) {
		if err := ops.StopSandbox(ctx, a.opts.CRI, uid, id, removeTimeout, nil); err != nil {
			return err
		}
	}
	err := remains.RemoveSandbox(ctx, id, a.opts.CRI.RemovePodSandbox)
	if err == nil {
		ops.ForgetSandbox(uid, id)
	}
	return err
}

// removeLogs removes a pod's log folder. It keeps a folder with other files, and returns an *otherFileError.
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
