package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// Results of the pod's own work.
type (
	// SandboxStarted is the result of StartSandbox. Fact is nil when it failed.
	SandboxStarted struct {
		Attempt uint32
		Fact    *messages.SandboxFact
		Reason  messages.Reason
		// Taken says that the attempt's name belongs to something else for good: the next attempt is another.
		Taken bool
		// Warnings say what of the pod's resolver configuration had to be left out.
		Warnings []translate.DNSWarning
	}
	// SandboxStopped is the result of StopSandbox.
	SandboxStopped struct {
		ID     string
		Failed *messages.Reason
	}
	// ContainerResized is the result of ResizeContainer.
	ContainerResized struct {
		Name, ID  string
		Resources *v1.ResourceRequirements     // what it was given
		Told      *messages.ContainerResources // what the runtime says that it has since; nil where it does not tell
		Failed    *messages.Reason
		Sent      bool // the runtime was asked for it
	}
	// SandboxUpdated is the result of UpdateSandbox.
	SandboxUpdated struct {
		ID     string
		Pod    *v1.Pod // of which the runtime was told
		Failed *messages.Reason
	}
	// PodRemoved is the result of RemovePod.
	PodRemoved struct{ Failed *messages.Reason }
)

// take notes what a message says. What follows from it is the plan's.
func (m *Machine) take(now time.Time, msg any) {
	switch v := msg.(type) {
	case messages.PodWanted:
		m.takeWanted(now, v)
	case messages.PodObserved:
		m.takeFacts(now, v.Facts)
	case messages.ServiceStarted:
		m.takeService(v.Service)
	case messages.VolumesMounted:
		m.answered("mount", "")
		m.volumes = volumes{mounted: true, paths: v.Paths}
	case messages.VolumesFailed:
		v.Reason.Volume = v.Volume
		m.recordMount(v)
		m.volumes.reason = &v.Reason // volumes goes on trying; the question stays open
	case messages.VolumesUnmounted:
		m.volumes.mounted = false
		if m.ending != nil && !v.Removed {
			return // the answer to an earlier question; the pod has to be removed since
		}
		if m.cleaned.published = ""; v.Published {
			m.cleaned.published = v.Left
		} else {
			m.answered("unmount", "") // otherwise it is asked again after a while
		}
		if m.cleaned.volumes = m.phase == Cleaning && !v.Published; v.Left != "" {
			m.record("", v1.EventTypeWarning, messages.EventFailedUnmount, "%s",
				explain.Event("UnmountVolume.TearDown failed", "volumes of the pod cannot be unmounted: "+v.Left))
		}
	case messages.ProbesObserved:
		m.takeProbes(v)
	case messages.PodCgroupReady, messages.PodCgroupFailed, messages.PodCgroupRemoved:
		m.takeCgroup(v)
	case SandboxStarted, SandboxStopped, PodRemoved:
		m.takeWork(now, v)
	case SandboxUpdated:
		m.takeSandboxUpdated(now, v)
	case ContainerResized:
		m.takeResized(now, v)
	case messages.DevicesChanged:
		// the status has it, which is made with each step
	case messages.RestartContainers:
		m.takeRestart(v)
	default:
		m.takeContainer(now, msg)
	}
}

// takeWork notes the result of the pod's own work.
func (m *Machine) takeWork(now time.Time, msg any) {
	switch v := msg.(type) {
	case SandboxStarted:
		m.answered("sandbox", "")
		if v.Taken {
			m.sandboxes.next = max(m.sandboxes.next, v.Attempt+1)
		}
		if v.Fact == nil {
			if !v.Taken {
				m.recordSandbox(v.Reason)
			}
			m.sandboxFailed(now, v.Reason)
			return
		}
		m.notice(v.Fact.ID, now)
		fact := *v.Fact
		fact.IPs = m.byFamily(fact.IPs)
		m.sandboxes.learn(fact)
		for _, w := range v.Warnings {
			m.record("", v1.EventTypeWarning, w.Reason, "%s", w.Message)
		}
		if s := m.sandboxes.unfit(); s != nil && s.NoIP {
			r := messages.Reason{Code: messages.ReasonCreateSandbox, Message: "the runtime gave the sandbox no IP address"}
			m.recordSandbox(r)
			m.sandboxFailed(now, r)
			return
		}
		m.sandboxes.failed, m.sandboxes.tries, m.sandboxes.retry = nil, 0, time.Time{}
	case SandboxStopped:
		m.answered("stopSandbox", v.ID)
		if v.Failed != nil {
			m.warn("", messages.EventFailedKillPod, *v.Failed, "error killing pod: %s", v.Failed.Message)
			m.sandboxFailed(now, *v.Failed)
			return
		}
		m.sandboxes.stopped[v.ID] = true
		for i := range m.sandboxes.all {
			if m.sandboxes.all[i].ID == v.ID {
				m.sandboxes.all[i].Ready = false
			}
		}
	case PodRemoved:
		m.answered("remove", "")
		if v.Failed != nil {
			m.cleaned.tries++
			m.cleaned.retry = now.Add(retryDelay(m.cleaned.tries))
			v.Failed.Tries, v.Failed.RetryAt = m.cleaned.tries, m.cleaned.retry
			m.cleaned.failed = v.Failed
			if m.cleaned.tries == 1 {
				m.warn("", messages.ReasonFailedRemove, *v.Failed, "error removing pod: %s", v.Failed.Message)
			}
			return
		}
		m.cleaned.runtime = true
	}
}
