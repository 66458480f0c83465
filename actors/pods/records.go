package pods

import (
	"cmp"
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/finalstatus"
	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

type (
	loadDone struct {
		records map[string]record
		written bool
		errs    []error
	}
	saveDone struct {
		records map[string]record
		of      uint64 // the number of the save
		problem error
	}
)

// load reads the records: finished pods, which never run again, and pods that the node has decided to end.
func (a *actor) load(ctx supervisors.Context) {
	s := a.checkpoints.store
	ctx.Do(supervisors.Work{Name: "read the checkpoints of pods", Timeout: saveTimeout, Run: func(context.Context) any {
		var out loadDone
		out.records, out.written, out.errs = s.load()
		return out
	}})
}

func (a *actor) loadDone(ctx supervisors.Context, m loadDone) {
	for _, err := range m.errs {
		ctx.Log().Error("a checkpoint of pods cannot be read; a pod that had finished may be run again, and one "+
			"that is ended for another may run on", "error", err)
	}
	for uid, r := range m.records {
		e := a.entry(uid, "", ctx.Now())
		e.record = r
		if m.written {
			e.saved = r
		}
	}
	a.enterPhase(ctx, auditing)
	a.askAudit(ctx)
	if !m.written {
		a.save(ctx)
	}
	a.reconcile(ctx)
}

// keep schedules the write of a pod's record. The zero record removes the file.
func (a *actor) keep(ctx supervisors.Context, e *entry, r record) {
	if r != e.record {
		if e.record = r; r == (record{}) {
			e.saved = r
		}
		a.save(ctx)
	}
}

// records returns the desired content of the disk.
func (a *actor) records() map[string]record {
	out := map[string]record{}
	for uid, e := range a.entries {
		if e.record != (record{}) {
			out[uid] = e.record
		}
	}
	return out
}

// save writes the desired content to the disk, one write at a time.
func (a *actor) save(ctx supervisors.Context) {
	records, w := a.records(), a.checkpoints.writing
	w.Set(records)
	if a.checkpoints.saves++; a.checkpoints.busy {
		return
	}
	a.checkpoints.busy = true
	of := a.checkpoints.saves
	ctx.Do(supervisors.Work{Name: "write the checkpoints of pods", Timeout: saveTimeout, Run: func(context.Context) any {
		return saveDone{records, of, w.Flush()}
	}})
}

// saveDone confirms the records to the pods that wait for them. If a write fails, pods being removed continue all the same, which
// makes room on a full disk, and no critical pod waits for the end of another. Pods that finished by themselves repeat their
// report, which retries the write, as does the next sweep. The same holds for allocations.
func (a *actor) saveDone(ctx supervisors.Context, m saveDone) {
	a.checkpoints.busy = false
	again := m.of != a.checkpoints.saves // the records have changed meanwhile, even if they changed back
	var failed *filesError
	some, finals := errors.As(m.problem, &failed), false
	a.tellProblem(ctx, m.problem)
	a.checkpoints.full = errors.Is(m.problem, atomicfile.ErrNoSpace)
	for uid, e := range a.entries {
		r := m.records[uid]
		unkept := m.problem != nil && (!some || failed.uids[uid])
		if e.record != r || e.saved == r || unkept && !e.ends() &&
			(r.Final != nil || r.Fail == nil && r.Allocated != e.saved.Allocated) {
			finals = finals || a.checkpoints.full && e.state == finished && e.record == r && e.saved != r
			continue
		}
		e.saved = r
		finals = finals || r.Final != nil && e.state == finished
		e.allocated()
		if e.hasActor() {
			a.renew(ctx, e)
			a.step(ctx, e, &view{now: ctx.Now(), up: !a.node.shutdown})
		}
	}
	if finals { // before the next sweep, as a short disk makes room with their containers
		ctx.Tell(messages.Runtime, a.keepContainers(ctx))
	}
	if again {
		a.save(ctx)
	}
}

func (a *actor) tellProblem(ctx supervisors.Context, problem error) {
	now, says := "", "what becomes of pods can be kept on the disk again"
	if problem != nil {
		now = "what became of pods cannot be kept on the disk: " + problem.Error()
		says = "what became of pods cannot be kept on the disk; an agent that is killed now forgets it"
	}
	if now != a.checkpoints.problem {
		ctx.Log().Error(says, "path", a.checkpoints.dir, "error", problem)
		a.checkpoints.problem = now
		a.changed(ctx)
	}
}

// ended handles the report that none of a pod's containers runs, or that its removal is complete. A pod that does not have to end
// may have sent the latter in an earlier life. The final status of a released pod goes to the API server. If its object stays,
// the pod repeats its report, and the status is kept on disk until the object is gone.
func (a *actor) ended(ctx supervisors.Context, e *entry, m messages.PodEnded) {
	defer a.settles(ctx, e)
	switch {
	case m.Gone && e.state == clearing:
		if e.record.Final == nil { // otherwise it was deleted meanwhile, after its status was recorded
			a.keep(ctx, e, record{Final: e.failedStatus(m.Status), Fail: e.record.Fail})
		}
		ctx.Stop(e.uid)
	case m.Gone && (e.state == ending || e.state == replacing):
		a.enter(ctx, e, leaving)
		e.status = cmp.Or(m.Status, e.status)
		if m.Status != nil && e.deleted() && e.record.Final == nil {
			a.keep(ctx, e, record{Final: m.Status, Fail: e.record.Fail})
		}
		ctx.Stop(e.uid)
	case m.Gone || e.state == leaving:
	case m.Released && !e.released && e.state == ending:
		e.released, e.status = true, cmp.Or(m.Status, e.status)
		a.sendStatus(ctx, e)
		if e.objectGone() {
			a.renew(ctx, e)
		}
		a.reconsider(ctx)
	case m.Released && e.objectGone(): // the answer was lost
		a.renew(ctx, e)
	case e.record.Final == nil && (m.Status != nil || e.record.Fail != nil):
		status := m.Status
		if e.state == clearing || status == nil {
			status = e.failedStatus(status)
		}
		a.keep(ctx, e, record{Final: status, Fail: e.record.Fail})
		if e.runs() {
			a.enter(ctx, e, finished)
		}
		a.reconsider(ctx)
	case e.record == e.saved: // the answer was lost
		a.renew(ctx, e)
	case a.checkpoints.failed():
		a.save(ctx)
	}
}

// settles handles the end of a pod's last container.
func (a *actor) settles(ctx supervisors.Context, e *entry) {
	if e.lingers {
		e.lingers = false
		a.reconsider(ctx)
	}
}

// failedStatus returns the final status of a pod that the node has ended without its actor.
func (e *entry) failedStatus(s *v1.PodStatus) *v1.PodStatus {
	out := &v1.PodStatus{}
	if s != nil {
		out = s.DeepCopy()
	}
	out.Phase, out.Reason, out.Message = v1.PodFailed, e.record.Fail.Reason, e.record.Fail.Message
	return out
}

// final reports whether the status is one that a pod never leaves.
func final(s *v1.PodStatus) bool { return s != nil && finalstatus.Final(s.Phase) }
