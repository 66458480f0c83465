package pod

import (
	"fmt"
	"maps"
	"slices"

	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

func (m *Machine) takePulled(v messages.ImagePulled) {
	c := m.imageOf(v.Key, v.Image)
	if c == nil {
		return
	}
	m.answered("image", c.name)
	m.recordPulled(c, v)
	c.image.reason, c.image.awaits = nil, nil
	if v.Key.Volume == "" {
		c.image.ref = v.Ref
		return
	}
	volumes := map[string]string{} // anew: its actor may have those of before
	maps.Copy(volumes, c.image.volumes)
	volumes[v.Key.Volume] = v.Ref
	c.image.volumes = volumes
}

// imageOf is the container whose need of an image is answered; nil when it has another by now.
func (m *Machine) imageOf(key messages.ImageKey, image string) *container {
	c := m.container(key.Container)
	if c == nil || c.spec == nil || c.image.attempt != key.Attempt {
		return nil
	}
	if want, _, volume := m.nextImage(c); want != image || volume != key.Volume {
		return nil
	}
	return c
}

// takeChild: the actor of a container runs and knows nothing. One that was told something fell: it is told again, in another
// try. What its earlier life began may come yet.
func (m *Machine) takeChild(v messages.ChildStarted) {
	c := m.container(v.Name)
	if c == nil {
		return
	}
	c.actor = true
	m.answered("spawn", c.name)
	switch c.stage {
	case messages.StageStarting, messages.StageRunning:
		c.unread = m.now
		m.answerEnd(c)
	case messages.StageStopping:
		m.answered("stop", c.name)
		m.answered("end", c.name)
	case messages.StageIdle, messages.StageHooking, messages.StageWaiting:
	}
}

// takeExit: the actor of a container has ended with it. Whether it is started again the layer has judged by the strategy.
func (m *Machine) takeExit(v messages.ChildExited) {
	c := m.container(v.Name)
	end, ok := v.Result.(messages.ContainerEnded)
	if c == nil || !ok {
		return
	}
	c.actor = v.Verdict == messages.ExitRestarts
	m.answered("spawn", c.name)
	if c.actor {
		m.asks[ask{"spawn", c.name}] = m.now.Add(max(v.RestartAt.Sub(m.now), 0) + m.set.AnswerTimeout)
	}
	c.learn(end.Fact, m.now)
	if !c.is(end.Fact.ID) || c.stage == messages.StageIdle ||
		(c.stage == messages.StageStarting && end.Fact.Attempt != c.attempt) {
		return // told once more; the next attempt is on its way
	}
	if c.exited() != nil || c.stage == messages.StageStopping {
		c.retry = restarts.Retry{}
		m.answerEnd(c)
	}
}

// takeReport takes what the actor of a container says of its run. While the post-start hook runs, it is asked on until that has
// ended.
func (m *Machine) takeReport(v messages.ContainerReported) {
	c := m.container(v.Name)
	if c == nil {
		return
	}
	if v.StopFailed != "" {
		if c.stage == messages.StageStopping {
			c.ends.failed = v.StopFailed
		}
		return
	}
	if v.Failed != nil {
		m.takeFailed(c, v)
		return
	}
	c.learn(*v.Fact, m.now)
	is := c.is(v.Fact.ID)
	if is {
		h := &c.newest().hook
		h.known, h.done = true, h.done || v.Stage == messages.StageRunning
		if v.Stage == messages.StageHooking {
			h.failed = v.HookFailed
		}
	}
	if v.Stage == messages.StageHooking {
		return
	}
	m.answered("run", c.name)
	c.retry = restarts.Retry{}
	if is && c.stage == messages.StageStarting && v.Fact.Attempt == c.attempt {
		c.stage = messages.StageRunning
	}
}

func (m *Machine) takeFailed(c *container, v messages.ContainerReported) {
	if c.stage != messages.StageStarting || v.Generation != c.generation ||
		c.running() && c.newest().Attempt == c.attempt && c.newest().hook.known {
		return // told once more; the next try is on its way, or has come as far as the hook
	}
	m.answerEnd(c)
	if v.Fact != nil {
		c.learn(*v.Fact, m.now)
	}
	if v.Taken {
		c.free = c.attempt + 1
	}
	why := *v.Failed
	why.Container = c.name
	c.retry.Fails(m.now, why)
	c.unread = m.now                       // without a word on it, it may run; and what it was told once more may start it yet
	c.image.ref, c.image.volumes = "", nil // they may be gone: they are asked for anew
	// What it needed may be gone without anyone having said so: the truth is read.
	m.emit(Tell{messages.Runtime, messages.ReadPod{UID: m.uid}})
}

// takeRestart has containers started again that a person named. Nothing is kept of it beyond this actor: what it asks for must
// be what restartPolicy does by itself, should the actor fall on the way.
func (m *Machine) takeRestart(v messages.RestartContainers) {
	if m.phase == Reading || m.pod == nil {
		return
	}
	out := messages.RestartTaken{UID: m.uid}
	names := slices.Sorted(maps.Keys(v.IDs))
	for _, name := range names {
		if out.Refused = m.refusesRestart(name); out.Refused != "" {
			m.emit(Reply{out})
			return
		}
	}
	for _, name := range names {
		if m.restart(m.container(name), v.IDs[name]) {
			out.Containers = append(out.Containers, name)
		}
	}
	m.emit(Reply{out})
}

// refusesRestart says why a container cannot be started again on request.
func (m *Machine) refusesRestart(name string) string {
	c := m.container(name)
	switch {
	case c == nil || c.spec == nil:
		return fmt.Sprintf("the pod has no container %q", name)
	case !m.live():
		return "the pod has ended, or is ending: nothing of it is started again"
	case c.ephemeral:
		return fmt.Sprintf("container %s is ephemeral: such a one is started once", name)
	case c.init && !c.sidecar():
		return fmt.Sprintf("init container %s runs to its end, before the others", name)
	case c.answer(m.pod, messages.ContainerFact{}) != restarts.Again:
		return fmt.Sprintf("container %s runs once: with restartPolicy %s, its end would be taken for its completion; remove "+
			"the pod and run it again", name, translate.RestartPolicy(&m.pod.Spec, c.spec))
	}
	return ""
}

// restart starts one container again, where it is still the one that was meant, and says whether it is.
func (m *Machine) restart(c *container, id string) bool {
	f := c.newest()
	if f == nil || f.ID != id {
		return false
	}
	c.retry = restarts.Retry{}
	switch {
	case f.State == messages.ContainerExited && c.stage == messages.StageIdle:
		m.startAnew(c)
	case c.stage == messages.StageStopping:
		c.replace = true
	default:
		f.renew = true
	}
	return true
}
