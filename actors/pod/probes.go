package pod

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// probing is what the pod knows of its probes. The prober runs them; the pod decides what follows from a result.
type probing struct {
	generation uint64
	sent       *messages.WatchProbes // sent last; nil when the prober knows of none
	heard      uint64                // the sequence of the latest answer
}

// hookEnded says that the newest container's post-start hook has ended, where it has one.
func (c *container) hookEnded() bool {
	f := c.newest()
	return !hasPostStart(c.spec) || f == nil || f.hook.done
}

func hasPostStart(spec *v1.Container) bool {
	return spec != nil && spec.Lifecycle != nil && spec.Lifecycle.PostStart != nil
}

// results are those of the container that is the newest: of another, nothing counts.
func (c *container) results() messages.ProbeResults {
	if f := c.newest(); f != nil {
		return f.results
	}
	return messages.ProbeResults{}
}

// probed says that a container has probes; only those that stay up have.
func probed(spec *v1.Container) bool {
	return spec != nil && (spec.StartupProbe != nil || spec.ReadinessProbe != nil || spec.LivenessProbe != nil)
}

// hasStarted says that the container runs and is up for others: its post-start hook has ended and its startup probe has
// succeeded, where it has them.
func (c *container) hasStarted() bool {
	return c.running() && c.hookEnded() && (c.spec == nil || c.spec.StartupProbe == nil ||
		c.results().Startup == messages.ProbeSucceeded)
}

// isReady says that the container has started and that its readiness probe agrees, where it has one.
func (c *container) isReady() bool {
	return c.hasStarted() && (c.spec == nil || c.spec.ReadinessProbe == nil || c.results().Readiness == messages.ProbeSucceeded)
}

// unfit is the kind of the probe by which the container must end; empty when it need not.
func (c *container) unfit() messages.ProbeKind {
	if c.spec == nil {
		return ""
	}
	for _, kind := range []messages.ProbeKind{messages.Liveness, messages.Startup} {
		if r := c.results(); messages.Probe(c.spec, kind) != nil && *r.Of(kind) == messages.ProbeFailed {
			return kind
		}
	}
	return ""
}

// endUnfit has a container ended that a probe found unfit, in the kubelet's words, and with the probe's own grace period
// where it has one (KEP-2238). What follows its end is the strategy's to say.
func (m *Machine) endUnfit(c *container, kind messages.ProbeKind) {
	grace := m.grace()
	if s := messages.Probe(c.spec, kind).TerminationGracePeriodSeconds; s != nil {
		grace = podspec.Grace(*s)
	}
	why := "Container " + c.name + " failed " + string(kind) + " probe"
	if translate.RestartPolicy(&m.pod.Spec, c.spec) != v1.RestartPolicyNever {
		why += ", will be restarted"
	}
	m.stopContainer(c, grace, why)
}

// answer is what follows the end of a container. One that was ended since a probe found it unfit has failed, whatever its
// exit code says.
func (c *container) answer(pod *v1.Pod, f messages.ContainerFact) restarts.Answer {
	switch {
	case c.ephemeral:
		return restarts.Leave
	case c.earlier:
		return restarts.Again
	}
	failed := c.is(f.ID) && c.unfit() != "" && translate.RestartPolicy(&pod.Spec, c.spec) != v1.RestartPolicyNever
	if a := restarts.ByPolicy(pod, c.spec, c.init, f); a != restarts.Leave || !failed {
		return a
	}
	return restarts.Again
}

// runs are the probes of a container that are to run now. A startup probe comes before the others; a pod that is to end is
// asked only whether it is ready.
func (m *Machine) runs(c *container) []messages.ProbeKind {
	ends := !m.live() || c.stage == messages.StageStopping
	switch {
	case !c.running(), !c.hookEnded(), !c.hasStarted() && ends:
		return nil
	case !c.hasStarted():
		return []messages.ProbeKind{messages.Startup}
	}
	var out []messages.ProbeKind
	if c.spec.ReadinessProbe != nil {
		out = append(out, messages.Readiness)
	}
	if c.spec.LivenessProbe != nil && !ends {
		out = append(out, messages.Liveness)
	}
	return out
}

// probes lists all containers to be probed.
func (m *Machine) probes() messages.WatchProbes {
	w := messages.WatchProbes{UID: m.uid, Pod: m.pod, IPs: m.ips(), Order: m.desired.Order}
	if m.phase == Cleaning || m.phase == Finished {
		return w
	}
	for _, c := range m.containers {
		f := c.newest()
		if !probed(c.spec) || f == nil || f.State == messages.ContainerCreated || (m.phase == Terminating && !c.running()) {
			continue
		}
		w.Containers = append(w.Containers, messages.WatchedContainer{
			Spec: c.spec, ID: f.ID, StartedAt: f.StartedAt, Run: m.runs(c), Known: c.results(),
		})
	}
	return w
}

// watch sends the prober what is to be probed when that has changed, and again while there is no answer.
func (m *Machine) watch() {
	if m.desired == nil || !m.read || (m.phase == Finished && m.probing.sent == nil) {
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
	if m.probing.heard == m.probing.generation || !m.due("probes", "", m.set.AnswerTimeout) {
		return
	}
	again := *m.probing.sent
	again.Generation = m.probing.generation
	m.emit(Tell{messages.Prober, again})
}

func sameProbes(a, b *messages.WatchProbes) bool {
	return slices.Equal(a.IPs, b.IPs) && slices.EqualFunc(a.Containers, b.Containers, func(x, y messages.WatchedContainer) bool {
		return x.Spec == y.Spec && x.ID == y.ID && x.StartedAt.Equal(y.StartedAt) && slices.Equal(x.Run, y.Run) &&
			x.Known == y.Known
	})
}

func (m *Machine) takeProbes(v messages.ProbesObserved) {
	for _, o := range v.Containers {
		if c := m.container(o.Name); c != nil && c.is(o.ID) {
			f := c.newest()
			f.results.Learn(o.Results)
			f.failing = o.Failing
		}
	}
	if v.Generation == m.probing.generation && m.probing.sent != nil {
		m.probing.heard = v.Generation
		m.answered("probes", "")
	}
}

// unproved says that the last word on the probes of what is there is not known yet. Until it is, nothing is said of the pod:
// the start of this actor changes no readiness.
func (m *Machine) unproved() bool {
	return m.probing.heard == 0 && slices.ContainsFunc(m.containers, func(c *container) bool {
		f := c.newest()
		return probed(c.spec) && f != nil && f.State != messages.ContainerCreated
	})
}

// unasked says that it is not known yet whether a container that was found running has had its post-start hook. Its actor tells
// soon; no longer than it is waited for any answer is nothing said of the pod.
func (m *Machine) unasked() bool {
	if m.told.Status != nil || !m.live() || !m.now.Before(m.born.Add(m.set.AnswerTimeout)) {
		return false
	}
	return slices.ContainsFunc(m.containers, func(c *container) bool {
		return hasPostStart(c.spec) && c.running() && !c.newest().hook.known
	})
}

// unwatched says that the prober has let go of the pod, whose folder can be removed then.
func (m *Machine) unwatched() bool {
	return m.probing.sent != nil && len(m.probing.sent.Containers) == 0 && m.probing.heard == m.probing.generation
}
