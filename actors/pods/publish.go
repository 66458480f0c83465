package pods

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/pods/found"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// publishing is what is known of the snapshots.
type publishing struct {
	due      bool                              // one is to be published
	pods     int                               // of the last one
	objects  []messages.ManifestProblem        // of the API server's objects: reported beside the problems of sources
	recorded []messages.ManifestProblem        // reported by Events
	held     []messages.HeldFolder             // folders that are kept, each reported by an Event
	heldSeen map[messages.HeldFolder]time.Time // when each was last reported, without its error
}

// change reports whether a snapshot has to be planned, and when; a burst of changes makes one. A snapshot costs the more the more
// pods there are, and so do their changes: the time between two grows with them, so that a pod's share does not.
func (p *publishing) change() (after time.Duration, plan bool) {
	plan, p.due = !p.due, true
	return publishEvery + time.Duration(p.pods)*publishEach, plan
}

// changed has a new snapshot published soon.
func (a *actor) changed(ctx supervisors.Context) {
	if after, plan := a.publishing.change(); plan {
		ctx.After(after, publish{})
	}
}

func (a *actor) publish(ctx supervisors.Context) {
	a.publishing.due = false
	s := board.Snapshot{At: ctx.Now(), Runtime: a.node.runtime, Life: a.began, Audited: a.unready() == nil, Under: a.node.under,
		Unheard: a.sources.unheard(), Problems: append(a.sources.problems(), a.publishing.objects...),
		Pods: make([]board.Pod, 0, len(a.entries)), Held: a.publishing.held}
	var spared []messages.ManifestProblem
	for _, e := range a.entries {
		ours := e.state == held || e.state == unclaimed && !a.opts.Unheard
		if ours && e.found != nil && e.found.Alive() {
			s.Unclaimed++
		}
		switch {
		case e.hasActor():
			p := e.published()
			if why := a.awaitsRuntime(e); why != nil {
				p.Waiting = why
			}
			p.Held = heldOf(string(e.pod.UID), s.Held)
			s.Pods = append(s.Pods, p)
		case e.state == held:
			s.Pods = append(s.Pods, board.Pod{Pod: e.want.pod, Status: &v1.PodStatus{Phase: v1.PodPending}, Source: e.want.source,
				Phase: string(held), Waiting: e.why})
		case e.state == over && e.deleted():
			s.Over = append(s.Over, board.Pod{Pod: e.want.pod, Status: &e.want.pod.Status, Source: e.want.source,
				Phase: string(over), Waiting: kept(e.want.pod)})
			if !e.keptRecorded && len(e.want.pod.Finalizers) > 0 {
				e.keptRecorded = true
				recordWait(ctx, e.want.pod, *kept(e.want.pod))
			}
		case e.state == unclaimed:
			if manifest := a.spared(e); manifest != "" {
				spared = append(spared, sparedProblem(e, manifest))
			}
		}
	}
	slices.SortFunc(s.Pods, func(x, y board.Pod) int {
		return cmp.Or(strings.Compare(x.Pod.Namespace, y.Pod.Namespace), strings.Compare(x.Pod.Name, y.Pod.Name),
			strings.Compare(string(x.Pod.UID), string(y.Pod.UID)))
	})
	slices.SortFunc(spared, func(x, y messages.ManifestProblem) int { return cmp.Compare(x.Pod, y.Pod) })
	s.Problems = append(s.Problems, spared...)
	a.recordProblems(ctx, s.Problems)
	if problem := a.checkpoints.problem; problem != "" {
		s.Unwritten = []string{problem}
	}
	a.publishing.pods = len(s.Pods)
	a.opts.Board.Publish(s)
}

// recordProblems has an Event written of each manifest that cannot be used, once for what is wrong with it: of its pod where it
// can be told, and of the node otherwise.
func (a *actor) recordProblems(ctx supervisors.Context, now []messages.ManifestProblem) {
	for _, p := range now {
		if p.Warning || slices.Contains(a.publishing.recorded, p) {
			continue
		}
		var node string
		if n := a.opts.Here.Node.Object; n != nil {
			node = n.Name
		}
		e := messages.NodeEvent(node, v1.EventTypeWarning, messages.EventFailedValidation,
			explain.Event("a manifest cannot be used", explain.ProblemText(p)), ctx.Now())
		if namespace, name, named := strings.Cut(p.Pod, "/"); named {
			e.Object = v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: namespace, Name: name}
		}
		ctx.Tell(messages.Events, e)
	}
	a.publishing.recorded = now
}

