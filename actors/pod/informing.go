package pod

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// In a resize the runtime is told what the pod has as a whole, too (UpdatePodSandboxResources): one that keeps pods in virtual
// machines sizes these by it, and its plugins may refuse. As with the kubelet, a resize that is refused does not go on; it is
// tried again. A runtime that does not know the call is not waited for.

// informed says that the runtime knows of the pod's cgroup as it is now, and tells it.
func (m *Machine) informed(now time.Time) bool {
	s := m.sandboxes.current()
	if s == nil || !m.resizing.active || !m.cgroup.ready || m.resizing.informed == m.cgroup.of {
		return true
	}
	if !now.Before(m.resizing.retry) && m.due(now, "inform", "", m.set.Work) {
		m.emit(UpdateSandbox{Pod: m.cgroup.of, ID: s.ID})
	}
	return false
}

func (m *Machine) takeSandboxUpdated(now time.Time, v SandboxUpdated) {
	m.answered("inform", "")
	if s := m.sandboxes.current(); s == nil || s.ID != v.ID {
		return // the next one is made with what is allocated
	}
	if v.Failed != nil {
		m.retryResize(now, v.Failed)
		return
	}
	m.resizing.informed = v.Pod
	m.resizing.failed, m.resizing.tries, m.resizing.retry = nil, 0, time.Time{}
}

// updateSandbox tells the runtime. It joins a call that is under way, and says then what that has told.
func updateSandbox(ctx context.Context, h *host.Host, e UpdateSandbox) SandboxUpdated {
	key := string(e.Pod.UID) + "/start/inform/" + e.ID
	pod, err := cri.Run(ctx, h.Ops, key, h.Reap(1), func(ctx context.Context) (*v1.Pod, error) {
		resources, overhead := translate.UpdatedSandboxResources(e.Pod, h.Node)
		return e.Pod, h.CRI.UpdatePodSandboxResources(ctx, e.ID, resources, overhead)
	})
	if err = host.Joined(err); err != nil {
		return SandboxUpdated{ID: e.ID, Failed: &messages.Reason{Code: messages.EventResizeError, Message: err.Error()}}
	}
	return SandboxUpdated{ID: e.ID, Pod: pod}
}
