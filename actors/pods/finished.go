package pods

import (
	"context"
	"maps"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// finishedVersion is the format of the checkpoint: final statuses by UID.
const finishedVersion = 1

type (
	loadDone struct {
		finished       map[string]*v1.PodStatus
		written        bool
		problem        error
		failing        map[string]messages.PodFailure
		failingWritten bool
		failingProblem error
	}
	saveDone struct{ problem error }
)

// load reads which pods had finished by themselves, which are never run again, and which the node had decided to end.
func (a *actor) load(ctx supervisors.Context) {
	d, path := a.disk, a.opts.FinishedPath
	ctx.Do(supervisors.Work{Name: "read the checkpoint of finished pods", Timeout: saveTimeout, Run: func(context.Context) any {
		var out loadDone
		out.finished, out.written, out.problem = recall(d.finished, path, finishedVersion)
		out.failing, out.failingWritten, out.failingProblem = recall(d.failing, failingPath(path), failingVersion)
		return out
	}})
}

func (a *actor) loadDone(ctx supervisors.Context, m loadDone) {
	if m.problem != nil {
		ctx.Log().Error("the checkpoint of finished pods cannot be read; it is made anew, and a pod that had finished may be "+
			"run again",
			"path", a.opts.FinishedPath, "error", m.problem)
	}
	maps.Copy(a.finished, m.finished)
	a.learnFailing(ctx, m)
	a.loaded = true
	if !m.written {
		a.save(ctx)
	}
	if !m.failingWritten {
		a.saveFailing(ctx)
	}
	a.reconcile(ctx)
}

// save writes the checkpoint, one writing at a time.
func (a *actor) save(ctx supervisors.Context) {
	w := a.disk.finished
	w.Set(maps.Clone(a.finished))
	a.unsaved = true
	if a.saving {
		return
	}
	a.saving, a.unsaved = true, false
	ctx.Do(supervisors.Work{Name: "write the checkpoint of finished pods", Timeout: saveTimeout, Run: func(context.Context) any {
		return saveDone{w.Flush()}
	}})
}

func (a *actor) saveDone(ctx supervisors.Context, m saveDone) {
	a.saving = false
	a.wrote(ctx, a.opts.FinishedPath, "what became of pods cannot be kept on the disk", m.problem)
	if m.problem != nil {
		// The pods that wait for the acknowledgement say again that they have ended, and it is tried again then.
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

// ended takes the word that nothing of a pod runs any more.
func (a *actor) ended(ctx supervisors.Context, m messages.PodEnded) {
	e := a.entries[m.UID]
	if e == nil {
		return
	}
	if m.Gone {
		e.gone = true
		a.gone(ctx, e, m.Status)
		ctx.Stop(m.UID)
		return
	}
	e.unanswered = true
	if a.finished[m.UID] == nil || (a.unsaved && !a.saving) {
		a.finished[m.UID] = m.Status
		a.save(ctx)
		a.reconsider(ctx)
	}
	if !a.unsaved && !a.saving { // the acknowledgement waits for the disk
		e.unanswered = false
		a.renew(ctx, e)
	}
}

// unkept says that the final status of a pod, which is known, may not be on the disk yet.
func (a *actor) unkept(uid string) bool { return a.finished[uid] != nil && (a.unsaved || a.saving) }

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
