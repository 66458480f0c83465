package pod

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/actors/pod/rounds"
	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// observed is a reading. It takes its time: no other event happens at the moment when it begins.
func (w *world) observed() messages.PodObserved {
	w.now = w.now.Add(time.Microsecond)
	defer func() { w.now = w.now.Add(time.Microsecond) }()
	return messages.PodObserved{Facts: messages.PodFacts{
		UID: string(w.pod.UID), Name: w.pod.Name, Namespace: w.pod.Namespace, ReadAt: w.clock(),
		Sandboxes: slices.Clone(w.sandboxes), Containers: slices.Clone(w.containers),
	}}
}

// wall returns the time as the runtime reports it.
func (w *world) wall() time.Time { return w.clock().Round(0) }

func (w *world) startSandbox(e work.StartSandbox) {
	for i := range w.sandboxes { // joined or adopted by name
		if w.sandboxes[i].Attempt != e.Attempt {
			continue
		}
		if s := w.sandboxes[i]; s.Ready {
			w.send(work.SandboxStarted{Attempt: e.Attempt, Fact: &s})
		} else {
			w.send(work.SandboxStarted{Attempt: e.Attempt, Taken: true, Reason: messages.Reason{Code: "FailedCreatePodSandBox"}})
		}
		return
	}
	for _, s := range w.sandboxes {
		if s.Ready {
			w.fault("a second sandbox is started beside %s", s.ID)
		}
	}
	if p := w.machine.Phase(); p == Terminating || p == Cleaning || p == Finished {
		w.fault("a sandbox is started while %s", p)
	}
	if !w.grouped || e.CgroupParent == "" {
		w.fault("a sandbox is started in the cgroup %q (there: %v)", e.CgroupParent, w.grouped)
	}
	if podspec.HasClaims(w.machine.Pod) && !w.claimed {
		w.fault("a sandbox is started without the pod's claims")
	}
	w.seq++
	s := messages.SandboxFact{ID: fmt.Sprintf("s%d", w.seq), Attempt: e.Attempt, Ready: true, CreatedAt: w.wall(),
		HostNet: w.machine.Pod.Spec.HostNetwork, PodStarted: e.Started.Round(0), Handler: w.handler}
	if !s.HostNet {
		s.IPs = []string{fmt.Sprintf("10.88.0.%d", 2+e.Attempt)}
	}
	w.sandboxes = append([]messages.SandboxFact{s}, w.sandboxes...)
	w.send(work.SandboxStarted{Attempt: e.Attempt, Fact: &s})
}

// started is the report of a running container.
func started(f messages.ContainerFact) messages.ContainerReported {
	return messages.ContainerReported{UID: "u1", Name: f.Name, Stage: messages.StageRunning, Fact: &f}
}

// hooking is the report of a container with a running post-start hook.
func hooking(f messages.ContainerFact) messages.ContainerReported {
	return messages.ContainerReported{UID: "u1", Name: f.Name, Stage: messages.StageHooking, Fact: &f}
}

// ended returns the report of the end of a container, with the verdict of the machine's own strategy.
func (a *alone) ended(f messages.ContainerFact) messages.ChildExited {
	result := messages.ContainerEnded{Fact: f}
	verdict := a.machine.strategy(a.machine.Container(f.Name)).Verdict(result.Exit())
	return messages.ChildExited{Name: f.Name, Result: result, Verdict: verdict}
}

// sendExit ends the actor now; the report of it comes later.
func (w *world) sendExit(f messages.ContainerFact) {
	if sent := w.exits(f); sent != nil {
		w.send(sent)
	}
}

