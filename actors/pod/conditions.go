package pod

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/finalstatus"
	"github.com/playlet-dev/playlet/actors/internal/find"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/cri/translate"
)

// conditions adds the pod's conditions, in the kubelet's order and words: others select on them.
func (m *Machine) conditions(s *v1.PodStatus) {
	m.condition(s, v1.PodReadyToStartContainers, m.readyToStart(), "", "")
	var uninitialized, unready []string
	for i := range s.InitContainerStatuses {
		c, sidecar := &s.InitContainerStatuses[i], translate.RestartsAlways(&m.Pod.Spec.InitContainers[i])
		if sidecar && !ptr.Deref(c.Started, false) || !sidecar && !c.Ready {
			uninitialized = append(uninitialized, c.Name)
		}
		if sidecar && !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	for i := range s.ContainerStatuses {
		if c := &s.ContainerStatuses[i]; !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	current := m.Sandboxes.Current()
	switch {
	case s.Phase == v1.PodSucceeded:
		m.condition(s, v1.PodInitialized, true, finalstatus.ReasonCompleted, "")
	case len(uninitialized) > 0 && !m.wasInitialized() && (current == nil || !m.Begun(current.ID)):
		m.condition(s, v1.PodInitialized, false, "ContainersNotInitialized",
			list("containers with incomplete status", uninitialized))
	default:
		m.condition(s, v1.PodInitialized, true, "", "")
	}
	why, message := "", "" // the containers are not ready
	switch {
	case finalstatus.Final(s.Phase):
		why = finalstatus.NotReady(s.Phase)
	case len(unready) > 0:
		why, message = "ContainersNotReady", list("containers with unready status", unready)
	}
	if closed := podspec.GatesClosed(m.Pod); why == "" && closed != "" {
		m.condition(s, v1.PodReady, false, "ReadinessGatesNotReady", closed)
	} else {
		m.condition(s, v1.PodReady, why == "", why, message)
	}
	m.condition(s, v1.ContainersReady, why == "", why, message)
	m.condition(s, v1.PodScheduled, true, "", "")
	m.restartCondition(s)
	if p := m.desired.Pending; p != nil && m.live() {
		m.condition(s, v1.PodResizePending, true, p.Reason, p.Message)
	}
	if m.resizing.active && m.live() {
		reason, message := m.inProgress()
		m.condition(s, v1.PodResizeInProgress, true, reason, message)
	}
	if m.verdict != nil && m.verdict.disruption != "" {
		m.condition(s, v1.DisruptionTarget, true, v1.PodReasonTerminationByKubelet, m.verdict.disruption)
	}
}

// condition adds one, with the time since when it has its present status.
func (m *Machine) condition(s *v1.PodStatus, t v1.PodConditionType, ok bool, reason, message string) {
	c := v1.PodCondition{Type: t, Status: v1.ConditionFalse, Reason: reason, Message: message,
		ObservedGeneration: m.Pod.Generation, LastTransitionTime: metav1.NewTime(m.now.Truncate(time.Second))}
	if ok {
		c.Status = v1.ConditionTrue
	}
	if o := m.before(t); o != nil && o.Status == c.Status {
		c.LastTransitionTime = o.LastTransitionTime
	}
	s.Conditions = append(s.Conditions, c)
}

// readyToStart says that there is a sandbox and that the volumes are mounted: both are made side by side. What is known of the
// volumes is lost with the actor; where a container has been made in the sandbox, they were there.
func (m *Machine) readyToStart() bool {
	current := m.Sandboxes.Current()
	return current != nil && (m.volumes.mounted || slices.ContainsFunc(m.Containers, func(c *known.Container) bool {
		return c.MadeIn(current.ID)
	}))
}

func list(what string, names []string) string {
	return fmt.Sprintf("%s: [%s]", what, strings.Join(names, " "))
}

// before is a condition as it was told last; nil where none was.
func (m *Machine) before(t v1.PodConditionType) *v1.PodCondition {
	last := cmp.Or(m.told.Status, m.desired.Last, &v1.PodStatus{})
	return find.In(last.Conditions, func(c *v1.PodCondition) bool { return c.Type == t })
}

// wasInitialized says that the pod was told to be initialized. As with the kubelet, that is not taken back while its init
// containers run again.
func (m *Machine) wasInitialized() bool {
	o := m.before(v1.PodInitialized)
	return m.set.RestartAll && o != nil && o.Status == v1.ConditionTrue
}
