package pods

import (
	"cmp"
	"slices"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/supervisors"
)

// changed has a new snapshot published soon; a burst of changes makes one.
func (a *actor) changed(ctx supervisors.Context) {
	if a.dirty {
		return
	}
	a.dirty = true
	ctx.After(publishEvery, publish{})
}

func (a *actor) publish(ctx supervisors.Context) {
	a.dirty = false
	s := board.Snapshot{At: ctx.Now(), Runtime: a.runtime, Pods: make([]board.Pod, 0, len(a.entries))}
	for _, e := range a.entries {
		p := board.Pod{Pod: e.pod, Status: e.status, Source: e.source, Phase: e.phase, Waiting: e.waiting, Quarantine: e.jail}
		if e.ending != nil {
			p.Ending = e.ending.Reason
		}
		s.Pods = append(s.Pods, p)
	}
	slices.SortFunc(s.Pods, func(x, y board.Pod) int {
		return cmp.Or(cmp.Compare(x.Pod.Namespace, y.Pod.Namespace), cmp.Compare(x.Pod.Name, y.Pod.Name), cmp.Compare(x.Pod.UID, y.Pod.UID))
	})
	for _, src := range a.opts.Sources {
		w, ok := a.wishes[src]
		if !ok {
			s.Unheard = append(s.Unheard, src)
		}
		s.Problems = append(s.Problems, w.Problems...)
	}
	a.opts.Board.Publish(s)
}
