package pod

import "github.com/playlet-dev/playlet/messages"

// planInitializing: init containers run one after another, each to success. A sidecar only has to run, and to have started,
// before the next one starts. After the next one was created, restarts of the sidecar delay nothing. Leads to Running, to
// Terminating, and back to Preparing when the sandbox is lost or all containers are restarted.
func (m *Machine) planInitializing() Phase {
	if to := m.upkeep(); to != "" {
		return to
	}
	for _, c := range m.Containers { // containers for debugging start before the pod is initialized, too
		if c.Ephemeral && c.Spec != nil {
			m.ensure(c)
		}
	}
	for i, c := range m.Containers {
		if c.Spec == nil || !c.Init || m.Initialized(c) {
			continue
		}
		running := m.ensure(c)
		if c.Sidecar() && m.Passed(i) {
			continue
		}
		if !running || !c.Sidecar() || !c.HasStarted() {
			return Initializing
		}
	}
	return Running
}

// upkeep maintains a pod with a sandbox. It returns the next phase if the sandbox is lost, or all containers have to be restarted
// in it: pending starts then wait for the new sandbox or round.
func (m *Machine) upkeep() Phase {
	switch {
	case m.over():
		return Terminating
	case m.Current() == nil, m.restarting():
		m.sandboxing.rereadSandbox = ""
		return Preparing
	}
	m.mount()
	m.ensureCgroup()
	m.stopSpare()
	m.clearRemoved()
	m.resize()
	return ""
}

// clearRemoved ends containers that the spec no longer has.
func (m *Machine) clearRemoved() {
	for _, c := range m.Containers {
		if c.Spec != nil {
			continue
		}
		if c.Alive() {
			m.stopContainer(c, m.Grace(), messages.Cause{Text: "it is no longer in the pod's spec"})
		} else if c.Actor {
			m.drop(c)
		}
	}
}
