package pod

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/facts"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// observed is a reading. It takes its time: nothing else happens at the very moment at which one begins.
func (w *world) observed() messages.PodObserved {
	w.now = w.now.Add(time.Microsecond)
	defer func() { w.now = w.now.Add(time.Microsecond) }()
	return messages.PodObserved{Facts: messages.PodFacts{
		UID: string(w.pod.UID), Name: w.pod.Name, Namespace: w.pod.Namespace, ReadAt: w.now,
		Sandboxes: slices.Clone(w.sandboxes), Containers: slices.Clone(w.containers),
	}}
}

func (w *world) startSandbox(e StartSandbox) {
	for i := range w.sandboxes { // joined or adopted by name
		if w.sandboxes[i].Attempt != e.Attempt {
			continue
		}
		if s := w.sandboxes[i]; s.Ready {
			w.send(SandboxStarted{Attempt: e.Attempt, Fact: &s})
		} else {
			w.send(SandboxStarted{Attempt: e.Attempt, Taken: true, Reason: messages.Reason{Code: "FailedCreatePodSandBox"}})
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
		w.fault("a sandbox is started in the control group %q (there: %v)", e.CgroupParent, w.grouped)
	}
	w.seq++
	s := messages.SandboxFact{ID: fmt.Sprintf("s%d", w.seq), Attempt: e.Attempt, Ready: true, CreatedAt: w.now, HostNet: w.machine.pod.Spec.HostNetwork, PodStarted: e.Started, Handler: w.handler}
	if !s.HostNet {
		s.IPs = []string{fmt.Sprintf("10.88.0.%d", 2+e.Attempt)}
	}
	w.sandboxes = append([]messages.SandboxFact{s}, w.sandboxes...)
	w.send(SandboxStarted{Attempt: e.Attempt, Fact: &s})
}

func (w *world) run(m messages.RunContainer) {
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
		w.fault("%s is started in no control group", m.Container.Name)
	}
	if !w.ready(m.Sandbox.ID) {
		w.send(w.failed(m, "no sandbox", nil))
		return
	}
	if m.Adopt != nil { // it is adopted or nothing: where someone has removed it since, no other is made in its place
		w.send(w.failed(m, "no container "+m.Adopt.ID, nil))
		return
	}
	w.containers = slices.DeleteFunc(w.containers, func(c messages.ContainerFact) bool {
		return c.Name == m.Container.Name && c.Attempt == m.Attempt // left of a start that was cut off
	})
	w.seq++
	w.now = w.now.Add(time.Microsecond) // no two are made at one moment
	c := messages.ContainerFact{
		ID: fmt.Sprintf("%s-%d", m.Container.Name, w.seq), Name: m.Container.Name, SandboxID: m.Sandbox.ID, Attempt: m.Attempt,
		State: messages.ContainerCreated, CreatedAt: w.now, Image: m.Container.Image,
	}
	w.start(&c)
	w.containers = append([]messages.ContainerFact{c}, w.containers...)
	w.answer(m, c)
}

// start starts a created container, unless starts fail.
func (w *world) start(c *messages.ContainerFact) {
	if w.halfway > 0 {
		w.halfway--
		return
	}
	c.State, c.StartedAt = messages.ContainerRunning, w.now
}

func (w *world) ready(sandbox string) bool {
	return len(w.sandboxes) > 0 && w.sandboxes[0].Ready && w.sandboxes[0].ID == sandbox
}

func (w *world) failed(m messages.RunContainer, why string, fact *messages.ContainerFact) messages.ContainerFailed {
	return messages.ContainerFailed{
		UID: "u1", Name: m.Container.Name, Attempt: m.Attempt, Turn: m.Turn, Fact: fact,
		Reason: messages.Reason{Code: messages.ReasonRunContainer, Message: why},
	}
}

func (w *world) answer(m messages.RunContainer, c messages.ContainerFact) {
	if w.blind {
		w.blind = false
		w.send(w.failed(m, "its status cannot be read", nil))
		return
	}
	switch c.State {
	case messages.ContainerExited:
		w.send(messages.ContainerEnded{UID: "u1", Fact: c})
	case messages.ContainerRunning:
		if hasPostStart(m.Container) && !w.hooksDone[c.ID] {
			w.send(messages.ContainerStarted{UID: "u1", Fact: c, Hooking: true})
			w.send(delayed(func() any { return w.endHook(c) }))
			return
		}
		w.send(messages.ContainerStarted{UID: "u1", Fact: c})
	case messages.ContainerCreated, messages.ContainerUnknown:
		w.send(w.failed(m, "it did not start", &c))
	}
}

// lives says that a container's processes are there, or may be.
func lives(c messages.ContainerFact) bool {
	return c.State == messages.ContainerRunning || c.State == messages.ContainerUnknown
}

// checkNotOver: the API server takes no final phase back, so that none is told of a pod that goes on.
func (w *world) checkNotOver(p Publish) {
	switch p.Phase {
	case Preparing, Initializing, Running:
		if over := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed; over && w.fail == nil {
			w.fault("a pod that is %s is told to be %s", p.Phase, p.Status.Phase)
		}
	default:
	}
}

func (w *world) stop(m messages.StopContainer) {
	w.stops = append(w.stops, m.Name)
	w.checkStop(m)
	if w.machine.Phase() == Terminating && m.Spec != nil && w.sidecarNamed(m.Name) {
		for _, c := range w.containers {
			if lives(c) && !w.sidecarNamed(c.Name) {
				w.fault("sidecar %s is stopped before %s", m.Name, c.Name)
			}
		}
	}
	if m.Fact.State == messages.ContainerCreated {
		w.fault("%s, which never ran, is stopped", m.Fact.ID)
	}
	w.send(delayed(func() any {
		ended := m.Fact
		ended.State, ended.ExitCode, ended.FinishedAt = messages.ContainerExited, 137, w.now
		for i := range w.containers {
			if c := &w.containers[i]; c.ID == m.Fact.ID {
				w.exitContainer(c, w.heeded)
				ended = *c
			}
		}
		return messages.ContainerEnded{UID: "u1", Fact: ended}
	}))
}

func (w *world) sidecarNamed(name string) bool {
	for i := range w.pod.Spec.InitContainers {
		if c := &w.pod.Spec.InitContainers[i]; c.Name == name {
			return cri.RestartsAlways(c)
		}
	}
	return false
}

func (w *world) exitContainer(c *messages.ContainerFact, code int32) {
	if !lives(*c) {
		return // what never ran does not end
	}
	w.ends[c.Name]++
	c.State, c.ExitCode, c.FinishedAt, c.Reason = messages.ContainerExited, code, w.now, "Error"
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

// live lets containers that are to end by the script end, and has the machine told by an event.
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
