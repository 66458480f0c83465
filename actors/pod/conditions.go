package pod

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/finalstatus"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// conditions adds the pod's conditions, in the kubelet's order and words: others select on them.
func (m *Machine) conditions(now time.Time, s *v1.PodStatus) {
	add := func(t v1.PodConditionType, ok bool, reason, message string) {
		c := v1.PodCondition{Type: t, Status: v1.ConditionFalse, Reason: reason, Message: message,
			ObservedGeneration: m.pod.Generation}
		if ok {
			c.Status = v1.ConditionTrue
		}
		c.LastTransitionTime = m.since(now, c)
		s.Conditions = append(s.Conditions, c)
	}
	add(v1.PodReadyToStartContainers, m.readyToStart(), "", "")

	var uninitialized, unready []string
	for i := range s.InitContainerStatuses {
		c, spec := &s.InitContainerStatuses[i], &m.pod.Spec.InitContainers[i]
		switch {
		case translate.RestartsAlways(spec) && (c.Started == nil || !*c.Started), !translate.RestartsAlways(spec) && !c.Ready:
			uninitialized = append(uninitialized, c.Name)
		}
		if translate.RestartsAlways(spec) && !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	if current := m.sandboxes.current(); current != nil && m.begun(current.ID) || m.wasInitialized() {
		uninitialized = nil
	}
	for i := range s.ContainerStatuses {
		if c := &s.ContainerStatuses[i]; !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	m.verdicts(s, uninitialized, unready, add)
	add(v1.PodScheduled, true, "", "")
	m.restartCondition(s, add)
	if p := m.desired.Pending; p != nil && m.live() {
		add(v1.PodResizePending, true, p.Reason, p.Message)
	}
	if m.resizing.active && m.live() {
		reason, message := m.inProgress()
		add(v1.PodResizeInProgress, true, reason, message)
	}
	if m.verdict != nil && m.verdict.disruption != "" {
		add(v1.DisruptionTarget, true, v1.PodReasonTerminationByKubelet, m.verdict.disruption)
	}
}

// readyToStart says that there is a sandbox and that the volumes are mounted: both are made side by side. What is known of the
// volumes is lost with the actor; where a container has been made in the sandbox, they were there.
func (m *Machine) readyToStart() bool {
	current := m.sandboxes.current()
	return current != nil && (m.volumes.mounted || slices.ContainsFunc(m.containers, func(c *container) bool {
		return slices.ContainsFunc(c.facts, func(f messages.ContainerFact) bool { return f.SandboxID == current.ID })
	}))
}

// verdicts adds Initialized, Ready and ContainersReady.
func (m *Machine) verdicts(s *v1.PodStatus, uninitialized, unready []string,
	add func(v1.PodConditionType, bool, string, string)) {
	switch {
	case s.Phase == v1.PodSucceeded:
		add(v1.PodInitialized, true, finalstatus.ReasonCompleted, "")
		add(v1.PodReady, false, finalstatus.ReasonCompleted, "")
		add(v1.ContainersReady, false, finalstatus.ReasonCompleted, "")
		return
	case len(uninitialized) > 0:
		add(v1.PodInitialized, false, "ContainersNotInitialized", list("containers with incomplete status", uninitialized))
	default:
		add(v1.PodInitialized, true, "", "")
	}
	switch {
	case s.Phase == v1.PodFailed:
		add(v1.PodReady, false, finalstatus.ReasonFailed, "")
		add(v1.ContainersReady, false, finalstatus.ReasonFailed, "")
	case len(unready) > 0:
		message := list("containers with unready status", unready)
		add(v1.PodReady, false, "ContainersNotReady", message)
		add(v1.ContainersReady, false, "ContainersNotReady", message)
	default:
		closed := podspec.GatesClosed(m.pod)
		if closed == "" {
			add(v1.PodReady, true, "", "")
		} else {
			add(v1.PodReady, false, "ReadinessGatesNotReady", closed)
		}
		add(v1.ContainersReady, true, "", "")
	}
}

func list(what string, names []string) string {
	return fmt.Sprintf("%s: [%s]", what, strings.Join(names, " "))
}

// since is when the condition took its present status.
func (m *Machine) since(now time.Time, c v1.PodCondition) metav1.Time {
	if o := m.before(c.Type); o != nil && o.Status == c.Status {
		return o.LastTransitionTime
	}
	return metav1.NewTime(now.Truncate(time.Second))
}

// before is a condition as it was told last; nil where none was.
func (m *Machine) before(t v1.PodConditionType) *v1.PodCondition {
	last := m.last
	if last == nil {
		last = m.desired.Last
	}
	if last != nil {
		for i := range last.Conditions {
			if last.Conditions[i].Type == t {
				return &last.Conditions[i]
			}
		}
	}
	return nil
}

// wasInitialized says that the pod was told to be initialized. As with the kubelet, that is not taken back while its init
// containers run again.
func (m *Machine) wasInitialized() bool {
	o := m.before(v1.PodInitialized)
	return m.set.RestartAll && o != nil && o.Status == v1.ConditionTrue
}
