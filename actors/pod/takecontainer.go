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
	volumes := map[string]string{} // a new map: the container's actor may have the old one
	maps.Copy(volumes, c.Image.Volumes)
	volumes[v.Key.Volume] = v.Ref
	c.Image.Volumes = volumes
}

// takeChild handles the start of a container's actor, which carries out its order. A run is over if its order was taken back.
func (m *Machine) takeChild(v messages.ChildStarted) {
	c := m.Container(v.Name)
	if c != nil && v.Again && c.Sent == nil && c.Stage() != messages.StageIdle {
		c.Unread = m.now
		m.answerEnd(c)
	}
}

// takeExit handles the exit of a container's actor with its container. The supervisor has decided about the restart by the
// strategy.
func (m *Machine) takeExit(v messages.ChildExited) {
	c := m.Container(v.Name)
	end, ok := v.Result.(messages.ContainerEnded)
	if c == nil || !ok {
		return
	}
	if end.Fact.Attempt >= c.Exits.Run {
		c.Sent = nil // as in its supervisor's record
	}
	c.Actor = v.Verdict == messages.ExitRestarts || c.Sent != nil
	c.Learn(end.Fact, m.now)
	if !c.Is(end.Fact.ID) || c.Stage() == messages.StageIdle ||
		(c.Stage() == messages.StageStarting && end.Fact.Attempt != c.Attempt) {
		return // repeated; the next attempt has been ordered
	}
	if c.Exited() != nil || c.Ending() {
		c.Retry = restarts.Retry{}
		m.answerEnd(c)
	}
}

// takeReport handles the report of a container's actor about its run. While the post-start hook runs, the order stays pending.
func (m *Machine) takeReport(v messages.ContainerReported) {
	c := m.Container(v.Name)
	if c == nil {
		return
	}
	if v.StopFailed != "" {
		if c.Ending() {
			c.Ends.Failed = v.StopFailed
			m.asks[ask{"stop", c.Name}] = m.now.Add(m.Set.AnswerTimeout / 3) // there is an answer: sooner than without one
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
	if v.Generation != c.Generation || c.Stage() != messages.StageStarting && c.Stage() != messages.StageRunning {
		return // repeated; the next try has been ordered
	}
	if c.Stage() == messages.StageStarting && c.Running() && c.Newest().Attempt == c.Attempt && c.Newest().Hook.Known {
		// Either the report is repeated, since the run has reached the hook; or the actor does not know the container, which may
		// have been removed meanwhile. If the next reading still has the container, an empty sandbox makes the order a new one.
		c.Sandbox = ""
		m.readPod()
		return
	}
	m.answerEnd(c)
	if v.Failed.Cause.Code == messages.CauseUnmounted { // a tmpfs or a bind that others unmounted, which volumes has not seen
		m.volumes.mounted = false
		m.answered("mount", "")
	}
	if v.Fact != nil {
		c.Learn(*v.Fact, m.now)
		if c.Is(v.Fact.ID) && c.Exited() != nil { // its start was interrupted too often
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
	c.Unread = m.now                       // without a report it may run; and a repeated order may still start it
	c.Image.Ref, c.Image.Volumes = "", nil // the images may be gone: they are requested again
	// Its dependencies may have disappeared without a report: the CRI is read.
	m.emit(Tell{messages.Runtime, messages.ReadPod{UID: m.uid}})
}

// takeRestart restarts containers at a user's request. The request is not recorded outside this actor: if the actor fails
// meanwhile, restartPolicy must lead to the same result.
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

// refusesRestart returns the reason for which a container cannot be restarted at request, or "".
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
	case c.Verdict(m.Pod, &messages.ContainerFact{}) != messages.ExitRestarts:
		return fmt.Sprintf("container %s runs once: with restartPolicy %s, its end would be taken for its completion; remove "+
			"the pod and run it again", name, translate.RestartPolicy(&m.Pod.Spec, c.Spec))
	}
	return ""
}

// restart restarts one container if it still has this ID, and reports whether it does.
func (m *Machine) restart(c *known.Container, id string) bool {
	f := c.Newest()
	if f == nil || f.ID != id {
		return false
	}
	c.Retry = restarts.Retry{}
	switch {
	case f.State == messages.ContainerExited && c.Stage() == messages.StageIdle:
		c.Replace = true
	case c.Stage() == messages.StageStopping:
		c.Replace = true
	default:
		f.Renew = true
	}
	return true
}
