package pod

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// proberState is the world's prober: the latest desired state, and the last results by container ID, which are on disk.
type proberState struct {
	watched *messages.WatchProbes
	words   map[string]messages.ProbeResults
	sick    map[string]bool // containers with failing probes when all is quiet; by "name/kind"

	hooksDone map[string]bool // post-start hooks that have ended, by container ID
}

// endHook ends a post-start hook, unless its container has ended before.
func (w *world) endHook(c messages.ContainerFact) any {
	for i := range w.containers {
		if is := w.containers[i]; is.ID == c.ID && is.State == messages.ContainerExited {
			return w.exits(is)
		}
	}
	if w.hooksDone == nil {
		w.hooksDone = map[string]bool{}
	}
	w.hooksDone[c.ID] = true
	return started(c)
}

func (w *world) watchProbes(m messages.WatchProbes) {
	for i := range m.Containers {
		c := &m.Containers[i]
		if is := c.Known; w.words != nil { // the pod's known results count if there are no others
			is.Learn(w.words[c.ID])
			w.words[c.ID] = is
		}
		for _, kind := range c.Run {
			started := c.Spec.StartupProbe == nil || c.Known.Startup == messages.ProbeSucceeded
			if (kind == messages.Startup) == started {
				w.fault("the %s probe of %s runs, and it has started: %v", kind, c.Spec.Name, started)
			}
			if phase := w.machine.Phase(); kind != messages.Readiness && !w.machine.live() {
				w.fault("the %s probe of %s runs while %s", kind, c.Spec.Name, phase)
			}
		}
	}
	w.watched = &m
	w.send(w.word())
}

func (w *world) word() messages.ProbesObserved {
	word := messages.ProbesObserved{UID: w.watched.UID, Generation: w.watched.Generation}
	for i := range w.watched.Containers {
		c := &w.watched.Containers[i]
		word.Containers = append(word.Containers, messages.ObservedContainer{Name: c.Spec.Name, ID: c.ID, Results: w.words[c.ID]})
	}
	return word
}

func (w *world) prove(id string, kind messages.ProbeKind, r messages.ProbeResult) {
	if w.words == nil {
		w.words = map[string]messages.ProbeResults{}
	}
	was := w.words[id]
	*was.Of(kind) = r
	w.words[id] = was
	w.send(w.word())
}

// probeOnce runs the prober when all is quiet. It reports whether there was a message.
func (w *world) probeOnce() bool {
	if w.watched == nil {
		return false
	}
	for i := range w.watched.Containers {
		c := &w.watched.Containers[i]
		for _, kind := range c.Run {
			r := messages.ProbeSucceeded
			if w.sick[c.Spec.Name+"/"+string(kind)] {
				r = messages.ProbeFailed
			}
			if is := w.words[c.ID]; *is.Of(kind) != r {
				w.prove(c.ID, kind, r)
				return true
			}
		}
		if w.words[c.ID] != c.Known { // its report was lost
			w.send(w.word())
			w.watched.Containers[i].Known = w.words[c.ID]
			return true
		}
	}
	return false
}

// checkProved: no container is reported as ready, or started, without a probe that succeeded.
func (w *world) checkProved(s *v1.PodStatus) {
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		spec := w.machine.Container(c.Name).Spec
		_, id, _ := strings.Cut(c.ContainerID, "//")
		words := w.words[id]
		if c.State.Running != nil && c.Started != nil && *c.Started && spec.StartupProbe != nil &&
			words.Startup != messages.ProbeSucceeded {
			w.fault("%s is said to have started", c.Name)
		}
		if c.State.Running != nil && c.Started != nil && *c.Started && known.HasPostStart(spec) && !w.hooksDone[id] &&
			w.machine.Phase() != Terminating {
			w.fault("%s is said to have started, and its hook has not ended", c.Name)
		}
		if c.Ready && c.State.Running != nil && spec.ReadinessProbe != nil && words.Readiness == "" {
			w.fault("%s is said to be ready", c.Name)
		}
	}
}

// checkStop: no container is ended for a probe that did not fail.
func (w *world) checkStop(m messages.StopContainer) {
	is := w.words[m.Fact.ID]
	if m.Cause.Code == messages.CauseProbeFailed && *is.Of(messages.ProbeKind(m.Cause.Name)) != messages.ProbeFailed {
		w.fault("%s is ended: %+v", m.Fact.ID, m.Cause)
	}
}

// probeStorm changes the result of a running probe.
func probeStorm(t *rapid.T, w *world) {
	if w.watched == nil || len(w.watched.Containers) == 0 {
		return
	}
	c := &w.watched.Containers[rapid.IntRange(0, len(w.watched.Containers)-1).Draw(t, "probed")]
	if len(c.Run) == 0 {
		return
	}
	kind := rapid.SampledFrom(c.Run).Draw(t, "kind")
	is := w.words[c.ID]
	if held := *is.Of(kind); held == messages.ProbeFailed && kind == messages.Liveness || held != "" && kind == messages.Startup {
		return // such a result is final
	}
	w.prove(c.ID, kind, rapid.SampledFrom([]messages.ProbeResult{messages.ProbeSucceeded, messages.ProbeSucceeded,
		messages.ProbeFailed}).Draw(t, "result"))
}

func drawProbes(t *rapid.T, pod *v1.Pod) {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			c := &list[i]
			if c.Name[0] == 'i' && !translate.RestartsAlways(c) {
				continue
			}
			if rapid.IntRange(0, 3).Draw(t, "hook") == 0 {
				c.Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{}}
			}
			for _, p := range []**v1.Probe{&c.StartupProbe, &c.ReadinessProbe, &c.LivenessProbe} {
				if rapid.IntRange(0, 2).Draw(t, "probe") == 0 {
					*p = &v1.Probe{}
				}
			}
		}
	}
}

func allReady(s *v1.PodStatus) bool {
	for i := range s.ContainerStatuses {
		if !s.ContainerStatuses[i].Ready {
			return false
		}
	}
	return true
}
