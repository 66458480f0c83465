package pod

import (
	"slices"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// probing is what the pod knows of its probes. The prober runs them; the pod decides what follows from a result.
type probing struct {
	generation uint64
	sent       *messages.WatchProbes // sent last; nil when the prober knows of none
	heard      uint64                // the sequence of the latest answer,
	heardAt    time.Time             // and when it came
}

// endUnfit ends a container whose probe failed, with the grace period of the probe if it has one (KEP-2238). The strategy
// decides about the restart.
func (m *Machine) endUnfit(c *known.Container, kind messages.ProbeKind) {
	grace := m.Grace()
	if s := messages.Probe(c.Spec, kind).TerminationGracePeriodSeconds; s != nil {
		grace = podspec.Grace(*s)
	}
	m.stopContainer(c, grace, messages.Cause{Code: messages.CauseProbeFailed, Name: string(kind),
		Detail: string(translate.RestartPolicy(&m.Pod.Spec, c.Spec))})
}

// runs are the probes of a container that are to run now. A startup probe comes before the others; a pod that is to end is
// asked only whether it is ready.
func (m *Machine) runs(c *known.Container) []messages.ProbeKind {
	ends := !m.live() || c.Stage() == messages.StageStopping
	switch {
	case !c.Running(), !c.HookEnded(), !c.HasStarted() && ends:
		return nil
	case !c.HasStarted():
		return []messages.ProbeKind{messages.Startup}
	}
	var out []messages.ProbeKind
	if c.Spec.ReadinessProbe != nil {
		out = append(out, messages.Readiness)
	}
	if c.Spec.LivenessProbe != nil && !ends {
		out = append(out, messages.Liveness)
	}
	return out
}

// probes lists all containers to be probed.
func (m *Machine) probes() messages.WatchProbes {
	w := messages.WatchProbes{UID: m.uid, Pod: m.Pod, IPs: m.IPs(), Order: m.Wanted.Order}
	if m.phase == Cleaning || m.phase == Finished {
		return w
	}
	for _, c := range m.Containers {
		f := c.Newest()
		if !known.Probed(c.Spec) || f == nil || f.State == messages.ContainerCreated || (m.phase == Terminating && !c.Running()) {
			continue
		}
		w.Containers = append(w.Containers, messages.WatchedContainer{
			Spec: c.Spec, ID: f.ID, StartedAt: f.StartedAt, Run: m.runs(c), Known: c.Results(),
		})
	}
	return w
}

// watch sends the prober what is to be probed when that has changed, and again while there is no answer.
func (m *Machine) watch() {
	if m.Wanted == nil || !m.read || (m.phase == Finished && m.probing.sent == nil) {
		return
	}
	w := m.probes()
	if m.probing.sent == nil && len(w.Containers) == 0 && m.phase != Cleaning {
		return
	}
	if m.probing.sent == nil || !sameProbes(m.probing.sent, &w) {
		m.answered("probes", "")
		// Larger than any of an earlier life, too: what was said to that one is not taken for the answer.
		m.probing.generation = max(m.probing.generation+1, uint64(max(m.now.UnixNano(), 0)))
		m.probing.sent = &w
	}
	if m.probing.heard == m.probing.generation || !m.due("probes", "", m.Set.AnswerTimeout) {
		return
	}
	again := *m.probing.sent
	again.Generation = m.probing.generation
	m.emit(Tell{messages.Prober, again})
}

// watchAnew has what is to be probed sent again, to a prober that knows of none.
func (m *Machine) watchAnew() {
	m.probing.sent = nil
	m.answered("probes", "")
}

// doubtProber has the same sent again at a reading when the prober has not been heard for a while: it may have forgotten the pod,
// and the word of that be lost. What was sent is still known, as a prober that has not forgotten has to be told of an end.
func (m *Machine) doubtProber() {
	p := &m.probing
	if p.sent != nil && len(p.sent.Containers) > 0 && p.heard == p.generation && !m.now.Before(p.heardAt.Add(reportAgain)) {
		p.generation++
		m.answered("probes", "")
	}
}

func sameProbes(a, b *messages.WatchProbes) bool {
	return slices.Equal(a.IPs, b.IPs) && slices.EqualFunc(a.Containers, b.Containers, func(x, y messages.WatchedContainer) bool {
		return x.Spec == y.Spec && x.ID == y.ID && x.StartedAt.Equal(y.StartedAt) && slices.Equal(x.Run, y.Run) &&
			x.Known == y.Known
	})
}

func (m *Machine) takeProbes(v messages.ProbesObserved) {
	for _, o := range v.Containers {
		if c := m.Container(o.Name); c != nil && c.Is(o.ID) {
			f := c.Newest()
			f.Results.Learn(o.Results)
			f.Failing = o.Failing
		}
	}
	if v.Generation == m.probing.generation && m.probing.sent != nil {
		m.probing.heard, m.probing.heardAt = v.Generation, m.now
		m.answered("probes", "")
	}
}

// unproved says that the last word on the probes of what is there is not known yet. Until it is, nothing is said of the pod:
// the start of this actor changes no readiness.
func (m *Machine) unproved() bool {
	return m.probing.heard == 0 && slices.ContainsFunc(m.Containers, func(c *known.Container) bool {
		f := c.Newest()
		return known.Probed(c.Spec) && f != nil && f.State != messages.ContainerCreated
	})
}

// unasked says that it is not known yet whether a container that was found running has had its post-start hook. Its actor tells
// soon; no longer than it is waited for any answer is nothing said of the pod.
func (m *Machine) unasked() bool {
	if m.reported.Status != nil || !m.live() || !m.now.Before(m.born.Add(m.Set.AnswerTimeout)) {
		return false
	}
	return slices.ContainsFunc(m.Containers, func(c *known.Container) bool {
		return known.HasPostStart(c.Spec) && c.Running() && !c.Newest().Hook.Known
	})
}

// unwatched says that the prober has let go of the pod, whose folder can be removed then.
func (m *Machine) unwatched() bool {
	return m.probing.sent != nil && len(m.probing.sent.Containers) == 0 && m.probing.heard == m.probing.generation
}
