package pod

import "slices"

// planInitializing: init containers run one after another, each to success; a sidecar among them has only to run, and
// to have started, before the next does; once the next has been made, its own restarts keep nobody waiting. Leads to Running,
// back to Preparing when the sandbox is lost or all are restarted, to Terminating.
func (m *Machine) planInitializing() Phase {
	if to := m.upkeep(); to != "" {
		return to
	}
	for _, c := range m.containers { // what was added to look into the pod starts also while that is not initialized
		if c.ephemeral && c.spec != nil {
			m.ensure(c)
		}
	}
	for i, c := range m.containers {
		if c.spec == nil || !c.init || m.initialized(c) {
			continue
		}
		running := m.ensure(c)
		if c.sidecar() && m.passed(i) {
			continue
		}
		if !running || !c.sidecar() || !c.hasStarted() {
			return Initializing
		}
	}
	return Running
}

// passed says that a later init container has been made in the current sandbox: initialization is past this one.
func (s *state) passed(i int) bool {
	current := s.sandboxes.current()
	return current != nil && slices.ContainsFunc(s.containers[i+1:], func(c *container) bool {
		return c.init && !c.earlier && c.madeIn(current.ID)
	})
}

// initialized says that an init container has done its part in the current sandbox.
func (s *state) initialized(c *container) bool {
	current, f := s.sandboxes.current(), c.exited()
	if c.sidecar() || current == nil {
		return false
	}
	return s.begun(current.ID) || f != nil && f.ExitCode == 0 && f.SandboxID == current.ID && !c.earlier
}

// begun says that a regular container has been made in the sandbox, so that all init containers have succeeded in it,
// even where the collector has removed them since.
func (s *state) begun(sandbox string) bool {
	return slices.ContainsFunc(s.containers, func(c *container) bool {
		return !c.init && !c.ephemeral && !c.earlier && c.madeIn(sandbox)
	})
}

// nextInit is the init container whose turn it is, or nil when the others' is.
func (s *state) nextInit() *container {
	for i, c := range s.containers {
		if c.spec == nil || !c.init || s.initialized(c) || (c.sidecar() && s.passed(i)) {
			continue
		}
		if current := s.sandboxes.current(); c.sidecar() && current != nil &&
			(s.begun(current.ID) || (c.hasStarted() && c.newest().SandboxID == current.ID && !c.earlier)) {
			continue
		}
		return c
	}
	return nil
}

// upkeep does what a pod needs that has its sandbox. Otherwise it says which phase follows: where the sandbox is lost, or all are
// to be restarted in it, what was to start waits for its turn in a new sandbox, or in a new round.
func (m *Machine) upkeep() Phase {
	switch {
	case m.over():
		return Terminating
	case m.sandboxes.current() == nil, m.restarting():
		m.sandboxing.settled = ""
		return Preparing
	}
	m.mount()
	m.ensureCgroup()
	m.clearRemoved()
	m.resize()
	return ""
}

// clearRemoved ends containers that the spec no longer has.
func (m *Machine) clearRemoved() {
	for _, c := range m.containers {
		if c.spec != nil {
			continue
		}
		if c.alive() {
			m.stopContainer(c, m.grace(), "it is no longer in the pod's spec")
		} else if c.actor {
			m.drop(c)
		}
	}
}
