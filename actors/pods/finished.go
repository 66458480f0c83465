package pods

import (
	"context"
	"errors"
	"io/fs"
	"maps"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/atomicfile"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// finishedVersion is the format of the checkpoint: final statuses by UID.
const finishedVersion = 1

type (
	loadDone struct {
		finished       map[string]*v1.PodStatus
		problem        error
		failing        map[string]messages.PodFailure
		failingProblem error
	}
	saveDone struct{ problem error }
)

// load reads which pods had finished by themselves, which are never run again, and which the node had decided to end.
func (a *actor) load(ctx supervisors.Context) {
	path, failing := a.opts.FinishedPath, failingPath(a.opts)
	ctx.Do(supervisors.Work{Name: "read the checkpoint of finished pods", Timeout: saveTimeout, Run: func(context.Context) any {
		finished := map[string]*v1.PodStatus{}
		err := atomicfile.Load(path, finishedVersion, &finished)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // none has finished yet
		}
		out := loadDone{finished: finished, problem: err}
		out.failing, out.failingProblem = loadFailing(failing)
		return out
	}})
}

func (a *actor) loadDone(ctx supervisors.Context, m loadDone) {
	if m.problem != nil {
		ctx.Log().Error("the checkpoint of finished pods cannot be read; it is made anew, and a pod that had finished may be run again",
			"path", a.opts.FinishedPath, "error", m.problem)
	}
	maps.Copy(a.finished, m.finished)
	a.learnFailing(ctx, m)
	a.loaded = true
	a.reconcile(ctx)
}

// save writes the checkpoint, one writing at a time.
func (a *actor) save(ctx supervisors.Context) {
	a.unsaved = true
	if a.saving {
		return
	}
	a.saving, a.unsaved = true, false
	path, finished := a.opts.FinishedPath, maps.Clone(a.finished)
	ctx.Do(supervisors.Work{Name: "write the checkpoint of finished pods", Timeout: saveTimeout, Run: func(context.Context) any {
		return saveDone{atomicfile.Save(path, finishedVersion, finished)}
	}})
}

func (a *actor) saveDone(ctx supervisors.Context, m saveDone) {
	a.saving = false
	if m.problem != nil {
		// The pods that wait for the acknowledgement say again that they have ended, and it is tried again then.
		ctx.Log().Error("the checkpoint of finished pods cannot be written", "path", a.opts.FinishedPath, "error", m.problem)
		a.unsaved = true
		a.acknowledge(ctx, func(e *entry) bool { return e.ending != nil }) // what is to go makes room on a disk that is full
		return
	}
	if a.unsaved {
		a.save(ctx)
		return
	}
	a.acknowledge(ctx, func(*entry) bool { return true })
}

// acknowledge tells those of the pods that wait for it that their final status is kept.
func (a *actor) acknowledge(ctx supervisors.Context, which func(*entry) bool) {
	for uid, e := range a.entries {
		if e.unanswered && a.finished[uid] != nil && !e.gone && which(e) {
			e.unanswered = false
			a.renew(ctx, e)
		}
	}
}

// gone takes the word that nothing is left of a pod. Of a deleted one the final status is kept until its object has gone, on
// disk too: the API server may not have it yet.
func (a *actor) gone(ctx supervisors.Context, e *entry, final *v1.PodStatus) {
	if final != nil {
		e.status = final
	}
	if e.source != messages.APIServer || e.pod.DeletionTimestamp == nil || final == nil || a.finished[string(e.pod.UID)] != nil {
		return
	}
	a.finished[string(e.pod.UID)] = final
	a.save(ctx)
}
