package pod

// planRunning: all containers run, and are restarted by restartPolicy. Leads back to Preparing when the sandbox is lost, and to
// Terminating when all are done or the pod has to end.
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

// over reports whether the pod has to end: by order, by its deadline, or because all containers are done.
func (m *Machine) over() bool {
	if m.ending == nil && m.Verdict == nil {
		m.Verdict = m.Judge(m.now)
		m.recordVerdict()
	}
	return m.ending != nil || m.Verdict != nil
}