func (w *world) run(m messages.RunContainer) {
	if m.Adopt != nil && m.Adopt.State == messages.ContainerExited {
		w.sendExit(*m.Adopt)
		return
	}
	if p := w.machine.Phase(); (p != Running && p != Initializing) || w.machine.ending != nil {
		w.fault("%s is started while %s, ending %v", m.Container.Name, p, w.machine.ending)
	}
	for i := range w.containers {
		c := &w.containers[i]
		if w.stuck[c.ID] && c.Name == m.Container.Name && c.Attempt == m.Attempt {
			f := w.failed(m, "cannot delete running task", nil)
			f.Taken = true
			w.send(f)
			return
		}
		if c.Name != m.Container.Name || facts.CutOff(*c) {
			continue
		}
		if c.Attempt == m.Attempt { // adopted by name, or answered again
			if c.State == messages.ContainerCreated && c.SandboxID == m.Sandbox.ID && w.ready(m.Sandbox.ID) {
				w.start(c)
			}
			w.answer(m, *c)
			return
		}
		if lives(*c) {
			w.fault("%s attempt %d is started while attempt %d runs", c.Name, m.Attempt, c.Attempt)
		}
		if c.Attempt > m.Attempt {
			w.fault("%s attempt %d is started after attempt %d", c.Name, m.Attempt, c.Attempt)
		}
	}
	if m.Sandbox.Handler != w.handler {
		w.fault("%s is started with the handler %q", m.Container.Name, m.Sandbox.Handler)
	}
	if m.Sandbox.CgroupParent == "" {
		w.fault("%s is started in no cgroup", m.Container.Name)
	}
	if !w.ready(m.Sandbox.ID) {
		w.send(w.failed(m, "no sandbox", nil))
		return
	}
	if m.Adopt != nil { // only an adoption is possible: if the container was removed meanwhile, no other replaces it
		w.send(w.failed(m, "no container "+m.Adopt.ID, nil))
		return
	}
	w.containers = slices.DeleteFunc(w.containers, func(c messages.ContainerFact) bool {
		return c.Name == m.Container.Name && c.Attempt == m.Attempt // the rest of an interrupted start
	})
	w.checkOrder(m)
	w.checkPolicy(m)
	w.checkRound(m)
	w.seq++
	w.now = w.now.Add(time.Microsecond) // no two are created at the same moment
	c := messages.ContainerFact{
		ID: fmt.Sprintf("%s-%d", m.Container.Name, w.seq), Name: m.Container.Name, SandboxID: m.Sandbox.ID, Attempt: m.Attempt,
		State: messages.ContainerCreated, CreatedAt: w.wall(), Image: m.Container.Image,
	}
	if w.carries {
		c.Annotations = map[string]string{}
		if err := translate.CarryMade(c.Annotations, m.Pod, m.Container); err != nil {
			w.fault("%v", err)
		}
		c.Resources = toldOf(translate.EffectiveResources(m.Pod.Spec.Resources, m.Container.Resources))
	}
	if translate.MayRestartAll(&m.Pod.Spec) {
		c.Annotations = maps.Clone(c.Annotations)
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		c.Annotations[cri.AnnotationRound] = strconv.FormatUint(uint64(m.Round), 10)
	}
	// If this attempt was removed from outside, a failed actor creates it again. The report of the first start may still be on
	// its way to the pod.
	w.unread[c.ID] = w.removed[fmt.Sprint(c.Name, c.Attempt)]
	w.start(&c)
	w.containers = append([]messages.ContainerFact{c}, w.containers...)
	w.answer(m, c)
}

// checkPolicy: no regular container that has ended for good is created again. A container that was ended for a probe, or for its
// next version, is created again in any case.
func (w *world) checkPolicy(m messages.RunContainer) {
	i := slices.IndexFunc(w.containers, func(c messages.ContainerFact) bool {
		return c.Name == m.Container.Name &&
			!facts.CutOff(c)
	})
	if i < 0 || m.Container.Name[0] == 'i' {
		return
	}
	c := w.containers[i] // the newest
	if strings.HasPrefix(c.Name, "debug") && !c.StartedAt.IsZero() {
		w.fault("%s is made again, and is ephemeral", c.ID)
	}
	if of, _ := rounds.Marked(&c); of < m.Round {
		return
	}
	if c.State == messages.ContainerExited && !translate.Restarts(&w.pod.Spec, m.Container, c.ExitCode) && !w.excused[c.ID] {
		w.fault("%s is made again as attempt %d, and ended with %d", c.ID, m.Attempt, c.ExitCode)
	}
}

