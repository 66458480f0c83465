package pod

import (
	"fmt"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// publish tells the pod's status when it has changed.
func (m *Machine) publish(now time.Time) {
	if m.pod == nil || !m.read {
		return
	}
	status, waiting := m.status(now), m.waiting()
	var w messages.Reason
	if waiting != nil {
		w = *waiting
		w.RetryAt = time.Time{} // a retry alone is no news
	}
	if m.last != nil && m.wish.Turn == m.turn && w == m.waited && equality.Semantic.DeepEqual(m.last, status) {
		return
	}
	m.last, m.waited, m.turn = status, w, m.wish.Turn
	m.emit(Publish{Turn: m.turn, Status: status, Phase: m.phase, Waiting: waiting})
}

// waiting is what the pod waits for, where it does: the reason that a person should read first.
func (m *Machine) waiting() *messages.Reason {
	if !m.live() {
		return nil
	}
	if m.box.current() == nil && m.box.failed != nil {
		return m.box.failed
	}
	if !m.volumes.mounted && m.volumes.reason != nil {
		return m.volumes.reason
	}
	for _, c := range m.cons {
		if r := m.hold(c); r != nil {
			return r
		}
	}
	return nil
}

// hold is what keeps one container from starting, where something does.
func (m *Machine) hold(c *con) *messages.Reason {
	switch {
	case c.spec == nil || c.running():
		return nil
	case c.image.reason != nil && c.image.ref == "":
		return c.image.reason
	case c.failed != nil:
		return c.failed
	case !c.at.IsZero() && (c.stage == spawning || c.stage == due) && c.exited() != nil && c.backoff.step > 0:
		wait := m.set.BackOff.wait(c.backoff.step)
		return &messages.Reason{
			Code: messages.ReasonCrashLoopBackOff, RetryAt: c.at,
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", wait, c.name, m.pod.Name, m.pod.Namespace, m.uid),
		}
	}
	return nil
}

// status is the pod's status as the kubelet computes it. Unchanged conditions keep their transition times.
func (m *Machine) status(now time.Time) *v1.PodStatus {
	if m.wish != nil && m.wish.Final != nil {
		return m.wish.Final
	}
	s := &v1.PodStatus{
		QOSClass: cri.QOSClass(m.pod), ObservedGeneration: m.pod.Generation,
	}
	if !m.started.IsZero() {
		t := metav1.NewTime(m.started.Truncate(time.Second))
		s.StartTime = &t
	}
	for _, c := range m.cons {
		switch {
		case c.spec == nil:
		case c.init:
			s.InitContainerStatuses = append(s.InitContainerStatuses, m.containerStatus(c))
		default:
			s.ContainerStatuses = append(s.ContainerStatuses, m.containerStatus(c))
		}
	}
	shareLastWords(s)
	s.Phase = phaseOf(m.pod, s)
	if m.verdict != nil {
		s.Reason, s.Message = m.verdict.reason, m.verdict.message
		if m.verdict.reason != "" || !m.anyAlive() {
			s.Phase = m.verdict.phase
		}
	}
	m.addresses(s)
	m.conditions(now, s)
	return s
}

func (m *Machine) anyAlive() bool {
	for _, c := range m.cons {
		if c.alive() {
			return true
		}
	}
	return false
}

func (m *Machine) addresses(s *v1.PodStatus) {
	for i, ip := range m.set.HostIPs {
		if i == 0 {
			s.HostIP = ip
		}
		s.HostIPs = append(s.HostIPs, v1.HostIP{IP: ip})
	}
	for i, ip := range m.ips() {
		if i == 0 {
			s.PodIP = ip
		}
		s.PodIPs = append(s.PodIPs, v1.PodIP{IP: ip})
	}
}

// ips are the pod's addresses: the sandbox's, or the node's on the host's network.
func (m *Machine) ips() []string {
	current := m.box.current()
	switch {
	case current == nil:
		return nil
	case m.pod.Spec.HostNetwork:
		return m.set.HostIPs
	default:
		return current.IPs
	}
}

// containerStatus is the status of one container. The order of the cases is the kubelet's: what exists goes before
// what is waited for, and a wait after an end moves that end to the last termination state.
func (m *Machine) containerStatus(c *con) v1.ContainerStatus {
	s := v1.ContainerStatus{Name: c.name, Image: c.spec.Image}
	f := c.newest()
	hold := m.hold(c)
	if f != nil {
		s.RestartCount = int32(min(f.Attempt, math.MaxInt32))
		s.ContainerID = m.set.runtimeID(f.ID)
		if f.Image != "" {
			s.Image = f.Image
		}
		s.ImageID = f.ImageRef
		s.State = stateOf(f, m.set.runtimeID)
		if len(c.facts) > 1 && c.facts[1].State == messages.ContainerExited {
			s.LastTerminationState = stateOf(&c.facts[1], m.set.runtimeID)
		}
	}
	switch {
	case f == nil && hold != nil:
		s.State.Waiting = &v1.ContainerStateWaiting{Reason: hold.Code, Message: hold.Message}
	case f == nil || f.State == messages.ContainerCreated:
		s.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: m.defaultWait(c)}}
	case f.State == messages.ContainerExited && hold != nil && m.live():
		s.LastTerminationState = s.State
		s.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: hold.Code, Message: hold.Message}}
	}
	running := s.State.Running != nil
	s.Ready = running
	if c.init && !c.sidecar() {
		s.Ready = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
	}
	s.Started = &running
	if running {
		s.Resources = c.spec.Resources.DeepCopy()
		s.AllocatedResources = s.Resources.Requests
		if f.User != nil {
			s.User = &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: f.User.UID, GID: f.User.GID, SupplementalGroups: f.User.Groups}}
		}
	}
	return s
}

