package pod

import (
	"maps"
	"slices"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/facts"
	"github.com/playlet-dev/playlet/messages"
)

// Results of the pod's own work.
type (
	// SandboxStarted is the result of StartSandbox. Fact is nil when it failed.
	SandboxStarted struct {
		Attempt uint32
		Fact    *messages.SandboxFact
		Reason  messages.Reason
		// Taken says that the attempt's name belongs to something else for good: the next attempt is another.
		Taken bool
	}
	// SandboxStopped is the result of StopSandbox.
	SandboxStopped struct {
		ID     string
		Failed *messages.Reason
	}
	// PodRemoved is the result of RemovePod.
	PodRemoved struct{ Failed *messages.Reason }
)

// take notes what a message says. What follows from it is the plan's.
func (m *Machine) take(now time.Time, msg any) {
	switch v := msg.(type) {
	case messages.PodWanted:
		m.takeWish(now, v)
	case messages.PodObserved:
		m.takeFacts(now, v.Facts)
	case messages.ServiceStarted:
		m.takeService(v.Service)
	case messages.VolumesMounted:
		m.answered("mount", "")
		m.volumes = volumes{mounted: true, paths: v.Paths}
	case messages.VolumesFailed:
		m.volumes.reason = &v.Reason // volumes goes on trying; the question stays open
	case messages.VolumesUnmounted:
		m.volumes.mounted = false
		if m.ending != nil && !v.Removed {
			return // the answer to an earlier question; the pod has to be removed since
		}
		m.answered("unmount", "")
		m.cleaned.volumes = m.phase == Cleaning
	case SandboxStarted, SandboxStopped, PodRemoved:
		m.takeWork(now, v)
	default:
		m.takeContainer(now, msg)
	}
}

// takeWork notes the result of the pod's own work.
func (m *Machine) takeWork(now time.Time, msg any) {
	switch v := msg.(type) {
	case SandboxStarted:
		m.answered("sandbox", "")
		if v.Taken {
			m.box.next = max(m.box.next, v.Attempt+1)
		}
		if v.Fact == nil {
			m.sandboxFailed(now, v.Reason)
			return
		}
		m.notice(v.Fact.ID, now)
		m.box.learn(*v.Fact)
		if s := m.box.unfit(); s != nil && s.NoIP {
			m.sandboxFailed(now, messages.Reason{Code: messages.ReasonCreateSandbox, Message: "the runtime gave the sandbox no IP address"})
			return
		}
		m.box.failed, m.box.tries, m.box.retry = nil, 0, time.Time{}
	case SandboxStopped:
		m.answered("stopbox", v.ID)
		if v.Failed != nil {
			m.sandboxFailed(now, *v.Failed)
			return
		}
		m.box.stopped[v.ID] = true
		for i := range m.box.all {
			if m.box.all[i].ID == v.ID {
				m.box.all[i].Ready = false
			}
		}
	case PodRemoved:
		m.answered("remove", "")
		if v.Failed != nil {
			m.cleaned.tries++
			m.cleaned.retry = now.Add(retryDelay(m.cleaned.tries))
			return
		}
		m.cleaned.runtime = true
	}
}

// takeContainer notes what concerns one container.
func (m *Machine) takeContainer(now time.Time, msg any) {
	switch v := msg.(type) {
	case messages.ChildStarted:
		m.takeChild(now, v)
	case messages.ImagePulled:
		if c := m.imageOf(v.Key, v.Image); c != nil {
			m.answered("image", c.name)
			c.image.ref, c.image.reason = v.Ref, nil
		}
	case messages.ImageFailed:
		if c := m.imageOf(v.Key, v.Image); c != nil {
			c.image.reason = &v.Reason // images goes on trying; the question stays open
		}
	case messages.ContainerStarted:
		if c := m.con(v.Fact.Name); c != nil {
			m.notice(v.Fact.ID, now)
			m.takeStarted(c, v.Fact)
		}
	case messages.ContainerEnded:
		if c := m.con(v.Fact.Name); c != nil {
			m.notice(v.Fact.ID, now)
			m.takeEnded(c, v.Fact)
		}
	case messages.ContainerFailed:
		if c := m.con(v.Name); c != nil {
			m.takeFailed(now, c, v)
		}
	}
}

// imageOf is the container whose need of an image is answered; nil when it has another by now.
func (m *Machine) imageOf(key messages.ImageKey, image string) *con {
	c := m.con(key.Container)
	if c == nil || c.spec == nil || c.image.attempt != key.Attempt || c.spec.Image != image {
		return nil
	}
	return c
}

