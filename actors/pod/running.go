package pod

// planRunning: every container has its turn, and is started again as restartPolicy says. Leads back to Preparing when
// the sandbox is lost, to Terminating when all is done, or asked to end.
func (m *Machine) planRunning() Phase {
	if to := m.upkeep(); to != "" {
		return to
	}
	for _, c := range m.Containers {
		if c.Spec == nil || (c.Init && !c.Sidecar()) {
			continue
		}
		m.ensure(c)
	}
	return Running
}

// over reports whether the pod has to end: it is asked to, it has run for as long as it may, or all is done.
func (m *Machine) over() bool {
	if m.ending == nil && m.Verdict == nil {
		m.Verdict = m.Judge(m.now)
		m.recordDeadline()
	}
	return m.ending != nil || m.Verdict != nil
}
