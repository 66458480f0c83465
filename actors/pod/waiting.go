package pod

import (
	"strings"
	"time"

	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/messages"
)

// waiting returns the reason for which the pod waits, or nil: the one that a user should read first.
func (m *Machine) waiting() *messages.Reason {
	if !m.live() {
		return m.endWaits()
	}
	if !m.cgroup.ready && m.cgroup.reason != nil {
		return m.cgroup.reason
	}
	if m.Current() == nil && m.lacksClaims() {
		return m.awaitsClaims("prepared")
	}
	if m.Current() == nil && m.Wanted.NoNetwork != nil {
		return m.Wanted.NoNetwork
	}
	if m.Current() == nil && m.sandboxing.retry.Failed != nil {
		return m.sandboxing.retry.Failed
	}
	if !m.volumes.mounted && m.volumes.reason != nil {
		return m.volumes.reason
	}
	if m.restarting() {
		return &messages.Reason{Code: messages.ReasonRestartingAll, Message: "all containers are restarted: " + m.rounds.Cause}
	}
	for _, c := range m.Containers {
		if r := m.starts().Hold(c); r != nil {
			if a := c.Awaits(); a != nil {
				again := *a
				again.Message += "; before, " + r.String()
				again.Before, again.Tries = r.Cause, r.Tries
				return &again
			}
			return r
		}
	}
	for _, of := range []func(*known.Container) *messages.Reason{(*known.Container).Awaits, (*known.Container).Unhealthy} {
		for _, c := range m.Containers {
			if r := of(c); r != nil {
				return r
			}
		}
	}
	return m.slow()
}

// slowPreparation is the time after which the missing parts of a pod are reported. A usual start takes less.
const slowPreparation = 5 * time.Second

// slow returns the parts that a slow preparation waits for, or nil. Images are reported by their containers.
func (m *Machine) slow() *messages.Reason {
	if m.phase != Preparing || m.now.Before(m.preparing.Add(slowPreparation)) {
		return nil
	}
	var parts []string
	if !m.cgroup.ready {
		parts = append(parts, "the cgroup")
	}
	if m.Current() == nil || m.newerSandbox() {
		parts = append(parts, "the sandbox")
	}
	if !m.volumes.mounted {
		parts = append(parts, "the volumes")
	}
	if len(parts) == 0 {
		return nil
	}
	return &messages.Reason{Code: messages.ReasonContainerCreating, Since: m.preparing,
		Message: strings.Join(parts, " and ")}
}

// awaitsClaims returns the last failure of the pod's ResourceClaims, or that calls of drivers are in progress.
func (m *Machine) awaitsClaims(done string) *messages.Reason {
	if m.claims.reason != nil {
		return m.claims.reason
	}
	return &messages.Reason{Code: messages.ReasonAwaitDrivers, Message: "its ResourceClaims are being " + done}
}

func (m *Machine) endWaits() *messages.Reason {
	switch m.phase {
	case Terminating:
		var first *known.Container
		for _, c := range m.Containers {
			if c.Alive() && c.Ending() && (first == nil || first.Stage() == messages.StageWaiting) {
				first = c
			}
		}
		if first != nil {
			return first.Killing()
		}
		if f := m.sandboxing.retry.Failed; f != nil && f.Code == messages.ReasonStopSandbox {
			return f
		}
		if m.asking("unprepare", "") {
			return m.awaitsClaims("unprepared")
		}
	case Cleaning:
		switch {
		case m.cleaned.published != nil:
			return m.cleaned.published
		case !m.cleaned.volumes:
			return &messages.Reason{Code: messages.ReasonUnmounting, Message: "its volumes are being unmounted"}
		case m.ending != nil && !m.cleaned.runtime && m.cleaned.retry.Failed != nil:
			return m.cleaned.retry.Failed
		default:
			return &messages.Reason{Code: messages.ReasonRemoving, Message: "what is left of it is being removed"}
		}
	case Reading, Preparing, Initializing, Running, Finished:
	}
	return nil
}
