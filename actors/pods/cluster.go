package pods

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// overPod is a pod of the API server that was deleted, and of which nothing is left here: its object is there until the API
// server is told so.
type overPod struct {
	pod    *v1.Pod
	status *v1.PodStatus
}

// vanishedGrace is what is left, in seconds, to a pod that ends already when its object goes: somebody forced its deletion,
// which asks for a grace period of 0, and a pod has 1 s at least.
const vanishedGrace = 1

// deleted says that the API server asks for the pod's end.
func deleted(w want) bool { return w.source == messages.APIServer && w.pod.DeletionTimestamp != nil }

// deletion is the end that the pod's deletion asks for.
func deletion(ctx supervisors.Context, p *v1.Pod) messages.Ending {
	return messages.Ending{Reason: "it was deleted", Since: ctx.Now(), Grace: p.DeletionGracePeriodSeconds}
}

// beginEnd ends a deleted pod that has no entry yet: nothing of it is started, and what is found of it is ended.
func (a *actor) beginEnd(ctx supervisors.Context, w want) {
	a.admit(ctx, w)
	end := deletion(ctx, w.pod)
	a.entries[string(w.pod.UID)].ending = &end
}

// endAgain takes a change of a pod that ends already: a grace period can only become shorter.
func (a *actor) endAgain(ctx supervisors.Context, e *entry, w want) {
	if e.pod == w.pod || !deleted(w) || e.gone {
		return
	}
	e.pod = w.pod
	if g := w.pod.DeletionGracePeriodSeconds; g != nil {
		e.shorten(*g)
	}
	a.renew(ctx, e)
}

// shorten gives the pod's end this grace period, in seconds, where that is less than it has. It reports whether it is.
func (e *entry) shorten(grace int64) bool {
	has := e.ending.Grace
	if has == nil {
		has = e.pod.Spec.TerminationGracePeriodSeconds
	}
	if has != nil && *has <= grace {
		return false
	}
	end := *e.ending
	end.Grace = &grace
	e.ending = &end
	return true
}

// vanished hurries the end of a pod whose object has gone meanwhile.
func (a *actor) vanished(ctx supervisors.Context, e *entry) {
	if e.source == messages.APIServer && !e.gone && e.pod.DeletionTimestamp != nil && e.shorten(vanishedGrace) {
		ctx.Log().Info("the deletion of a pod was forced", "pod", fullName(e.pod), "podUID", e.pod.UID)
		a.renew(ctx, e)
	}
}

// laidOver keeps a deleted pod of which nothing is left, for as long as its object is there. It reports whether it is.
func (a *actor) laidOver(ctx supervisors.Context, e *entry) bool {
	byUID, _ := a.merge()
	uid := string(e.pod.UID)
	w, wanted := byUID[uid]
	if !wanted || !deleted(w) {
		return false
	}
	a.over[uid] = &overPod{w.pod, e.status}
	a.tellStatus(ctx, a.over[uid].wanted())
	return true
}

// dropOver forgets the pods that are over or held and that no source names any more, and those that are over and not deleted,
// since the API server was set back to before: these begin anew. The final status of one that is over goes with it: its source
// was heard, and nothing of it is left that could be taken for running. Others may yet be named by a source that was not heard;
// the sweep has those.
func (a *actor) dropOver(ctx supervisors.Context, byUID map[string]want) {
	anew := false
	for uid := range a.over {
		w, wanted := byUID[uid]
		if wanted && deleted(w) {
			continue
		}
		delete(a.over, uid)
		if a.finished[uid] != nil {
			delete(a.finished, uid)
			a.unsaved = true // with the next sweep
			anew = anew || wanted
		}
	}
	if anew { // the agent's next life must not take what runs by then for what was over
		a.save(ctx)
	}
	for uid := range a.holding {
		if _, wanted := byUID[uid]; !wanted {
			delete(a.holding, uid)
		}
	}
}

// decided notes that a pod is over which the API server calls Succeeded or Failed, and of which nothing is known here: it
// is not run again.
func (a *actor) decided(w want) {
	uid := string(w.pod.UID)
	final := w.pod.Status.Phase == v1.PodSucceeded || w.pod.Status.Phase == v1.PodFailed
	if w.source == messages.APIServer && final && a.finished[uid] == nil {
		a.finished[uid] = &w.pod.Status
		a.unsaved = true // with the next sweep: the API server has it, too
	}
}

// unsupported is why a pod of the API server cannot be run here as it is meant. A source of manifests refuses such a one, and
// admission one that is for another operating system and has not begun.
func (a *actor) unsupported(w want) *messages.Reason {
	if w.source != messages.APIServer || w.pod.DeletionTimestamp != nil || foreign(w.pod) &&
		(w.pod.Status.StartTime == nil || ended(&w.pod.Status)) {
		return nil
	}
	return a.unsupportedFields(w.pod)
}

// fieldsOf is what unsupportedFields found in one version of a pod.
type fieldsOf struct {
	pod *v1.Pod
	why *messages.Reason
}

// unsupportedFields is unsupported by the fields of the pod alone. It is computed once for each version of a pod: it walks the
// whole spec, and all pods that are held are published at each change.
func (a *actor) unsupportedFields(pod *v1.Pod) *messages.Reason {
	if known, ok := a.fields[pod.UID]; ok && known.pod == pod {
		return known.why
	}
	if len(a.fields) > 2*maxFields {
		clear(a.fields) // of pods that are gone; those that are there are computed anew
	}
	why := a.findUnsupported(pod)
	a.fields[pod.UID] = fieldsOf{pod, why}
	return why
}

