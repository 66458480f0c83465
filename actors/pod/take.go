package pod

import (
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/messages"
)

// take records the content of a message. The plan decides the consequences.
func (m *Machine) take(msg any) {
	switch v := msg.(type) {
	case messages.PodWanted:
		m.takeWanted(v)
	case messages.PodObserved:
		m.takeFacts(v.Facts)
	case messages.ServiceStarted:
		m.takeService(v.Service)
	case messages.VolumesMounted:
		m.answered("mount", "")
		m.volumes = volumes{mounted: true, answeredAt: m.now, paths: v.Paths, mounts: v.Mounts, groups: v.Groups}
		m.NoPlace = nil
	case messages.VolumesFailed:
		v.Reason.Volume = v.Volume
		if !v.Quiet {
			m.recordMount(v)
		}
		m.volumes.reason = &v.Reason // volumes retries; the request stays open
		if m.NoPlace = nil; v.Reason.Cause.Code == messages.CauseAttachLimit && !m.HasRun() {
			m.NoPlace = &v.Reason
		}
	case messages.VolumesUnmounted:
		m.takeUnmounted(v)
	case messages.PodCgroupReady:
		if v.Pod == m.cgroup.of || m.cgroup.of == nil && v.Pod == m.Pod {
			m.answered("cgroup", "")
			m.cgroup = cgroup{ready: true, of: v.Pod, has: v.Pod, parent: v.Parent}
		}
	case messages.PodCgroupFailed:
		if m.live() && (m.cgroup.reason == nil || !same(*m.cgroup.reason, v.Reason)) {
			m.warn("", messages.EventFailedPodContainer, v.Reason, "unable to ensure pod container exists: %s", v.Reason.Message)
		}
		if m.resizing.active {
			m.resizeFailed(m.now)
		}
		m.cgroup.reason = &v.Reason // resources retries; the request stays open
	case messages.ClaimsPrepared:
		m.answered("prepare", "")
		m.claims.prepared, m.claims.reason = true, nil
	case messages.ClaimsReleased:
		m.answered("unprepare", "")
		m.claims = claims{released: m.phase == Terminating}
	case messages.ClaimsFailed:
		m.takeClaimsFailed(v)
	case messages.PodCgroupRemoved:
		m.cgroup.ready, m.cgroup.has = false, nil
		m.answered("uncgroup", "")
		m.cleaned.cgroup = m.phase == Cleaning
	case messages.ProbesObserved:
		m.takeProbes(v)
	case work.SandboxStarted:
		m.takeSandboxStarted(v)
	case work.SandboxStopped:
		m.takeSandboxStopped(v)
	case work.SandboxUpdated:
		m.takeSandboxUpdated(v)
	case work.PodRemoved:
		m.takeRemoved(v)
	case work.ContainerResized:
		m.takeResized(v)
	case messages.DevicesChanged:
		// the status, which is made with each step, contains it
	case messages.ContainerOutOfMemory:
		if c := m.Container(v.Container); c != nil {
			c.OutOfMemory(v.ContainerID, v.At)
		}
	case messages.RestartContainers:
		m.takeRestart(v)
	case messages.ChildStarted:
		m.takeChild(v)
	case messages.ChildExited:
		m.takeExit(v)
	case messages.ContainerReported:
		m.takeReport(v)
	case messages.ImagePulled:
		m.takePulled(v)
	case messages.ImageFailed:
		if c := m.ImageOf(v.Key, v.Image); c != nil {
			v.Reason.Container, v.Reason.Volume = c.Name, v.Key.Volume
			m.recordImageFailed(c, v)
			c.Image.Reason, c.Image.Awaits = &v.Reason, nil // images retries; the request stays open
		}
	case messages.ImageAwaited:
		if c := m.ImageOf(v.Key, v.Image); c != nil {
			v.Reason.Container, v.Reason.Volume = c.Name, v.Key.Volume
			m.recordPulling(c, v)
			c.Image.Awaits = &v.Reason
		}
	default:
		m.emit(UnhandledMessage{msg})
	}
}

