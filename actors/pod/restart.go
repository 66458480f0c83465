package pod

import (
	"fmt"
	"maps"
	"slices"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

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
	case c.answer(m.pod, messages.ContainerFact{}) != restart:
		return fmt.Sprintf("container %s runs once: with restartPolicy %s, its end would be taken for its completion; remove "+
			"the pod and run it again", name, cri.RestartPolicy(&m.pod.Spec, c.spec))
	}
	return ""
}

// restart starts one container again, where it is still the one that was meant, and says whether it is.
func (m *Machine) restart(c *container, id string) bool {
	f := c.newest()
	if f == nil || f.ID != id {
		return false
	}
	c.retry = retry{}
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
