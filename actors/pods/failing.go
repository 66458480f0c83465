package pods

import (
	"context"
	"maps"
	"path/filepath"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// failingVersion is the format of the checkpoint: why the node ends pods, by UID.
const failingVersion = 1

// failing is the checkpoint of pods that the node has decided to end. It is written before anything of them is ended, so that
// an agent that is killed meanwhile neither lets them run on nor chooses others.
type failing struct {
	pods   map[string]messages.PodFailure // by UID
	kept   map[string]bool                // those that are on the disk, or that no disk will have
	saving bool
	stale  bool // the file is to be written once more
}

type failingSaved struct {
	uids    map[string]messages.PodFailure
	problem error
}

// failingPath is the checkpoint's, by that of finished pods.
func failingPath(finished string) string {
	return filepath.Join(filepath.Dir(finished), "failing.json")
}

// learnFailing takes what an earlier agent has decided.
func (a *actor) learnFailing(ctx supervisors.Context, m loadDone) {
	if m.failingProblem != nil {
		ctx.Log().Error("the checkpoint of pods that are ended for others cannot be read; it is made anew, and such a pod may "+
			"run on",
			"path", failingPath(a.opts.FinishedPath), "error", m.failingProblem)
	}
	for uid, why := range m.failing {
		a.failing.pods[uid], a.failing.kept[uid] = why, true
	}
}

// fail has the node end a pod, which stays as a failed one. It is told when that is on the disk.
func (a *actor) fail(ctx supervisors.Context, e *entry, why messages.PodFailure) {
	e.fail, e.failed = &why, ctx.Now()
	a.failing.pods[string(e.pod.UID)] = why
	a.saveFailing(ctx)
}

// failsOn gives a new entry what was decided over its pod before.
func (a *actor) failsOn(ctx supervisors.Context, e *entry) {
	if why, ok := a.failing.pods[string(e.pod.UID)]; ok {
		e.fail, e.failed = &why, ctx.Now()
	}
}

// failure is what a pod is told of its failure.
func (a *actor) failure(e *entry) *messages.PodFailure {
	if e.fail == nil || !a.failing.kept[string(e.pod.UID)] {
		return nil
	}
	return e.fail
}

// dropFailing forgets what was decided over a pod that is gone.
func (a *actor) dropFailing(ctx supervisors.Context, uid string) {
	if _, ok := a.failing.pods[uid]; ok {
		delete(a.failing.pods, uid)
		delete(a.failing.kept, uid)
		a.saveFailing(ctx)
	}
}

// saveFailing writes the checkpoint, one writing at a time.
func (a *actor) saveFailing(ctx supervisors.Context) {
	w, pods := a.disk.failing, maps.Clone(a.failing.pods)
	w.Set(pods)
	a.failing.stale = true
	if a.failing.saving {
		return
	}
	a.failing.saving, a.failing.stale = true, false
	ctx.Do(supervisors.Work{Name: "write the checkpoint of pods that are ended for others", Timeout: saveTimeout,
		Run: func(context.Context) any {
			return failingSaved{pods, w.Flush()}
		}})
}

func (a *actor) failingSaved(ctx supervisors.Context, m failingSaved) {
	again := a.failing.stale
	a.failing.saving, a.failing.stale = false, again || m.problem != nil // with the next sweep
	// Where it cannot be written they are ended all the same: a full disk is no reason for a critical pod to wait.
	a.wrote(ctx, failingPath(a.opts.FinishedPath), "which pods are ended for others cannot be kept on the disk", m.problem)
	for uid := range m.uids {
		if e := a.entries[uid]; !a.failing.kept[uid] && e != nil && e.fail != nil {
			a.failing.kept[uid] = true
			a.renew(ctx, e)
		}
	}
	if again {
		a.saveFailing(ctx)
	}
}