func (m *Machine) takeWish(now time.Time, w messages.PodWanted) {
	m.answered("wish", "")
	changed := m.pod != w.Pod
	if m.wish != nil && m.wish.Ending != nil && w.Ending == nil {
		w.Ending = m.wish.Ending // an end is never taken back
	}
	if m.ending == nil && w.Ending != nil {
		m.answered("unmount", "") // from now on it is to be removed, too
		m.cleaned.volumes = false
	}
	m.wish, m.ending = &w, w.Ending
	if !changed {
		return
	}
	m.pod = w.Pod
	m.box.hostNet = w.Pod.Spec.HostNetwork
	m.book()
	for _, c := range m.cons {
		m.respec(c)
	}
	m.volumes.mounted = false // the volumes that the new spec names are asked for; those that are there are found
	m.answered("mount", "")
	if m.started.IsZero() {
		m.started = now
	}
}

// respec has a container whose start is being waited for start from its new spec, at once.
func (m *Machine) respec(c *con) {
	c.image.ref, c.image.reason, c.failed, c.tries = "", nil, nil, 0
	m.answered("image", c.name)
	f := c.exited()
	if c.spec == nil || f == nil || !m.set.Changed(c.spec, *f) {
		return
	}
	if c.stage == due || c.stage == spawning {
		c.stage, c.at, c.replace = idle, time.Time{}, true
	}
}

func (m *Machine) takeService(service messages.Address) {
	switch service {
	case messages.Volumes:
		m.answered("mount", "")
		m.answered("unmount", "")
	case messages.Runtime:
		m.answered("read", "")
	case messages.Images:
		for _, c := range m.cons {
			m.answered("image", c.name)
		}
	}
}

// takeChild: the actor of a container runs and knows nothing.
func (m *Machine) takeChild(now time.Time, v messages.ChildStarted) {
	c := m.con(v.Name)
	if c == nil {
		return
	}
	m.answered("spawn", c.name)
	switch c.stage {
	case spawning:
		c.stage, c.at = imaging, time.Time{}
	case starting, up:
		// It fell and knows nothing: it is told its wish again, with what stands for it. That is another try: what its
		// earlier life said of the one before is not taken for its answer.
		m.answered("run", c.name)
		c.told = ""
		f := c.newest()
		switch {
		case f != nil && f.Attempt != c.attempt, m.standing(c) == nil && c.image.ref == "":
			c.stage = imaging // another attempt, or another image since: it is asked for first
		default:
			c.stage = starting
		}
	case stopping:
		m.answered("stop", c.name)
	case idle, due, imaging:
	}
}

func (m *Machine) takeStarted(c *con, f messages.ContainerFact) {
	c.learn(f)
	m.answered("run", c.name)
	c.failed, c.tries = nil, 0
	n := c.newest()
	if c.stage != starting || f.Attempt != c.attempt || n == nil || n.ID != f.ID {
		return
	}
	if n.State == messages.ContainerExited {
		m.answerEnd(c) // its end was read before the word of its start came
		return
	}
	c.stage = up
}

func (m *Machine) takeEnded(c *con, f messages.ContainerFact) {
	c.learn(f)
	newest := c.newest()
	if newest == nil || newest.ID != f.ID {
		return
	}
	if newest.State == messages.ContainerCreated && c.stage == stopping {
		m.answerEnd(c) // it never ran: there was nothing to end
		return
	}
	if newest.State != messages.ContainerExited {
		return
	}
	switch c.stage {
	case starting:
		if f.Attempt != c.attempt {
			return // told once more; the next attempt is on its way
		}
	case up, stopping:
	case idle, due, spawning, imaging:
		return
	}
	c.failed, c.tries = nil, 0
	m.answerEnd(c)
}

func (m *Machine) takeFailed(now time.Time, c *con, v messages.ContainerFailed) {
	if c.stage != starting || v.Attempt != c.attempt || v.Turn != c.turn {
		return // told once more; the next try is on its way
	}
	m.answered("run", c.name)
	if v.Fact != nil {
		m.notice(v.Fact.ID, now)
	}
	if v.Fact != nil && v.Fact.State == messages.ContainerExited && !facts.CutOff(*v.Fact) {
		c.learn(*v.Fact)
		m.answerEnd(c)
		return
	}
	if v.Fact != nil {
		c.learn(*v.Fact)
	}
	c.tries++
	r := v.Reason
	r.RetryAt = now.Add(retryDelay(c.tries))
	c.failed = &r
	c.stage = imaging
	c.image.ref = "" // it may be gone: it is asked for anew
	// What it needed may be gone without anyone having said so: the truth is read.
	m.emit(Tell{messages.Runtime, messages.ReadPod{UID: m.uid}})
}

// takeFacts notes the CRI's word on the pod.
func (m *Machine) takeFacts(now time.Time, f messages.PodFacts) {
	if f.ReadAt.Before(m.readAt) || f.ReadAt.Before(m.born) {
		return // overtaken by a later reading, or on its way to an earlier life of this actor
	}
	first := !m.read
	m.answered("read", "")
	m.read, m.readAt = true, f.ReadAt
	if !m.settle.IsZero() && f.ReadAt.After(m.settle) {
		m.settle = time.Time{}
	}
	m.takeSandboxes(f)
	for i := range f.Containers {
		m.takeFact(now, f.ReadAt, f.Containers[i], first)
	}
	m.takeMissing(now, f)
	m.forget()
	for i := range f.Sandboxes {
		m.takeStart(&f.Sandboxes[i])
	}
}

