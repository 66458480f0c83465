package podstatus

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

// conditions adds the pod's conditions, in the kubelet's order and wording: clients select on them.
func (p *Pod) conditions(s *v1.PodStatus) {
	p.condition(s, v1.PodReadyToStartContainers, p.readyToStart(), "", "")
	var uninitialized, unready []string
	for i := range s.InitContainerStatuses {
		c, sidecar := &s.InitContainerStatuses[i], translate.RestartsAlways(&p.Pod.Spec.InitContainers[i])
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
	current := p.Current()
	switch {
	case s.Phase == v1.PodSucceeded:
		p.condition(s, v1.PodInitialized, true, finalstatus.ReasonCompleted, "")
	case len(uninitialized) > 0 && !p.wasInitialized() && (current == nil || !p.Begun(current.ID)):
		p.condition(s, v1.PodInitialized, false, "ContainersNotInitialized",
			list("containers with incomplete status", uninitialized))
	default:
		p.condition(s, v1.PodInitialized, true, "", "")
	}
	why, message := "", "" // the containers are not ready
	switch {
	case finalstatus.Final(s.Phase):
		why = finalstatus.NotReady(s.Phase)
	case len(unready) > 0:
		why, message = "ContainersNotReady", list("containers with unready status", unready)
	}
	if closed := podspec.GatesClosed(p.Pod); why == "" && closed != "" {
		p.condition(s, v1.PodReady, false, "ReadinessGatesNotReady", closed)
	} else {
		p.condition(s, v1.PodReady, why == "", why, message)
	}
	p.condition(s, v1.ContainersReady, why == "", why, message)
	p.condition(s, v1.PodScheduled, true, "", "")
	p.restartCondition(s)
	if w := p.Wanted.Pending; w != nil && p.Live {
		p.condition(s, v1.PodResizePending, true, w.Reason, w.Message)
	}
	if p.Resizing != nil {
		p.condition(s, v1.PodResizeInProgress, true, p.Resizing.Code, p.Resizing.Message)
	}
	if p.Verdict != nil && p.Verdict.Disruption != "" {
		p.condition(s, v1.DisruptionTarget, true, v1.PodReasonTerminationByKubelet, p.Verdict.Disruption)
	}
}

// condition adds one condition, with the time of its last transition.
func (p *Pod) condition(s *v1.PodStatus, t v1.PodConditionType, ok bool, reason, message string) {
	c := v1.PodCondition{Type: t, Status: v1.ConditionFalse, Reason: reason, Message: message,
		ObservedGeneration: p.Pod.Generation, LastTransitionTime: metav1.NewTime(p.Now.Truncate(time.Second))}
	if ok {
		c.Status = v1.ConditionTrue
	}
	if o := p.before(t); o != nil && o.Status == c.Status {
		c.LastTransitionTime = o.LastTransitionTime
	}
	s.Conditions = append(s.Conditions, c)
}

// readyToStart reports whether there is a sandbox and the volumes are mounted; both are made in parallel. The actor loses the
// state of the volumes when it restarts. A container in the sandbox proves that they were mounted.
func (p *Pod) readyToStart() bool {
	current := p.Current()
	return current != nil && (p.Mounted || slices.ContainsFunc(p.Containers, func(c *known.Container) bool {
		return c.MadeIn(current.ID)
	}))
}

func list(what string, names []string) string {
	return fmt.Sprintf("%s: [%s]", what, strings.Join(names, " "))
}

// before returns a condition in the last reported status, or nil.
func (p *Pod) before(t v1.PodConditionType) *v1.PodCondition {
	last := cmp.Or(p.Reported, p.Wanted.Last, &v1.PodStatus{})
	return find.In(last.Conditions, func(c *v1.PodCondition) bool { return c.Type == t })
}

// wasInitialized reports whether the last status was initialized. As with the kubelet, that holds while init containers run
// again.
func (p *Pod) wasInitialized() bool {
	o := p.before(v1.PodInitialized)
	return p.Set.RestartAll && o != nil && o.Status == v1.ConditionTrue
}

// restartCondition adds the condition AllContainersRestarting, in the kubelet's wording.
func (p *Pod) restartCondition(s *v1.PodStatus) {
	switch {
	case !p.Set.RestartAll || !translate.MayRestartAll(&p.Pod.Spec):
	case finalstatus.Final(s.Phase):
		p.condition(s, v1.AllContainersRestarting, false, finalstatus.NotReady(s.Phase), "")
	case p.Restarting:
		p.condition(s, v1.AllContainersRestarting, true, "RestartAllContainersStarted",
			"container exited with restart policy rule")
	default:
		p.condition(s, v1.AllContainersRestarting, false, "", "")
	}
}
