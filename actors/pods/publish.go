package pods

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// changed has a new snapshot published soon; a burst of changes makes one. A snapshot costs the more the more pods there are,
// and so do their changes: the time between two grows with them, so that a pod's share does not.
func (a *actor) changed(ctx supervisors.Context) {
	if a.dirty {
		return
	}
	a.dirty = true
	ctx.After(publishEvery+time.Duration(a.published)*publishEach, publish{})
}

func (a *actor) publish(ctx supervisors.Context) {
	a.dirty = false
	s := board.Snapshot{At: ctx.Now(), Runtime: a.runtime, Life: a.began, Audited: a.unready() == nil, Under: a.under,
		Pods: make([]board.Pod, 0, len(a.entries))}
	for _, e := range a.entries {
		switch {
		case e.hasActor():
			p := e.published()
			if why := a.awaitsRuntime(e); why != nil {
				p.Waiting = why
			}
			s.Pods = append(s.Pods, p)
		case e.state == held:
			s.Pods = append(s.Pods, board.Pod{Pod: e.want.pod, Status: &v1.PodStatus{Phase: v1.PodPending}, Source: e.want.source,
				Phase: string(held), Waiting: e.why})
		case e.state == over && e.deleted():
			s.Over = append(s.Over, board.Pod{Pod: e.want.pod, Status: &e.want.pod.Status, Source: e.want.source,
				Phase: string(over), Waiting: kept(e.want.pod)})
			if !e.keptTold && len(e.want.pod.Finalizers) > 0 {
				e.keptTold = true
				recordWait(ctx, e.want.pod, messages.ReasonFinalizers, kept(e.want.pod).Message)
			}
		}
	}
	slices.SortFunc(s.Pods, func(x, y board.Pod) int {
		return cmp.Or(strings.Compare(x.Pod.Namespace, y.Pod.Namespace), strings.Compare(x.Pod.Name, y.Pod.Name),
			strings.Compare(string(x.Pod.UID), string(y.Pod.UID)))
	})
	for _, src := range a.opts.Sources {
		w, ok := a.lists[src]
		if !ok {
			s.Unheard = append(s.Unheard, src)
		}
		s.Problems = append(append(s.Problems, w.Problems...), a.unknown[src].Problems...)
	}
	s.Problems = append(s.Problems, a.objectProblems...)
	a.recordProblems(ctx, s.Problems)
	if a.unwritten != "" {
		s.Unwritten = []string{a.unwritten}
	}
	a.published = len(s.Pods)
	a.opts.Board.Publish(s)
}

// recordProblems has an Event written of each manifest that cannot be used, once for what is wrong with it: of its pod where it
// can be told, and of the node otherwise.
func (a *actor) recordProblems(ctx supervisors.Context, now []messages.ManifestProblem) {
	for _, p := range now {
		if slices.Contains(a.problems, p) {
			continue
		}
		var node string
		if n := a.opts.Here.Object; n != nil {
			node = n.Name
		}
		e := messages.NodeEvent(node, v1.EventTypeWarning, messages.EventFailedValidation,
			explain.Event("a manifest cannot be used", explain.ProblemText(p)), ctx.Now())
		if namespace, name, named := strings.Cut(p.Pod, "/"); named {
			e.Object = v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: namespace, Name: name}
		}
		ctx.Tell(messages.Events, e)
	}
	a.problems = now
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
	if e.waiting != nil || e.quarantine != nil || a.runtime.Ready || !early {
		return nil
	}
	return new(a.runtime.Reason) // which changes
}

func (e *entry) published() board.Pod {
	p := board.Pod{Pod: e.pod, Status: e.status, Source: e.source, Phase: e.phase, Waiting: e.waiting, Quarantine: e.quarantine,
		Failure: e.record.Fail}
	if e.ending != nil {
		p.Ending, p.EndingSince, p.EndingGrace = e.ending.Reason, e.ending.Since, e.grace()
	}
	return p
}
