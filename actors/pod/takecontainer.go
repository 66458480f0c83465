package pod

import (
	"fmt"
	"maps"
	"slices"

	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

func (m *Machine) takePulled(v messages.ImagePulled) {
	c := m.ImageOf(v.Key, v.Image)
	if c == nil {
		return
	}
	m.answered("image", c.Name)
	m.recordPulled(c, v)
	c.Image.Reason, c.Image.Awaits = nil, nil
	if v.Key.Volume == "" {
		c.Image.Ref = v.Ref
		return
	}
	volumes := map[string]string{} // anew: its actor may have those of before
	maps.Copy(volumes, c.Image.Volumes)
	volumes[v.Key.Volume] = v.Ref
	c.Image.Volumes = volumes
}

// takeChild: the actor of a container runs and knows nothing. One that was told something fell: it is told again, in another
// try. What its earlier life began may come yet.
func (m *Machine) takeChild(v messages.ChildStarted) {
	c := m.Container(v.Name)
	if c == nil {
		return
	}
	c.Actor = true
	m.answered("spawn", c.Name)
	switch c.Stage() {
	case messages.StageStarting, messages.StageRunning:
		c.Unread = m.now
		m.answerEnd(c)
	case messages.StageStopping, messages.StageWaiting:
		m.answered("stop", c.Name)
		m.answered("end", c.Name)
	case messages.StageIdle, messages.StageHooking:
	}
}

// takeExit: the actor of a container has ended with it. Whether it is started again the layer has judged by the strategy.
func (m *Machine) takeExit(v messages.ChildExited) {
	c := m.Container(v.Name)
	end, ok := v.Result.(messages.ContainerEnded)
	if c == nil || !ok {
		return
	}
	c.Actor = v.Verdict == messages.ExitRestarts
	m.answered("spawn", c.Name)
	if c.Actor {
		m.asks[ask{"spawn", c.Name}] = m.now.Add(max(v.RestartAt.Sub(m.now), 0) + m.Set.AnswerTimeout)
	}
	c.Learn(end.Fact, m.now)
	if !c.Is(end.Fact.ID) || c.Stage() == messages.StageIdle ||
		(c.Stage() == messages.StageStarting && end.Fact.Attempt != c.Attempt) {
		return // told once more; the next attempt is on its way
	}
	if c.Exited() != nil || c.Ending() {
		c.Retry = restarts.Retry{}
		m.answerEnd(c)
	}
}

// takeReport takes what the actor of a container says of its run. While the post-start hook runs, it is asked on until that has
// ended.
func (m *Machine) takeReport(v messages.ContainerReported) {
	c := m.Container(v.Name)
	if c == nil {
		return
	}
	if v.StopFailed != "" {
		if c.Ending() {
			c.Ends.Failed = v.StopFailed
			m.asks[ask{"stop", c.Name}] = m.now.Add(m.Set.AnswerTimeout / 3) // there is an answer: sooner than without
		}
		return
	}
	if v.Failed != nil {
		m.takeFailed(c, v)
		return
	}
	c.Learn(*v.Fact, m.now)
	is := c.Is(v.Fact.ID)
	if is {
		h := &c.Newest().Hook
		h.Known, h.Done = true, h.Done || v.Stage == messages.StageRunning
		if v.Stage == messages.StageHooking {
			h.Failed = v.HookFailed
		}
	}
	if v.Stage == messages.StageHooking {
		return
	}
	m.answered("run", c.Name)
	c.Retry = restarts.Retry{}
	if is && c.Stage() == messages.StageStarting && v.Fact.Attempt == c.Attempt {
		c.Enter(messages.StageRunning)
	}
}

func (m *Machine) takeFailed(c *known.Container, v messages.ContainerReported) {
	if c.Stage() != messages.StageStarting || v.Generation != c.Generation {
		return // told once more; the next try is on its way
	}
	if c.Running() && c.Newest().Attempt == c.Attempt && c.Newest().Hook.Known {
		// Told once more, since it has come as far as the hook; or its actor knows nothing of it, and somebody may have removed
		// it meanwhile. Where the reading has it, what names no sandbox is told anew.
		c.Sandbox = ""
		m.readPod()
		return
	}
	m.answerEnd(c)
	if v.Fact != nil {
		c.Learn(*v.Fact, m.now)
		if c.Is(v.Fact.ID) && c.Exited() != nil { // its start was cut off too often
			c.Retry = restarts.Retry{}
			return
		}
	}
	why := *v.Failed
	why.Container = c.Name
	c.Retry.Fails(m.now, why)
	if v.Taken || v.Reserved && c.Retry.Tries >= reservedTries {
		c.Free = c.Attempt + 1
	}
	c.Unread = m.now                       // without a word on it, it may run; and what it was told once more may start it yet
	c.Image.Ref, c.Image.Volumes = "", nil // they may be gone: they are asked for anew
	// What it needed may be gone without anyone having said so: the truth is read.
	m.emit(Tell{messages.Runtime, messages.ReadPod{UID: m.uid}})
}

// takeRestart has containers started again that a person named. Nothing is kept of it beyond this actor: what it asks for must
// be what restartPolicy does by itself, should the actor fall on the way.
func (m *Machine) takeRestart(v messages.RestartContainers) {
	if m.phase == Reading || m.Pod == nil {
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
		if m.restart(m.Container(name), v.IDs[name]) {
			out.Containers = append(out.Containers, name)
		}
	}
	m.emit(Reply{out})
}

// refusesRestart says why a container cannot be started again on request.
func (m *Machine) refusesRestart(name string) string {
	c := m.Container(name)
	switch {
	case c == nil || c.Spec == nil:
		return fmt.Sprintf("the pod has no container %q", name)
	case !m.live():
		return "the pod has ended, or is ending: nothing of it is started again"
	case c.Ephemeral:
		return fmt.Sprintf("container %s is ephemeral: such a one is started once", name)
	case c.Init && !c.Sidecar():
		return fmt.Sprintf("init container %s runs to its end, before the others", name)
	case c.Answer(m.Pod, messages.ContainerFact{}) != restarts.Again:
		return fmt.Sprintf("container %s runs once: with restartPolicy %s, its end would be taken for its completion; remove "+
			"the pod and run it again", name, translate.RestartPolicy(&m.Pod.Spec, c.Spec))
	}
	return ""
}

// restart starts one container again, where it is still the one that was meant, and says whether it is.
func (m *Machine) restart(c *known.Container, id string) bool {
	f := c.Newest()
	if f == nil || f.ID != id {
		return false
	}
	c.Retry = restarts.Retry{}
	switch {
	case f.State == messages.ContainerExited && c.Stage() == messages.StageIdle:
		m.startAnew(c)
	case c.Stage() == messages.StageStopping:
		c.Replace = true
	default:
		f.Renew = true
	}
	return true
}