// takeStart finds the pod's start time. The first sandbox was made with it; every later one carries it, too. A kubelet notes
// none: then the oldest sandbox that is left has to do.
func (m *Machine) takeStart(s *messages.SandboxFact) {
	at := s.PodStarted
	if at.IsZero() {
		at = s.CreatedAt
	}
	if m.started.IsZero() || at.Before(m.started) {
		m.started = at
	}
}

func (m *Machine) takeSandboxes(f messages.PodFacts) {
	listed := map[string]bool{}
	for _, s := range f.Sandboxes {
		listed[s.ID] = true
		m.notice(s.ID, f.ReadAt)
		m.box.learn(s)
	}
	m.box.all = slices.DeleteFunc(m.box.all, func(s messages.SandboxFact) bool {
		return !listed[s.ID] && m.known[s.ID].Before(f.ReadAt)
	})
}

// notice notes that a sandbox or container was there at a time of our own clock.
func (m *Machine) notice(id string, at time.Time) {
	if _, ok := m.known[id]; !ok {
		m.known[id] = at
	}
}

// forget lets go of what is kept of sandboxes and containers that are in no book any more.
func (m *Machine) forget() {
	there := map[string]bool{}
	for i := range m.box.all {
		there[m.box.all[i].ID] = true
	}
	for _, c := range m.cons {
		for i := range c.facts {
			there[c.facts[i].ID] = true
		}
	}
	maps.DeleteFunc(m.known, func(id string, _ time.Time) bool { return !there[id] })
	maps.DeleteFunc(m.box.stopped, func(id string, _ bool) bool { return !there[id] })
	maps.DeleteFunc(m.asks, func(k ask, _ time.Time) bool { return k.what == "stopbox" && !there[k.of] })
}

// learn takes the runtime's word on one sandbox.
func (b *box) learn(s messages.SandboxFact) {
	b.next = max(b.next, s.Attempt+1)
	if i := slices.IndexFunc(b.all, func(o messages.SandboxFact) bool { return o.ID == s.ID }); i >= 0 {
		if len(s.IPs) == 0 {
			s.IPs = b.all[i].IPs
		}
		s.Ready = s.Ready && !b.stopped[s.ID]
		b.all[i] = s
	} else {
		at, _ := slices.BinarySearchFunc(b.all, s, func(a, c messages.SandboxFact) int { return int(c.Attempt) - int(a.Attempt) })
		b.all = slices.Insert(b.all, at, s)
	}
	if newest := b.all[0]; len(newest.IPs) > 0 {
		b.lastIPs = newest.IPs
	}
}

// takeFact notes the CRI's word on one container, read at a time of our own clock. Where an actor stands for the container, it is told, and answers.
func (m *Machine) takeFact(now, at time.Time, f messages.ContainerFact, first bool) {
	c := m.con(f.Name)
	if c == nil {
		c = &con{name: f.Name, stage: idle}
		m.cons = append(m.cons, c)
	}
	if c.actor && (c.stage == up || c.stage == stopping) {
		if n := c.newest(); n != nil && n.ID == f.ID && f.State == messages.ContainerExited && n.State != messages.ContainerExited {
			c.seen = &f
			m.answered("observe", c.name)
			m.tellSeen(now, c)
			return
		}
	}
	m.notice(f.ID, at)
	c.learn(f)
	if n := c.newest(); first && n != nil && n.ID == f.ID && f.Attempt > 0 {
		c.backoff = backoff{step: m.set.BackOffStep(f), last: f.CreatedAt}
	}
}

// tellSeen has a container's actor confirm the end that was read.
func (m *Machine) tellSeen(now time.Time, c *con) {
	if c.seen != nil && m.due(now, "observe", c.name, m.set.Patience) {
		m.emit(Tell{messages.ContainerAddress(m.uid, c.name), messages.ContainerObserved{UID: m.uid, Fact: *c.seen}})
	}
}

// takeMissing notes containers that the CRI no longer knows: someone removed them.
func (m *Machine) takeMissing(now time.Time, f messages.PodFacts) {
	listed := map[string]bool{}
	for _, o := range f.Containers {
		listed[o.ID] = true
	}
	for _, c := range m.cons {
		n := c.newest()
		if n == nil || listed[n.ID] || n.State == messages.ContainerExited || !m.known[n.ID].Before(f.ReadAt) {
			continue
		}
		if n.State == messages.ContainerCreated {
			c.facts = c.facts[1:] // it never ran: it is as if it had never been
			continue
		}
		gone := *n
		gone.State, gone.ExitCode, gone.Reason = messages.ContainerExited, 137, messages.ReasonUnknown
		gone.Message, gone.FinishedAt = "the container was removed from the runtime by someone else", now
		c.learn(gone)
		switch c.stage {
		case up, stopping, starting:
			m.answerEnd(c)
		case idle, due, spawning, imaging:
		}
	}
}
