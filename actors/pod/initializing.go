package pod

import "github.com/playlet-dev/playlet/messages"

// planInitializing: init containers run one after another, each to success; a sidecar among them has only to run, and
// to have started, before the next does; once the next has been made, its own restarts keep nobody waiting. Leads to Running,
// back to Preparing when the sandbox is lost or all are restarted, to Terminating.
func (m *Machine) planInitializing() Phase {
	if to := m.upkeep(); to != "" {
		return to
	}
	for _, c := range m.Containers { // what was added to look into the pod starts also while that is not initialized
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

// upkeep does what a pod needs that has its sandbox. Otherwise it says which phase follows: where the sandbox is lost, or all are
// to be restarted in it, what was to start waits for its turn in a new sandbox, or in a new round.
func (m *Machine) upkeep() Phase {
	switch {
	case m.over():
		return Terminating
	case m.Current() == nil, m.restarting():
		m.sandboxing.settled = ""
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
