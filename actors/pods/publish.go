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

// publishState is the state of the snapshots.
type publishState struct {
	due      bool                              // a snapshot is scheduled
	pods     int                               // in the last snapshot
	objects  []messages.ManifestProblem        // of the API server's objects, published beside the problems of sources
	recorded map[messages.ManifestProblem]bool // reported by Events
	held     []messages.HeldFolder             // kept folders, each reported by an Event
	heldSeen map[messages.HeldFolder]time.Time // time of the last report of each, without its error
}

// change reports whether a snapshot has to be scheduled, and the delay. A burst of changes makes one snapshot. The cost of a
// snapshot and the rate of changes grow with the number of pods. The delay grows, too, so that the cost per pod does not.
func (p *publishState) change() (after time.Duration, plan bool) {
	plan, p.due = !p.due, true
	return publishEvery + time.Duration(p.pods)*publishEach, plan
}

// changed schedules a new snapshot.
func (a *actor) changed(ctx supervisors.Context) {
	if after, plan := a.publishing.change(); plan {
		ctx.After(after, publish{})
	}
}

func (a *actor) publish(ctx supervisors.Context) {
	a.publishing.due = false
	s := board.Snapshot{At: ctx.Now(), Runtime: a.node.runtime, Life: a.began, Audited: a.unready() == nil, Under: a.node.under,
		Unheard: a.sources.missing(), Problems: append(a.sources.problems(), a.publishing.objects...),
		Pods: make([]board.Pod, 0, len(a.entries)), Held: a.publishing.held}
	var spared []messages.ManifestProblem
	for _, e := range a.entries {
		ours := e.state == held || e.state == unclaimed && !a.opts.Unheard
		if ours && e.audited != nil && e.audited.Alive() {
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
			s.Pods = append(s.Pods, board.Pod{Pod: e.wanted.pod, Status: &v1.PodStatus{Phase: v1.PodPending},
				Source: e.wanted.source, Phase: string(held), Waiting: e.why})
		case e.state == over && e.deleted():
			s.Over = append(s.Over, board.Pod{Pod: e.wanted.pod, Status: &e.wanted.pod.Status, Source: e.wanted.source,
				Phase: string(over), Waiting: kept(e.wanted.pod)})
			if !e.keptRecorded && len(e.wanted.pod.Finalizers) > 0 {
				e.keptRecorded = true
				recordWait(ctx, e.wanted.pod, *kept(e.wanted.pod))
			}
		case e.state == unclaimed:
			if manifest := a.spared(e); manifest != "" {
				spared = append(spared, sparedProblem(e, manifest))
				s.Spared = append(s.Spared, board.SparedPod{UID: e.uid, Name: e.name, Source: markedBy(e.audited),
					Manifest: manifest})
			}
		}
	}
	slices.SortFunc(s.Pods, func(x, y board.Pod) int {
		return cmp.Or(strings.Compare(x.Pod.Namespace, y.Pod.Namespace), strings.Compare(x.Pod.Name, y.Pod.Name),
			strings.Compare(string(x.Pod.UID), string(y.Pod.UID)))
	})
	slices.SortFunc(spared, func(x, y messages.ManifestProblem) int { return cmp.Compare(x.Pod, y.Pod) })
	slices.SortFunc(s.Spared, func(x, y board.SparedPod) int { return cmp.Compare(x.Name, y.Name) })
	s.Problems = append(s.Problems, spared...)
	a.recordProblems(ctx, s.Problems)
	if problem := a.checkpoints.problem; problem != "" {
		s.Unwritten = []string{problem}
	}
	a.publishing.pods = len(s.Pods)
	a.opts.Board.Publish(s)
}

// recordProblems records one Event per problem of each unusable manifest: of its pod if the name is known, and of the node
// otherwise.
func (a *actor) recordProblems(ctx supervisors.Context, now []messages.ManifestProblem) {
	before := a.publishing.recorded
	a.publishing.recorded = make(map[messages.ManifestProblem]bool, len(now))
	for _, p := range now {
		if a.publishing.recorded[p] = true; p.Warning || before[p] {
			continue
		}
		var node string
		if n := a.opts.LocalNode.Node.Object; n != nil {
			node = n.Name
		}
		e := messages.NodeEvent(node, v1.EventTypeWarning, messages.EventFailedValidation,
			explain.Event("a manifest cannot be used", explain.ProblemText(p)), ctx.Now())
		if namespace, name, named := strings.Cut(p.Pod, "/"); named {
			e.Object = v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: namespace, Name: name}
		}
		ctx.Tell(messages.Events, e)
	}
}

