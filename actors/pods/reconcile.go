package pods

import (
	"maps"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// want is one pod as a source wants it.
type want struct {
	pod    *v1.Pod
	source messages.Address
}

// merge is what all sources together want, by UID. Where two name the same UID, the one configured first is heard.
func (a *actor) merge() (map[string]want, []want) {
	byUID := map[string]want{}
	var ordered []want
	for _, s := range a.opts.Sources {
		for _, p := range a.wishes[s].Pods {
			if _, ok := byUID[string(p.UID)]; ok {
				continue
			}
			w := want{p, s}
			byUID[string(p.UID)] = w
			ordered = append(ordered, w)
		}
	}
	return byUID, ordered
}

// reconcile compares what is wanted with what is there.
func (a *actor) reconcile(ctx supervisors.Context) {
	a.changed(ctx)
	if !a.loaded || a.audit == nil {
		return
	}
	if !a.complete && a.heard() { // from now on it is known what must stay
		a.complete = true
		defer a.sweep(ctx)
	}
	defer a.tellObjects(ctx, false)
	byUID, ordered := a.merge()
	a.dropOver(ctx, byUID)
	a.endOrphans(ctx, byUID)
	names := a.endUnwanted(ctx, byUID)
	found := a.foundNames(byUID)
	var fresh []want
	for _, w := range ordered {
		uid := string(w.pod.UID)
		e := a.entries[uid]
		switch {
		case a.over[uid] != nil:
			// Nothing is left of it, and its object will go.
		case e == nil && deleted(w):
			a.beginEnd(ctx, w)
		case e == nil && a.unsupported(w) != nil:
			a.holds(ctx, w, *a.unsupported(w))
		case e == nil && names[fullName(w.pod)]:
			// It waits for its predecessor of the same name; forget calls again.
		case e == nil && len(found[fullName(w.pod)]) > 0 && !slices.Contains(found[fullName(w.pod)], uid):
			// One of that name runs whose turn comes first, or of which it is not known yet whether it is wanted.
		case e == nil:
			names[fullName(w.pod)] = true
			fresh = append(fresh, w)
		case e.ending != nil:
			// Wanted again while it ends: it is made anew when nothing is left of it.
			a.endAgain(ctx, e, w)
		case deleted(w):
			e.pod = w.pod
			a.end(ctx, e, deletion(ctx, w.pod))
		case e.pod != w.pod:
			e.pod, e.source = w.pod, w.source
			a.renew(ctx, e)
		}
	}
	a.admitNew(ctx, fresh)
}

// endUnwanted ends the pods that no source wants, and returns the full names that are taken.
func (a *actor) endUnwanted(ctx supervisors.Context, byUID map[string]want) map[string]bool {
	successors := map[string]bool{}
	for _, w := range byUID {
		successors[fullName(w.pod)] = true
	}
	names := make(map[string]bool, len(a.entries))
	for _, uid := range slices.Sorted(maps.Keys(a.entries)) {
		e := a.entries[uid]
		names[fullName(e.pod)] = true
		_, wanted := byUID[uid]
		if !wanted && e.ending != nil {
			a.vanished(ctx, e)
		}
		if wanted || e.ending != nil {
			continue
		}
		reason := "no source wants it any more"
		if successors[fullName(e.pod)] {
			reason = "a changed manifest takes its place"
		}
		a.end(ctx, e, messages.Ending{Reason: reason, Since: ctx.Now()})
	}
	return names
}

func (a *actor) end(ctx supervisors.Context, e *entry, why messages.Ending) {
	e.ending = &why
	ctx.Log().Info("ending pod", "pod", fullName(e.pod), "podUID", e.pod.UID, "why", why.Reason)
	a.renew(ctx, e)
	a.replace(ctx, e)
}

func (a *actor) admit(ctx supervisors.Context, w want) {
	a.order++
	a.decided(w)
	uid := string(w.pod.UID)
	delete(a.holding, uid)
	a.entries[uid] = &entry{pod: w.pod, source: w.source, order: a.order, turn: 1, unanswered: a.unkept(uid)}
	a.failsOn(ctx, a.entries[uid])
	ctx.Log().Info("new pod", "pod", fullName(w.pod), "podUID", uid, "source", w.source)
	ctx.Spawn(uid)
}

// audited takes the list of all pods that the runtime knows of.
func (a *actor) audited(ctx supervisors.Context, m messages.RuntimeAudited) {
	if m.ReadAt.Before(a.began) {
		return // on its way to an earlier life of this actor
	}
	a.audit = &m
	for _, f := range m.Pods {
		a.named(f.UID, orphan(f))
	}
	for uid, at := range a.goneAt {
		if at.Before(m.ReadAt) {
			delete(a.goneAt, uid)
		}
	}
	a.reconcile(ctx)
}

// endOrphans ends what runs of pods that no source wants, once every source has been heard.
func (a *actor) endOrphans(ctx supervisors.Context, byUID map[string]want) {
	told := a.told()
	for _, f := range a.unclaimed() {
		if _, wanted := byUID[f.UID]; wanted || !told && !a.ofHeardSource(f) || a.opts.Unheard && !a.own(f) {
			continue
		}
		a.order++
		e := &entry{pod: orphan(f), order: a.order, turn: 1, unanswered: a.unkept(f.UID), ending: &messages.Ending{
			Reason: "it was found running and no source wants it", Since: ctx.Now(), Orphan: true,
		}}
		e.claim = foundClaim(f)
		a.entries[f.UID] = e
		ctx.Log().Info("ending pod", "pod", fullName(e.pod), "podUID", f.UID, "why", e.ending.Reason)
		ctx.Spawn(f.UID)
	}
}

// unclaimed are the pods that the runtime has and that have no entry.
func (a *actor) unclaimed() []messages.PodFacts {
	var out []messages.PodFacts
	for _, f := range a.audit.Pods {
		if _, gone := a.goneAt[f.UID]; !gone && a.entries[f.UID] == nil {
			out = append(out, f)
		}
	}
	return out
}

func (a *actor) own(f messages.PodFacts) bool {
	return a.opts.Own != "" && slices.ContainsFunc(f.Sandboxes,
		func(s messages.SandboxFact) bool { return s.Source == a.opts.Own })
}

// foundNames are the UIDs by full name of pods that run, without an entry, and may yet be adopted: they are wanted, or a
// source that may want them has not been heard. No other pod of such a name starts beside one.
func (a *actor) foundNames(byUID map[string]want) map[string][]string {
	out := map[string][]string{}
	for _, f := range a.unclaimed() {
		if _, wanted := byUID[f.UID]; wanted || !a.told() && !a.ofHeardSource(f) {
			out[f.Namespace+"/"+f.Name] = append(out[f.Namespace+"/"+f.Name], f.UID)
		}
	}
	return out
}

// orphan is a pod made from what the runtime says of it: enough to end it gracefully. It names no containers; those
// found carry their hooks in annotations.
func orphan(f messages.PodFacts) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: f.Name, Namespace: f.Namespace, UID: types.UID(f.UID)}}
	grace := int64(-1)
	for _, c := range f.Containers {
		for _, key := range []string{cri.AnnotationDeletionGracePeriod, cri.AnnotationTerminationGracePeriod} {
			if n, err := strconv.ParseInt(c.Annotations[key], 10, 64); err == nil {
				grace = max(grace, n)
				break
			}
		}
	}
	if grace >= 0 {
		p.Spec.TerminationGracePeriodSeconds = &grace
	}
	return p
}

// named tells the name of a pod, for the log.
func (a *actor) named(uid string, pod *v1.Pod) {
	if a.opts.Named != nil {
		a.opts.Named(uid, fullName(pod))
	}
}

func fullName(p *v1.Pod) string { return p.Namespace + "/" + p.Name }
