package pods

import (
	"cmp"
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/finalstatus"
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

// load reads which pods had finished, which are never run again, and which the node had decided to end.
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
			e.kept = r
		}
	}
	a.enterPhase(ctx, auditing)
	a.askAudit(ctx)
	if !m.written {
		a.save(ctx)
	}
	a.reconcile(ctx)
}

// keep has the disk keep this of a pod; the zero record has it keep nothing.
func (a *actor) keep(ctx supervisors.Context, e *entry, r record) {
	if r != e.record {
		if e.record = r; r == (record{}) {
			e.kept = r
		}
		a.save(ctx)
	}
}

// records is what the disk is to have.
func (a *actor) records() map[string]record {
	out := map[string]record{}
	for uid, e := range a.entries {
		if e.record != (record{}) {
			out[uid] = e.record
		}
	}
	return out
}

// save writes what the disk is to have, one writing at a time.
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

// saveDone tells the pods that wait for it that their records are kept. Where they cannot be written, what is to go goes all the
// same, as that makes room on a disk that is full, and no critical pod waits for the end of another. Those that finished by
// themselves say so again, and it is tried again then, and with the next sweep; so is what was allocated to a pod.
func (a *actor) saveDone(ctx supervisors.Context, m saveDone) {
	a.checkpoints.busy = false
	again := m.of != a.checkpoints.saves // they have changed meanwhile, be it to what they were
	var failed *unwritten
	some := errors.As(m.problem, &failed)
	a.tellProblem(ctx, m.problem)
	for uid, e := range a.entries {
		r := m.records[uid]
		unkept := m.problem != nil && (!some || failed.uids[uid])
		if e.record != r || e.kept == r || unkept && !e.ends() &&
			(r.Final != nil || r.Fail == nil && r.Allocated != e.kept.Allocated) {
			continue
		}
		e.kept = r
		e.allocated()
		if e.hasActor() {
			a.renew(ctx, e)
			a.step(ctx, e, &view{now: ctx.Now(), up: !a.node.shutdown})
		}
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

// ended takes the word that nothing of a pod runs any more, or that nothing is left of it, which one that is not to end said in
// an earlier life. Of a deleted one the final status is kept until its object has gone: the API server may not have it yet.
func (a *actor) ended(ctx supervisors.Context, e *entry, m messages.PodEnded) {
	defer a.settles(ctx, e)
	switch {
	case m.Gone && e.state == clearing:
		if e.record.Final == nil { // else it was deleted meanwhile, and said its status before
			a.keep(ctx, e, record{Final: e.failedStatus(m.Status), Fail: e.record.Fail})
		}
		ctx.Stop(e.uid)
	case m.Gone && (e.state == ending || e.state == replacing):
		a.enter(ctx, e, leaving)
		e.status = cmp.Or(m.Status, e.status)
		if m.Status != nil && e.source == messages.APIServer && e.pod.DeletionTimestamp != nil && e.record.Final == nil {
			a.keep(ctx, e, record{Final: m.Status, Fail: e.record.Fail})
		}
		ctx.Stop(e.uid)
	case m.Gone || e.state == leaving:
	case e.record.Final == nil && m.Status != nil:
		status := m.Status
		if e.state == clearing {
			status = e.failedStatus(status)
		}
		a.keep(ctx, e, record{Final: status, Fail: e.record.Fail})
		if e.runs() {
			a.enter(ctx, e, finished)
		}
		a.reconsider(ctx)
	case e.record == e.kept: // the answer was lost
		a.renew(ctx, e)
	case a.checkpoints.failed():
		a.save(ctx)
	}
}

// settles takes that nothing of a pod runs any more.
func (a *actor) settles(ctx supervisors.Context, e *entry) {
	if e.lingers {
		e.lingers = false
		a.reconsider(ctx)
	}
}

// failedStatus is the final status of a pod that the node has ended without its actor.
func (e *entry) failedStatus(s *v1.PodStatus) *v1.PodStatus {
	out := &v1.PodStatus{}
	if s != nil {
		out = s.DeepCopy()
	}
	out.Phase, out.Reason, out.Message = v1.PodFailed, e.record.Fail.Reason, e.record.Fail.Message
	return out
}

// final says that the status is one that a pod never leaves.
func final(s *v1.PodStatus) bool { return s != nil && finalstatus.Final(s.Phase) }
