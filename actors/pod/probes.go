package pod

import (
	"slices"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// probeState is the state of the pod's probes. The prober runs them; the pod acts on the results.
type probeState struct {
	generation      uint64
	used            bool                  // the prober may have a list of this pod
	sent            *messages.WatchProbes // the last message; nil when the prober has none
	ackedGeneration uint64                // sequence of the latest answer,
	ackedAt         time.Time             // and its time
}

// endAfterFailedProbe ends a container after a failed probe, with the grace period of the probe if it has one (KEP-2238). The
// strategy decides about the restart.
func (m *Machine) endAfterFailedProbe(c *known.Container, kind messages.ProbeKind) {
	grace := m.Grace()
	if s := messages.Probe(c.Spec, kind).TerminationGracePeriodSeconds; s != nil {
		grace = podspec.Grace(*s)
	}
	m.stopContainer(c, grace, messages.Cause{Code: messages.CauseProbeFailed, Name: string(kind),
		Detail: string(translate.RestartPolicy(&m.Pod.Spec, c.Spec))})
}

// runs returns the probes of a container that should run now. A startup probe comes before the others. A pod that has to end is
// probed for readiness alone.
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

// watch sends the list of probes to the prober after each change, and repeats it until it is confirmed.
func (m *Machine) watch() {
	if m.Wanted == nil || !m.read || (m.phase == Finished && m.probing.sent == nil) {
		return
	}
	w := m.probes()
	if m.probing.sent == nil && len(w.Containers) == 0 && (m.phase != Cleaning || !m.probing.used) {
		return
	}
	if m.probing.sent == nil || !sameProbes(m.probing.sent, &w) {
		m.answered("probes", "")
		// Larger than any generation of an earlier life, so that an answer to that life does not count.
		m.probing.generation = max(m.probing.generation+1, uint64(max(m.now.UnixNano(), 0)))
		m.probing.sent, m.probing.used = &w, true
	}
	if m.probing.ackedGeneration == m.probing.generation || !m.due("probes", "", m.Set.AnswerTimeout) {
		return
	}
	again := *m.probing.sent
	again.Generation = m.probing.generation
	m.emit(Tell{messages.Prober, again})
}

// watchAnew sends the list again to a prober that has lost it.
func (m *Machine) watchAnew() {
	m.probing.sent = nil
	m.answered("probes", "")
}

// renewProbes sends the list again at a reading after a period without answers: the prober may have lost the pod, and the report
// of that may be lost. The last list is kept, since a prober that still has the pod must receive its end.
func (m *Machine) renewProbes() {
	p := &m.probing
	acked := p.sent != nil && p.ackedGeneration == p.generation
	if acked && len(p.sent.Containers) > 0 && !m.now.Before(p.ackedAt.Add(reportAgain)) {
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
		m.probing.ackedGeneration, m.probing.ackedAt = v.Generation, m.now
		m.answered("probes", "")
	}
}

// probeResultsUnknown reports whether the last results of probed containers are still unknown. Until then no status is sent: the
// start of this actor changes no readiness.
func (m *Machine) probeResultsUnknown() bool {
	return m.probing.ackedGeneration == 0 && slices.ContainsFunc(m.Containers, func(c *known.Container) bool {
		f := c.Newest()
		return known.Probed(c.Spec) && f != nil && f.State != messages.ContainerCreated
	})
}

// hookStateUnknown reports whether the post-start hook of an adopted running container is still unknown. Its actor reports it
// soon. The status is delayed by at most one answer timeout.
func (m *Machine) hookStateUnknown() bool {
	if m.reported.Status != nil || !m.live() || !m.now.Before(m.born.Add(m.Set.AnswerTimeout)) {
		return false
	}
	return slices.ContainsFunc(m.Containers, func(c *known.Container) bool {
		return known.HasPostStart(c.Spec) && c.Running() && !c.Newest().Hook.Known
	})
}

// probesReleased reports whether the prober has released the pod, so that its folder can be removed, or never had it.
func (m *Machine) probesReleased() bool {
	p := &m.probing
	return !p.used || p.sent != nil && len(p.sent.Containers) == 0 && p.ackedGeneration == p.generation
}