// defaultWait is why a container that does not exist yet is waiting, when nothing went wrong.
func (m *Machine) defaultWait(c *con) string {
	if len(m.pod.Spec.InitContainers) > 0 {
		return messages.ReasonPodInitializing
	}
	return messages.ReasonContainerCreating
}

func stateOf(f *messages.ContainerFact, id func(string) string) v1.ContainerState {
	switch f.State {
	case messages.ContainerRunning:
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(f.StartedAt)}}
	case messages.ContainerExited:
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode: f.ExitCode, Reason: f.Reason, Message: f.Message, ContainerID: id(f.ID),
			StartedAt: metav1.NewTime(f.StartedAt), FinishedAt: metav1.NewTime(f.FinishedAt),
		}}
	case messages.ContainerUnknown:
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{
			Reason: messages.ReasonUnknown, Message: "the runtime does not know the container's state; it is being stopped",
		}}
	case messages.ContainerCreated:
	}
	return v1.ContainerState{}
}

// phaseOf derives the pod's phase from its containers' statuses, by the rules of the pod life cycle.
func phaseOf(pod *v1.Pod, s *v1.PodStatus) v1.PodPhase {
	pendingInit := false
	for i := range s.InitContainerStatuses {
		c, spec := &s.InitContainerStatuses[i], &pod.Spec.InitContainers[i]
		ended := c.State.Terminated
		if ended == nil {
			ended = c.LastTerminationState.Terminated
		}
		switch {
		case isSidecar(spec):
			pendingInit = pendingInit || (c.State.Running == nil && ended == nil)
		case c.State.Terminated != nil && c.State.Terminated.ExitCode == 0:
		case ended != nil && ended.ExitCode != 0 && pod.Spec.RestartPolicy == v1.RestartPolicyNever:
			return v1.PodFailed
		default:
			pendingInit = true
		}
	}
	var running, waiting, stopped, succeeded int
	for i := range s.ContainerStatuses {
		c := &s.ContainerStatuses[i]
		switch {
		case c.State.Running != nil:
			running++
		case c.State.Terminated != nil:
			stopped++
			if c.State.Terminated.ExitCode == 0 {
				succeeded++
			}
		case c.LastTerminationState.Terminated != nil:
			stopped++
		default:
			waiting++
		}
	}
	switch {
	case pendingInit && running+stopped == 0, waiting > 0, running+stopped == 0:
		return v1.PodPending
	case running > 0, pod.Spec.RestartPolicy == v1.RestartPolicyAlways:
		return v1.PodRunning
	case stopped == succeeded:
		return v1.PodSucceeded
	case pod.Spec.RestartPolicy == v1.RestartPolicyNever:
		return v1.PodFailed
	default:
		return v1.PodRunning
	}
}
