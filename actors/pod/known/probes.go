package known

import (
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// HookEnded says that the newest container's post-start hook has ended, where it has one.
func (c *Container) HookEnded() bool {
	f := c.Newest()
	return !HasPostStart(c.Spec) || f == nil || f.Hook.Done
}

// HasPostStart says that a container has a post-start hook.
func HasPostStart(spec *v1.Container) bool {
	return spec != nil && spec.Lifecycle != nil && spec.Lifecycle.PostStart != nil
}

// Results are those of the container that is the newest: of another, nothing counts.
func (c *Container) Results() messages.ProbeResults {
	if f := c.Newest(); f != nil {
		return f.Results
	}
	return messages.ProbeResults{}
}

// Probed says that a container has probes; only those that stay up have.
func Probed(spec *v1.Container) bool {
	return spec != nil && (spec.StartupProbe != nil || spec.ReadinessProbe != nil || spec.LivenessProbe != nil)
}

// HasStarted says that the container runs and is up for others: its post-start hook has ended and its startup probe has
// succeeded, where it has them.
func (c *Container) HasStarted() bool {
	return c.Running() && c.HookEnded() && (c.Spec == nil || c.Spec.StartupProbe == nil ||
		c.Results().Startup == messages.ProbeSucceeded)
}

// IsReady says that the container has started and that its readiness probe agrees, where it has one.
func (c *Container) IsReady() bool {
	return c.HasStarted() && (c.Spec == nil || c.Spec.ReadinessProbe == nil || c.Results().Readiness == messages.ProbeSucceeded)
}

// Unfit is the kind of the probe by which the container must end; empty when it need not.
func (c *Container) Unfit() messages.ProbeKind {
	if c.Spec == nil {
		return ""
	}
	for _, kind := range []messages.ProbeKind{messages.Liveness, messages.Startup} {
		if r := c.Results(); messages.Probe(c.Spec, kind) != nil && *r.Of(kind) == messages.ProbeFailed {
			return kind
		}
	}
	return ""
}
