package sim

import (
	"fmt"
)

// Violations returns the acts of the caller so far that no careful agent commits, oldest first, each as "rule: event". The rules:
//
//   - started-twice: StartContainer for a container that was started before, or is being started.
//   - create-in-dead-sandbox: CreateContainer in a sandbox the caller itself had stopped or removed, or for the second
//     time in one lost by accident.
//   - start-in-dead-sandbox: StartContainer in a sandbox the caller itself had stopped.
//   - two-ready-sandboxes: a sandbox became ready while another of the same pod UID was.
//   - two-pods-one-name: a sandbox became ready while another pod of the same namespace and name had one.
//   - two-running: a container started while another of the same pod UID and name was running.
//   - removed-running: a container or sandbox was removed while running without a requested stop.
//   - stopped-over-running: StopPodSandbox killed a container without a requested stop, so it got no grace period.
//   - image-in-use: RemoveImage of an image that a container still refers to.
func (r *Runtime) Violations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.violations...)
}

// violateLocked records that the caller broke a rule.
func (r *Runtime) violateLocked(rule, format string, args ...any) {
	r.violations = append(r.violations, rule+": "+fmt.Sprintf(format, args...))
}

// checkNewSandboxLocked checks for other ready sandboxes that must not coexist with a new one.
func (r *Runtime) checkNewSandboxLocked(sb *sandbox) {
	for other := range r.store.sandboxesByUID[sb.uid()] {
		if other.ready {
			r.violateLocked("two-ready-sandboxes", "%s became ready while %s was", sb.name, other.name)
		}
	}
	for other := range r.store.sandboxesByName[podName(sb)] {
		if other.ready && other.uid() != sb.uid() {
			r.violateLocked("two-pods-one-name", "%s became ready while %s was", sb.name, other.name)
		}
	}
}

// checkRemovedSandboxLocked checks for processes that a removal would kill without a requested stop.
func (r *Runtime) checkRemovedSandboxLocked(sb *sandbox) {
	if sb.ready && !sb.stopAsked {
		r.violateLocked("removed-running", "RemovePodSandbox of %s, which was ready", sb.name)
	}
	for _, c := range sb.containers {
		if c.running() && !c.stopAsked {
			r.violateLocked("removed-running", "RemovePodSandbox of %s killed %s", sb.name, c.name)
		}
	}
}