// kept is why the object of a pod that is over is still there.
func kept(pod *v1.Pod) *messages.Reason {
	r := messages.Reason{Code: messages.ReasonFinalizers, Since: pod.DeletionTimestamp.Time,
		Message: "nothing of the pod is left here; the API server has not removed its object yet"}
	if len(pod.Finalizers) > 0 {
		r.Message = "nothing of the pod is left here; its object is kept by its finalizers: " + strings.Join(pod.Finalizers, ", ")
	}
	return &r
}

// awaitsRuntime is what a pod waits for that has no word of the runtime yet while that is away; nil where it is not so.
func (a *actor) awaitsRuntime(e *entry) *messages.Reason {
	early := e.status == nil || e.phase == "reading" || e.phase == "preparing"
	if e.waiting != nil || e.quarantine != nil || a.node.runtime.Ready || !early {
		return nil
	}
	return new(a.node.runtime.Reason) // which changes
}

func (e *entry) published() board.Pod {
	p := board.Pod{Pod: e.pod, Status: e.status, Source: e.source, Phase: e.phase, Waiting: e.waiting, Quarantine: e.quarantine,
		Failure: e.record.Fail, Holds: e.holds, Cause: e.record.Cause}
	if e.record.Fail != nil {
		p.Cause = e.record.Fail.Cause
	}
	if e.ending != nil {
		p.Ending, p.EndingSince, p.EndingGrace = e.ending.Reason, e.ending.Since, e.grace()
		if e.taken != e.generation {
			p.Waiting = nil // for what it waited before it heard of its end
		}
	}
	return p
}

// fields is what one version of a pod sets that is not supported. It is computed once: it walks the whole spec, and all pods that
// are held are looked at again at each change.
type fields struct {
	of  *v1.Pod
	why *messages.Reason
}