// takeClaimsFailed records why the claims are not ready or not released. resources retries; the request stays open.
func (m *Machine) takeClaimsFailed(v messages.ClaimsFailed) {
	if v.Release != (m.phase == Terminating) || m.claims.prepared && !v.Release {
		return // the answer to an earlier request
	}
	if was := m.claims.reason; !v.Release && m.live() && (was == nil || !same(*was, v.Reason)) {
		m.warn("", messages.EventFailedPrepare, v.Reason, "Failed to prepare dynamic resources: %s", v.Reason.Message)
	}
	m.claims.reason = &v.Reason
}

func (m *Machine) takeUnmounted(v messages.VolumesUnmounted) {
	m.volumes.mounted = false
	if m.ending != nil && !v.Removed {
		return // the answer to an earlier request; since then the pod has to be removed
	}
	if m.cleaned.published = nil; v.Published {
		m.cleaned.published = &messages.Reason{Code: messages.ReasonUnmounting,
			Message: "a CSI driver has volumes of it still: " + v.Left, Cause: v.Cause}
	} else {
		m.answered("unmount", "") // otherwise the request is repeated after a while
	}
	if m.cleaned.volumes = m.phase == Cleaning && !v.Published; v.Left != "" {
		m.record("", v1.EventTypeWarning, messages.EventFailedUnmount, "%s",
			explain.Event("UnmountVolume.TearDown failed", "volumes of the pod cannot be unmounted: "+v.Left))
	}
}

// reservedTries is the number of failures in a row after which a name that the runtime keeps reserved is replaced by the name of
// the next attempt. An interrupted call may release it within seconds.
const reservedTries = 3

func (m *Machine) takeSandboxStarted(v work.SandboxStarted) {
	m.answered("sandbox", "")
	if v.Taken {
		m.Sandboxes.Next = max(m.Sandboxes.Next, v.Attempt+1)
	}
	if v.Fact == nil {
		if !v.Taken {
			m.recordSandbox(v.Reason)
		}
		if m.sandboxing.retry.Fails(m.now, v.Reason); v.Reserved && m.sandboxing.retry.Tries >= reservedTries {
			m.Sandboxes.Next = max(m.Sandboxes.Next, v.Attempt+1)
		}
		return
	}
	m.LearnSandbox(*v.Fact, m.now)
	for _, w := range v.Warnings {
		m.record("", v1.EventTypeWarning, w.Reason, "%s", w.Message)
	}
	if s := m.Sandboxes.Unfit(); s != nil && s.NoIP {
		r := messages.Reason{Code: messages.ReasonCreateSandbox, Message: "the runtime gave the sandbox no IP address"}
		m.recordSandbox(r)
		m.sandboxing.retry.Fails(m.now, r)
		return
	}
	m.sandboxing.retry = restarts.Retry{}
}

func (m *Machine) takeSandboxStopped(v work.SandboxStopped) {
	m.answered("stopSandbox", v.ID)
	if v.Failed != nil {
		m.warn("", messages.EventFailedKillPod, *v.Failed, "error killing pod: %s", v.Failed.Message)
		m.sandboxing.retry.Fails(m.now, *v.Failed)
		if v.Running {
			m.readAgain()
		}
	} else if s := m.Sandboxes.Of(v.ID); s != nil {
		s.Stopped, s.Ready = true, false
	}
}

func (m *Machine) takeRemoved(v work.PodRemoved) {
	m.answered("remove", "")
	if m.cleaned.runtime = v.Failed == nil; m.cleaned.runtime {
		return
	}
	m.cleaned.retry.Fails(m.now, *v.Failed)
	if m.cleaned.retry.Tries == 1 {
		m.warn("", messages.ReasonFailedRemove, *m.cleaned.retry.Failed, "error removing pod: %s", v.Failed.Message)
	}
}