// maxFields is how many pods a node has at most for unsupportedFields to keep what it found.
const maxFields = 2000

func (a *actor) findUnsupported(pod *v1.Pod) *messages.Reason {
	var names []string
	for _, e := range podspec.Unsupported(pod, a.opts.Here.IsDevice) {
		if !slices.Contains(names, e.Field) {
			names = append(names, e.Field)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return &messages.Reason{
		Code: messages.ReasonUnsupported, Permanent: true,
		Message: "the pod waits, since it sets what Playlet does not support yet: " + strings.Join(names, ", "),
	}
}

// foreign says that a pod is for another operating system.
func foreign(pod *v1.Pod) bool { return pod.Spec.OS != nil && pod.Spec.OS.Name != v1.Linux }

// isFound says that the runtime has something of a pod that has no entry.
func (a *actor) isFound(uid string) bool {
	return a.audit != nil && slices.ContainsFunc(a.audit.Pods, func(f messages.PodFacts) bool { return f.UID == uid })
}

// holds tells the status of a pod that is held, when that is new, and has an Event written of one that waits,
// when the reason is.
func (a *actor) holds(ctx supervisors.Context, w want, why messages.Reason) {
	uid := string(w.pod.UID)
	was := a.holding[uid]
	if was == w.pod {
		return
	}
	a.holding[uid] = w.pod
	if !a.isFound(uid) && (was == nil || a.unsupported(want{was, w.source}).Message != why.Message) {
		tellEvent(ctx, w.pod, why.Code, why.Message)
	}
	ctx.Log().Warn("a pod is not run", "pod", fullName(w.pod), "podUID", uid, "reason", why.Code, "message", why.Message)
	a.tellStatus(ctx, a.heldStatus(w, why))
}

// heldStatus is what the API server is told of a pod that is held. Of one that runs, as another agent left it, nothing is
// said.
func (a *actor) heldStatus(w want, why messages.Reason) messages.PodStatusWanted {
	out := messages.PodStatusWanted{UID: string(w.pod.UID), Pod: w.pod, Static: w.source != messages.APIServer}
	if !a.isFound(out.UID) {
		out.Status = &v1.PodStatus{Phase: v1.PodPending, Reason: why.Code, Message: why.Message,
			ObservedGeneration: w.pod.Generation}
	}
	return out
}

// tellStatus tells the status of one pod.
func (a *actor) tellStatus(ctx supervisors.Context, m messages.PodStatusWanted) {
	if a.opts.Cluster {
		ctx.Tell(messages.Status, m)
	}
}

// tellStatuses tells those of all pods.
func (a *actor) tellStatuses(ctx supervisors.Context) {
	if !a.opts.Cluster {
		return
	}
	m := messages.PodStatusesWanted{Heard: a.heard() && a.loaded && a.audit != nil}
	for _, e := range a.entries {
		if e.ending == nil || !e.ending.Orphan {
			m.Pods = append(m.Pods, e.wanted())
		}
	}
	for _, o := range a.over {
		m.Pods = append(m.Pods, o.wanted())
	}
	_, ordered := a.merge()
	for _, w := range ordered {
		uid := string(w.pod.UID)
		if a.entries[uid] != nil || a.over[uid] != nil {
			continue
		}
		why := a.unsupported(w)
		if waits, ok := a.waits[uid]; ok && why == nil && waits.Code != messages.ReasonNodeUnknown {
			why = &waits
		}
		if why != nil {
			m.Pods = append(m.Pods, a.heldStatus(w, *why))
		}
	}
	slices.SortFunc(m.Pods, func(x, y messages.PodStatusWanted) int { return strings.Compare(x.UID, y.UID) })
	ctx.Tell(messages.Status, m)
}

func (e *entry) wanted() messages.PodStatusWanted {
	return messages.PodStatusWanted{UID: string(e.pod.UID), Pod: e.pod, Static: e.source != messages.APIServer, Status: e.status}
}

func (o *overPod) wanted() messages.PodStatusWanted {
	return messages.PodStatusWanted{UID: string(o.pod.UID), Pod: o.pod, Status: o.status, Over: true}
}

// ofHeardSource says that a pod that was found came from a source that was heard since, by the mark on its sandboxes: whether
// it is wanted is known then, whatever the others will say. So no pod of a manifest waits for an API server, which may be
// the very pod.
func (a *actor) ofHeardSource(f messages.PodFacts) bool {
	for _, s := range f.Sandboxes {
		source, ok := marks[s.Source]
		if _, heard := a.wishes[source]; !ok || !heard {
			return false
		}
	}
	return len(f.Sandboxes) > 0
}

// marks are the sources by what they write into the annotation kubernetes.io/config.source.
var marks = map[string]messages.Address{"file": messages.File, "http": messages.URL, "submit": messages.Submit,
	"api": messages.APIServer}

// last is the newest status that is known of a pod: that which its actor told, or else the API server's.
func (e *entry) last() *v1.PodStatus {
	if e.status == nil && e.source == messages.APIServer {
		return &e.pod.Status
	}
	return e.status
}
