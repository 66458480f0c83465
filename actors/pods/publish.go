package pods

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
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
	ctx.After(publishEvery+time.Duration(len(a.entries))*publishEach, publish{})
}

func (a *actor) publish(ctx supervisors.Context) {
	a.dirty = false
	s := board.Snapshot{At: ctx.Now(), Runtime: a.runtime, Life: a.began, Audited: a.loaded && a.audit != nil,
		Pods: make([]board.Pod, 0, len(a.entries))}
	for _, e := range a.entries {
		p := board.Pod{Pod: e.pod, Status: e.status, Source: e.source, Phase: e.phase, Waiting: e.waiting, Quarantine: e.jail}
		if e.ending != nil {
			p.Ending, p.EndingSince, p.EndingGrace = e.ending.Reason, e.ending.Since, e.ending.Grace
			if p.EndingGrace == nil {
				p.EndingGrace = e.pod.Spec.TerminationGracePeriodSeconds
			}
		}
		s.Pods = append(s.Pods, p)
	}
	s.Pods = append(s.Pods, a.held()...)
	slices.SortFunc(s.Pods, func(x, y board.Pod) int {
		return cmp.Or(cmp.Compare(x.Pod.Namespace, y.Pod.Namespace), cmp.Compare(x.Pod.Name, y.Pod.Name),
			cmp.Compare(x.Pod.UID, y.Pod.UID))
	})
	for _, src := range a.opts.Sources {
		w, ok := a.wishes[src]
		if !ok {
			s.Unheard = append(s.Unheard, src)
		}
		s.Problems = append(append(s.Problems, w.Problems...), a.unknown[src].Problems...)
	}
	s.Problems = append(s.Problems, a.objectProblems...)
	s.Unwritten = slices.Sorted(maps.Values(a.unwritten))
	a.opts.Board.Publish(s)
}

// held are the pods that are wanted and may not start yet.
func (a *actor) held() []board.Pod {
	_, ordered := a.merge()
	var out []board.Pod
	for _, w := range ordered {
		if uid := string(w.pod.UID); a.entries[uid] != nil || a.over[uid] != nil {
			continue
		}
		why, waits := a.waits[string(w.pod.UID)]
		if !waits {
			why = a.namesake(w)
		}
		switch lacking := a.unsupported(w); {
		case lacking != nil:
			why = *lacking
		case !a.loaded:
			why = messages.Reason{Code: "AgentStarting", Message: "the agent is starting"}
		case a.audit == nil:
			why = a.runtime.Reason
			if why.Code == "" {
				why = messages.Reason{Code: messages.ReasonRuntimeUnavailable,
					Message: "the container runtime has not said yet what runs"}
			}
		}
		out = append(out, board.Pod{Pod: w.pod, Status: &v1.PodStatus{Phase: v1.PodPending}, Source: w.source, Phase: "held",
			Waiting: &why})
	}
	return out
}

// namesake says why a pod waits for another of its name.
func (a *actor) namesake(w want) messages.Reason {
	for _, e := range a.entries {
		if fullName(e.pod) != fullName(w.pod) {
			continue
		}
		if e.ending == nil {
			return messages.Reason{Code: "NameTaken", Message: fmt.Sprintf(
				"%s wants a pod of the same name, which runs: remove one of the two", e.source)}
		}
		return messages.Reason{Code: "PredecessorEnding", Message: "a pod of the same name is still ending"}
	}
	return messages.Reason{Code: "PredecessorFound",
		Message: "a pod of the same name was found running, and not every source has said yet whether it is wanted"}
}
