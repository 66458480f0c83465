package pod

import (
	"fmt"

	"github.com/playlet-dev/playlet/messages"
)

// waiting is what the pod waits for, where it does: the reason that a person should read first.
func (m *Machine) waiting() *messages.Reason {
	if !m.live() {
		return m.endWaits()
	}
	if !m.cgroup.ready && m.cgroup.reason != nil {
		return m.cgroup.reason
	}
	if m.sandboxes.current() == nil && m.desired.NoNetwork != nil {
		return m.desired.NoNetwork
	}
	if m.sandboxes.current() == nil && m.sandboxing.retry.Failed != nil {
		return m.sandboxing.retry.Failed
	}
	if !m.volumes.mounted && m.volumes.reason != nil {
		return m.volumes.reason
	}
	if m.restarting() {
		return &messages.Reason{Code: messages.ReasonRestartingAll, Message: "all containers are restarted: " + m.rounds.cause}
	}
	for _, c := range m.containers {
		if r := m.hold(c); r != nil {
			if a := c.awaits(); a != nil {
				again := *a
				again.Message += "; before, " + r.String()
				again.Cause, again.Tries = r.Cause, r.Tries
				return &again
			}
			return r
		}
	}
	for _, of := range []func(*container) *messages.Reason{(*container).awaits, (*container).unhealthy} {
		for _, c := range m.containers {
			if r := of(c); r != nil {
				return r
			}
		}
	}
	return nil
}

func (m *Machine) endWaits() *messages.Reason {
	switch m.phase {
	case Terminating:
		var first *container
		for _, c := range m.containers {
			if c.alive() && c.stage == messages.StageStopping && (first == nil || first.ends.hookOnly) {
				first = c
			}
		}
		if first != nil {
			return first.killing()
		}
		if f := m.sandboxing.retry.Failed; f != nil && f.Code == messages.ReasonStopSandbox {
			return f
		}
	case Cleaning:
		switch {
		case m.cleaned.published != "":
			return &messages.Reason{Code: messages.ReasonUnmounting,
				Message: "a CSI driver has volumes of it still: " + m.cleaned.published}
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

// awaits is how far the pull of the image is, while that is what the container waits for. It is nothing that went wrong.
func (c *container) awaits() *messages.Reason {
	if c.spec == nil || c.running() || c.image.ref != "" {
		return nil
	}
	return c.image.awaits
}

// unhealthy is why a container that runs has not started for others, is not ready, or is ended: a probe that fails.
func (c *container) unhealthy() *messages.Reason {
	if c.spec == nil || !c.running() {
		return nil
	}
	at, kind, failing := c.newest(), c.unfit(), messages.FailingProbe{}
	for _, f := range at.failing {
		counts := f.Kind != messages.Liveness && *at.results.Of(f.Kind) != messages.ProbeSucceeded
		if f.Kind == kind || kind == "" && counts {
			failing = f
		}
	}
	switch {
	case kind == "" && at.hook.failed != "":
		return &messages.Reason{Code: messages.ReasonKilling, Container: c.name,
			Cause: messages.PostStartFailed + at.hook.failed}
	case kind != "" && c.stage == messages.StageStopping:
		r := c.killing()
		r.Probe, r.Cause = kind, failing.Said
		return r
	case failing.Kind != "":
		return &messages.Reason{
			Code: messages.ReasonUnhealthy, Message: string(failing.Kind) + " probe failed: " + failing.Said, Container: c.name,
			Since: failing.Since, Probe: failing.Kind, Cause: failing.Said,
		}
	}
	return nil
}

// killing is that a container is being ended, and until when it may take.
func (c *container) killing() *messages.Reason {
	return &messages.Reason{Code: messages.ReasonKilling, Message: c.ends.why, Container: c.name,
		Since: c.ends.until.Add(-c.ends.grace), RetryAt: c.ends.until, Cause: c.ends.failed}
}

// hold is what keeps one container from starting, where something does.
func (m *Machine) hold(c *container) *messages.Reason {
	switch {
	case c.spec == nil || c.running():
		return nil
	case c.image.reason != nil && c.image.ref == "":
		return c.image.reason
	case c.retry.Failed != nil:
		return c.retry.Failed
	case c.stage != messages.StageStarting && (c.init || m.phase == Running) && m.phase != Preparing && c.backoff.Step > 0:
		what, at := m.lacks(c)
		if what != backingOff {
			return nil
		}
		end := c.exited()
		r := &messages.Reason{
			Code: messages.ReasonCrashLoopBackOff, RetryAt: at, Container: c.name, Since: end.FinishedAt, Tries: int(end.Attempt),
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", m.set.BackOff.Wait(c.backoff.Step),
				c.name, m.pod.Name, m.pod.Namespace, m.uid),
		}
		if end.hook.failed != "" {
			r.Cause = messages.PostStartFailed + end.hook.failed
		}
		for _, f := range end.failing {
			if f.Kind == c.unfit() {
				r.Probe, r.Cause = f.Kind, f.Said
			}
		}
		return r
	}
	return nil
}