// checkOrder: no regular container is created while the post-start hook of an earlier one runs. After a start that failed, as far
// as the pod knows, no hook runs.
func (w *world) checkOrder(m messages.RunContainer) {
	specs := w.machine.Pod.Spec.Containers
	at := slices.IndexFunc(specs, func(c v1.Container) bool { return c.Name == m.Container.Name })
	for i := range specs[:max(at, 0)] {
		for _, c := range w.containers {
			if c.Name == specs[i].Name && c.State == messages.ContainerRunning && known.HasPostStart(&specs[i]) && !w.hooksDone[c.ID] &&
				!w.unread[c.ID] {
				w.fault("%s is made while the post-start hook of %s runs", m.Container.Name, c.ID)
			}
		}
	}
}

// start starts a created container, unless starts fail.
func (w *world) start(c *messages.ContainerFact) {
	if w.halfway > 0 {
		w.halfway--
		return
	}
	c.State, c.StartedAt = messages.ContainerRunning, w.wall()
	if w.brief && c.Name[0] == 'c' {
		w.brief, w.blind = false, true
		w.exitContainer(c, 0)
	}
}

func (w *world) ready(sandbox string) bool {
	return len(w.sandboxes) > 0 && w.sandboxes[0].Ready && w.sandboxes[0].ID == sandbox
}

func (w *world) failed(m messages.RunContainer, why string, fact *messages.ContainerFact) messages.ContainerReported {
	return messages.ContainerReported{
		UID: "u1", Name: m.Container.Name, Generation: m.Generation, Stage: messages.StageIdle, Fact: fact,
		Failed: &messages.Reason{Code: messages.ReasonRunContainer, Message: why},
	}
}

func (w *world) answer(m messages.RunContainer, c messages.ContainerFact) {
	if w.blind {
		w.blind = false
		w.unread[c.ID] = true
		w.send(w.failed(m, "its status cannot be read", nil))
		return
	}
	switch c.State {
	case messages.ContainerExited:
		w.sendExit(c)
	case messages.ContainerRunning:
		if known.HasPostStart(m.Container) && !w.hooksDone[c.ID] {
			w.send(hooking(c))
			w.send(delayedEvent(func() any { return w.endHook(c) }))
			return
		}
		w.send(started(c))
	case messages.ContainerCreated, messages.ContainerUnknown:
		w.unread[c.ID] = true
		w.send(w.failed(m, "it did not start", &c))
	}
}

// lives reports whether a container's processes exist, or may.
func lives(c messages.ContainerFact) bool {
	return c.State == messages.ContainerRunning || c.State == messages.ContainerUnknown
}

// checkNotOver: no final phase is reported of a pod that continues, since the API server does not take it back.
func (w *world) checkNotOver(p messages.PodStatusChanged) {
	switch Phase(p.Phase) {
	case Preparing, Initializing, Running:
		if over := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed; over && w.fail == nil {
			w.fault("a pod that is %s is told to be %s", p.Phase, p.Status.Phase)
		}
	default:
	}
}