// kept returns the reason for which the object of a pod in the state over still exists.
func kept(pod *v1.Pod) *messages.Reason {
	r := messages.Reason{Code: messages.ReasonFinalizers, Since: pod.DeletionTimestamp.Time,
		Message: "nothing of the pod is left here; the API server has not removed its object yet"}
	if len(pod.Finalizers) > 0 {
		r.Message = "nothing of the pod is left here; its object is kept by its finalizers: " + strings.Join(pod.Finalizers, ", ")
	}
	return &r
}

// awaitsRuntime returns the reason of a pod without any answer of the runtime while that is away, or nil.
func (a *actor) awaitsRuntime(e *entry) *messages.Reason {
	early := e.status == nil || e.phase == "reading" || e.phase == "preparing"
	if e.waiting != nil || e.quarantine != nil || a.node.runtime.Ready || !early {
		return nil
	}
	return new(a.node.runtime.Reason) // a copy, since the reason changes
}

func (e *entry) published() board.Pod {
	p := board.Pod{Pod: e.pod, Status: e.status, Source: e.source, Phase: e.phase, Waiting: e.waiting, Quarantine: e.quarantine,
		Failure: e.record.Fail, Holds: e.holds, Cause: e.record.Cause}
	if e.record.Fail != nil {
		p.Cause = e.record.Fail.Cause
	}
	if e.ending != nil {
		p.Ending, p.EndingSince, p.EndingGrace = e.ending.Reason, e.ending.Since, e.grace()
		if e.ackedGeneration != e.generation {
			p.Waiting = nil // the reason of a wait before the pod took its end
		}
	}
	return p
}

// fields caches the unsupported fields of one version of a pod. The computation walks the whole spec, and all held pods are
// reconsidered at each change.
type fields struct {
	of  *v1.Pod
	why *messages.Reason
}

// unsupported returns the reason for which a pod of the API server cannot run as specified, or nil. Sources of manifests refuse
// such pods, and admission refuses pods for another operating system that have not started.
func (e *entry) unsupported() *messages.Reason {
	pod := e.wanted.pod
	foreign := pod.Spec.OS != nil && pod.Spec.OS.Name != v1.Linux
	if e.wanted.source != messages.APIServer || foreign && (pod.Status.StartTime == nil || final(&pod.Status)) {
		return nil
	}
	if e.fields.of == pod {
		return e.fields.why
	}
	e.fields = fields{of: pod}
	var names []string
	for _, f := range podspec.Unsupported(pod) {
		if !slices.Contains(names, f.Field) {
			names = append(names, f.Field)
		}
	}
	if len(names) > 0 {
		e.fields.why = &messages.Reason{Code: messages.ReasonUnsupported, Permanent: true,
			Message: "the pod waits, since it sets what Playlet does not support yet: " + strings.Join(names, ", ")}
	}
	return e.fields.why
}

// hold makes a pod wait; it is reconsidered at each change. Unless quiet, a new reason is logged and recorded as an Event, and
// the status is sent for each version of the pod.
func (a *actor) hold(ctx supervisors.Context, e *entry, why messages.Reason, quiet bool) {
	shown := why
	if shown.Since = ctx.Now(); e.why != nil && e.why.Code == why.Code {
		shown.Since = e.why.Since
	}
	e.why, e.hidden = &shown, quiet
	was, pod := e.reported, e.wanted.pod
	taken := why.Code == messages.ReasonNameTaken || why.Code == messages.ReasonPredecessorEnding
	if taken && e.nameless != why.Code {
		e.nameless = why.Code
		recordWait(ctx, pod, why) // a status under this name would be the other pod's
	}
	if quiet || was.pod == pod && was.why == why {
		return
	}
	e.reported.pod, e.reported.why = pod, why
	if was.why != why {
		ctx.Log().Warn("a pod is held", "pod", e.name, "podUID", e.uid, "reason", why.Code, "message", why.Message)
		if e.audited == nil && why.Code != messages.ReasonPreempting {
			recordWait(ctx, pod, why)
		}
	}
	a.sendStatus(ctx, e)
}

// sendStatus sends the status of one pod, unless no source ever listed it.
func (a *actor) sendStatus(ctx supervisors.Context, e *entry) {
	if a.opts.Cluster && !e.orphan() {
		ctx.Tell(messages.Status, e.statusWanted())
	}
}