// unsupported is why a pod of the API server cannot be run here as it is meant. A source of manifests refuses such a one, and
// admission one that is for another operating system and has not begun.
func (e *entry) unsupported() *messages.Reason {
	pod := e.want.pod
	foreign := pod.Spec.OS != nil && pod.Spec.OS.Name != v1.Linux
	if e.want.source != messages.APIServer || foreign && (pod.Status.StartTime == nil || final(&pod.Status)) {
		return nil
	}
	if e.fields.of == pod {
		return e.fields.why
	}
	e.fields = fields{of: pod}
	var names []string
	for _, f := range podspec.Unsupported(pod) {
		name := f.Field
		if why := podspec.Explanations[name]; why != "" {
			name += " (" + why + ")"
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		e.fields.why = &messages.Reason{Code: messages.ReasonUnsupported, Permanent: true,
			Message: "the pod waits, since it sets what Playlet does not support yet: " + strings.Join(names, ", ")}
	}
	return e.fields.why
}

// hold lets a pod wait; it is looked at again whenever something changes. Where it is not quiet, what it waits for is logged and
// an Event written of it when that is new, and its status is told for each version of the pod.
func (a *actor) hold(ctx supervisors.Context, e *entry, why messages.Reason, quiet bool) {
	shown := why
	if shown.Since = ctx.Now(); e.why != nil && e.why.Code == why.Code {
		shown.Since = e.why.Since
	}
	e.why, e.quiet = &shown, quiet
	was, pod := e.reported, e.want.pod
	taken := why.Code == messages.ReasonNameTaken || why.Code == messages.ReasonPredecessorEnding
	if taken && e.nameless != why.Code {
		e.nameless = why.Code
		recordWait(ctx, pod, why) // a status under this name would be another pod's
	}
	if quiet || was.pod == pod && was.why == why {
		return
	}
	e.reported.pod, e.reported.why = pod, why
	if was.why != why {
		ctx.Log().Warn("a pod is held", "pod", e.name, "podUID", e.uid, "reason", why.Code, "message", why.Message)
		if e.found == nil && why.Code != messages.ReasonPreempting {
			recordWait(ctx, pod, why)
		}
	}
	a.tellStatus(ctx, e)
}

// tellStatus tells the status of one pod, but for one that no source ever named.
func (a *actor) tellStatus(ctx supervisors.Context, e *entry) {
	if a.opts.Cluster && !e.orphan() {
		ctx.Tell(messages.Status, e.statusWanted())
	}
}

func (a *actor) tellStatuses(ctx supervisors.Context) {
	if !a.opts.Cluster {
		return
	}
	m := messages.PodStatusesWanted{Heard: a.phase == complete}
	for _, e := range a.entries {
		if e.state != unclaimed && (e.state != held || e.why != nil && !e.quiet) && !e.orphan() {
			m.Pods = append(m.Pods, e.statusWanted())
		}
		if a.spared(e) != "" {
			m.Pods = append(m.Pods, messages.PodStatusWanted{UID: e.uid, Pod: found.Pod(e.found), Static: true, Kept: true})
		}
	}
	slices.SortFunc(m.Pods, func(x, y messages.PodStatusWanted) int { return strings.Compare(x.UID, y.UID) })
	ctx.Tell(messages.Status, m)
}

// statusWanted is what the API server is told of a pod. Of one that is held and runs, as another agent left it, nothing is said.
func (e *entry) statusWanted() messages.PodStatusWanted {
	out := messages.PodStatusWanted{UID: e.uid, Pod: e.pod, Static: e.source != messages.APIServer, Status: e.status,
		Over: e.state == over}
	if e.state == held {
		out.Pod, out.Static = e.want.pod, e.want.source != messages.APIServer
		if e.found == nil {
			out.Status = &v1.PodStatus{Phase: v1.PodPending, Reason: e.why.Code, Message: e.why.Message,
				ObservedGeneration: out.Pod.Generation}
		}
	}
	return out
}

// sweep tells those who clean up what must stay.
func (a *actor) sweep(ctx supervisors.Context) {
	heard := a.phase == complete
	wanted := make(map[string]bool, len(a.entries))
	active := map[string]*v1.Pod{}
	unread := a.sources.unread()
	for uid, e := range a.entries {
		// Those that wait for their predecessor stay, too, and the records of finished pods that an unread manifest may name.
		if e.state != unclaimed || a.spared(e) != "" || unread && e.record != (record{}) && !a.sources.gone(uid) {
			wanted[uid] = true
		}
		if e.runs() {
			active[uid] = e.pod
		}
		if e.hasActor() && e.taken != e.generation {
			a.tell(ctx, e)
		}
	}
	a.tellStatuses(ctx)
	a.tellObjects(ctx, true)
	ctx.Tell(messages.Runtime, messages.KeepContainers{At: ctx.Now(), Wanted: wanted, Heard: heard})
	if a.unready() == nil { // what is not known of may run, in a cgroup of its own
		ctx.Tell(messages.Resources, messages.PodCgroupsWanted{UIDs: wanted, Heard: heard, Active: active})
	}
	if heard { // otherwise a pod that is not known of may still run, and need its volumes
		ctx.Tell(messages.Volumes, messages.PodFoldersWanted{UIDs: wanted})
		for _, e := range a.entries {
			if e.state == unclaimed && !wanted[e.uid] { // it was taken away while the agent was not there
				a.keep(ctx, e, record{})
			}
		}
	}
	if a.checkpoints.failed() {
		a.save(ctx)
	}
}

// tellObjects tells which pods use objects of the API server, where that has changed, or again. On a standalone node none does.
func (a *actor) tellObjects(ctx supervisors.Context, again bool) {
	var using []*entry
	for _, e := range a.entries {
		if (e.runs() || e.ends()) && e.record.Final == nil && objectset.OfAPIServer(e.pod) {
			using = append(using, e)
		}
	}
	slices.SortFunc(using, func(x, y *entry) int { return cmp.Compare(x.order, y.order) })
	users := make([]*v1.Pod, len(using))
	for i, e := range using {
		users[i] = e.pod
	}
	if (len(users) > 0 || a.users != nil) && (again || !slices.Equal(users, a.users)) {
		a.users = users
		ctx.Tell(messages.Objects, messages.ObjectsWanted{Pods: users})
	}
}

// Board is where the pods actor publishes; the server reads it.
type Board = board.Board

// Snapshot is what is published: all that the pods actor knows at one time. Immutable.
type Snapshot = board.Snapshot

// Published is one pod of a Snapshot. Immutable.
type Published = board.Pod

// NewBoard is an empty board.
func NewBoard() *Board { return board.New() }