func (w *world) stop(m messages.StopContainer) {
	was := w.asked[m.Fact.ID]
	w.asked[m.Fact.ID] = "hook"
	if m.HookOnly {
		if !w.sidecarNamed(m.Name) || m.Grace <= 0 {
			w.fault("%s waits for its turn to end, for %s", m.Name, m.Grace)
		}
		return
	}
	w.asked[m.Fact.ID] = "end"
	// Ended for a probe or another spec; or with the sandbox, which may overtake a restart for a probe.
	if strings.HasSuffix(explain.Stopping(m.Name, m.Cause), "will be restarted") || m.Cause.Text == "its sandbox is gone" {
		w.excused[m.Fact.ID] = true
	}
	w.stops, w.stopping = append(w.stops, m.Name), append(w.stopping, m)
	w.checkStop(m)
	if m.NoHook && w.machine.live() && w.sidecarNamed(m.Name) {
		for _, c := range w.containers {
			if c.Name[0] == 'c' && lives(c) {
				w.fault("sidecar %s is ended before %s", m.Name, c.Name)
			}
		}
	}
	if w.machine.Phase() == Terminating && m.Spec != nil && w.sidecarNamed(m.Name) && was != "end" {
		for _, c := range w.containers {
			if lives(c) && !w.sidecarNamed(c.Name) {
				w.fault("sidecar %s is stopped before %s", m.Name, c.Name)
			}
		}
	}
	if m.Fact.State == messages.ContainerCreated {
		w.fault("%s, which never ran, is stopped", m.Fact.ID)
	}
	if w.stubborn {
		return
	}
	w.send(delayedEvent(func() any {
		ended := m.Fact
		ended.State, ended.ExitCode, ended.FinishedAt = messages.ContainerExited, 137, w.wall()
		for i := range w.containers {
			if c := &w.containers[i]; c.ID == m.Fact.ID {
				w.exitContainer(c, w.heeded)
				ended = *c
			}
		}
		return w.exits(ended)
	}))
}

// checkAsked: in a pod that ends, every running container has the order to end or to run its pre-stop hook. After the grace
// period, sidecars wait for the other containers alone.
func (w *world) checkAsked() {
	mains := !w.machine.settle.IsZero() || slices.ContainsFunc(w.machine.Containers,
		func(c *known.Container) bool { return !c.Sidecar() && c.Alive() })
	for _, c := range w.machine.Containers {
		f := c.Newest()
		if w.machine.Phase() != Terminating || !c.Alive() {
			continue
		}
		if late := !w.stepAt.Before(w.machine.ends); late && mains && c.Sidecar() {
			continue
		}
		if asked := w.asked[f.ID]; asked == "" && !w.machine.asking("stop", c.Name) || asked == "hook" &&
			!w.stepAt.Before(w.machine.ends) {
			w.fault("%s of a pod that ends by %s is asked to %q at %s", f.ID, w.machine.ends, asked, w.stepAt)
		}
	}
}

func (w *world) sidecarNamed(name string) bool {
	for i := range w.pod.Spec.InitContainers {
		if c := &w.pod.Spec.InitContainers[i]; c.Name == name {
			return translate.RestartsAlways(c)
		}
	}
	return false
}

func (w *world) exitContainer(c *messages.ContainerFact, code int32) {
	if !lives(*c) {
		return // a container that never ran does not end
	}
	w.ends[c.Name]++
	c.State, c.ExitCode, c.FinishedAt, c.Reason = messages.ContainerExited, code, w.wall(), "Error"
	if round, _ := rounds.Marked(c); code == 0 {
		w.did[fmt.Sprint(c.Name, c.SandboxID, round)] = true
	}
	if code == 0 {
		c.Reason = "Completed"
	}
}

func (w *world) killIn(sandbox string) {
	for i := range w.containers {
		if w.containers[i].SandboxID == sandbox {
			w.exitContainer(&w.containers[i], 137)
		}
	}
}

// live ends containers by the script, and sends the machine an event.
func (w *world) live() {
	changed := false
	for i := range w.containers {
		c := &w.containers[i]
		if c.State != messages.ContainerRunning {
			continue
		}
		if code, ends := w.exit(c.Name, c.Attempt); ends {
			w.exitContainer(c, code)
			changed = true
		}
	}
	if changed {
		w.send(w.observed())
	}
}

func (w *world) runningNames() []string {
	var out []string
	for _, c := range w.containers {
		if c.State == messages.ContainerRunning {
			out = append(out, c.Name)
		}
	}
	slices.Sort(out)
	return out
}