func (a *actor) sendStatuses(ctx supervisors.Context) {
	if !a.opts.Cluster {
		return
	}
	m := messages.PodStatusesWanted{Heard: a.phase == complete}
	for _, e := range a.entries {
		if e.state != unclaimed && (e.state != held || e.why != nil && !e.hidden) && !e.orphan() {
			m.Pods = append(m.Pods, e.statusWanted())
		}
		if a.spared(e) != "" {
			m.Pods = append(m.Pods, messages.PodStatusWanted{UID: e.uid, Pod: found.Pod(e.audited), Static: true, Kept: true})
		}
	}
	slices.SortFunc(m.Pods, func(x, y messages.PodStatusWanted) int { return strings.Compare(x.UID, y.UID) })
	ctx.Tell(messages.Status, m)
}

// statusWanted returns the pod's message to status. A held pod that runs, left by another agent, has no status in it.
func (e *entry) statusWanted() messages.PodStatusWanted {
	out := messages.PodStatusWanted{UID: e.uid, Pod: e.pod, Static: e.source != messages.APIServer, Status: e.status,
		Over: e.state == over || e.released}
	if e.state == held {
		out.Pod, out.Static = e.wanted.pod, e.wanted.source != messages.APIServer
		if e.audited == nil {
			out.Status = &v1.PodStatus{Phase: v1.PodPending, Reason: e.why.Code, Message: e.why.Message,
				ObservedGeneration: out.Pod.Generation}
		}
	}
	return out
}

// sweep sends the lists of pods to keep to the actors that clean up.
func (a *actor) sweep(ctx supervisors.Context) {
	heard := a.phase == complete
	keep := a.keepContainers(ctx)
	wanted, active := keep.Wanted, map[string]*v1.Pod{}
	for uid, e := range a.entries {
		if e.runs() {
			active[uid] = e.pod
		}
		if e.hasActor() && e.ackedGeneration != e.generation {
			a.tell(ctx, e)
		}
	}
	a.sendStatuses(ctx)
	a.sendObjects(ctx, true)
	a.sendHolding(ctx, true)
	ctx.Tell(messages.Runtime, keep)
	if a.unready() == nil { // an unknown pod may run, in a cgroup of its own
		ctx.Tell(messages.Resources, messages.PodCgroupsWanted{UIDs: wanted, Heard: heard, Active: active})
	}
	if heard { // otherwise an unknown pod may still run, and need its volumes
		ctx.Tell(messages.Volumes, messages.PodFoldersWanted{UIDs: wanted})
		for _, e := range a.entries {
			if e.state == unclaimed && !wanted[e.uid] { // it was removed while the agent was away
				a.keep(ctx, e, record{})
			}
		}
	}
	if a.checkpoints.failed() {
		a.save(ctx)
	}
}

// keepContainers returns the pods whose containers stay, and the finished ones that the runtime may forget.
func (a *actor) keepContainers(ctx supervisors.Context) messages.KeepContainers {
	m := messages.KeepContainers{At: ctx.Now(), Wanted: make(map[string]bool, len(a.entries)), Over: map[string]bool{},
		Heard: a.phase == complete}
	unread := a.sources.unread()
	for uid, e := range a.entries {
		// Pods that wait for their predecessor stay, as do records of finished pods that an unread manifest may name.
		if e.state != unclaimed || a.spared(e) != "" || unread && e.record != (record{}) && !a.sources.reportedGone(uid) {
			m.Wanted[uid] = true
		}
		if e.state == finished && a.forgettable(e) {
			m.Over[uid] = true
		}
	}
	return m
}

// forgettable reports whether the runtime may forget how the containers of a finished pod ended: the disk or the API server has
// that. A full disk cannot take it, and the containers may be all that can make room, so they may go without a record.
func (a *actor) forgettable(e *entry) bool {
	return e.saved.Final != nil || a.checkpoints.full ||
		e.wanted != nil && e.wanted.source == messages.APIServer && final(&e.wanted.pod.Status)
}

// sendObjects sends the pods that use objects of the API server, if they have changed or again is set. On a standalone node there
// are none.
func (a *actor) sendObjects(ctx supervisors.Context, again bool) {
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

// Board receives the snapshots of the pods actor; the server reads it.
type Board = board.Board

// Snapshot is the whole state of the pods actor at one time. Immutable.
type Snapshot = board.Snapshot

// PublishedPod is one pod of a Snapshot. Immutable.
type PublishedPod = board.Pod

// NewBoard returns an empty board.
func NewBoard() *Board { return board.New() }
