package api

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri/translate"
)

// Summary describes a pod in the words that kubectl uses for the same status. Commands, the page and explanations share it.
type Summary struct {
	Ready, Total int
	Status       string
	Restarts     int
	RestartedAt  time.Time // end of the run before the newest restart; zero if unknown
}

// Summarize computes the summary. READY counts the containers that run for the pod's whole life, including sidecars. RESTARTS
// counts restarts of init containers while they run, and of the others after that.
func Summarize(p *Pod) Summary {
	s := Summary{Status: string(p.Pod.Status.Phase), Total: len(p.Pod.Spec.Containers)}
	if r := p.Pod.Status.Reason; r != "" {
		s.Status = r
	}
	for i := range p.Pod.Spec.InitContainers {
		if translate.RestartsAlways(&p.Pod.Spec.InitContainers[i]) {
			s.Total++
		}
	}
	sidecars, initializing := s.initContainers(p.Pod)
	if !initializing || Condition(p.Pod, v1.PodInitialized) {
		s.Restarts, s.RestartedAt = sidecars.Restarts, sidecars.RestartedAt
		s.containers(p.Pod)
	}
	phase := p.Pod.Status.Phase
	ending := p.Ending != "" || p.Pod.DeletionTimestamp != nil
	if ending && phase != v1.PodSucceeded && phase != v1.PodFailed {
		s.Status = "Terminating"
	}
	return s
}

// initContainers walks the init containers up to the first unfinished one, which gives the status. It returns the restarts of the
// sidecars alone.
func (s *Summary) initContainers(pod *v1.Pod) (sidecars Summary, initializing bool) {
	specs := map[string]*v1.Container{}
	for i := range pod.Spec.InitContainers {
		specs[pod.Spec.InitContainers[i].Name] = &pod.Spec.InitContainers[i]
	}
	for i := range pod.Status.InitContainerStatuses {
		c := &pod.Status.InitContainerStatuses[i]
		sidecar := specs[c.Name] != nil && translate.RestartsAlways(specs[c.Name])
		s.count(c)
		if sidecar {
			sidecars.count(c)
		}
		if t := c.State.Terminated; t != nil && t.ExitCode == 0 {
			continue
		}
		if sidecar && c.Started != nil && *c.Started {
			if c.Ready {
				s.Ready++
			}
			continue
		}
		s.Status = fmt.Sprintf("Init:%d/%d", i, len(pod.Spec.InitContainers))
		switch w := c.State.Waiting; {
		case c.State.Terminated != nil:
			s.Status = "Init:" + endOf(c.State.Terminated)
		case w != nil && w.Reason != "" && w.Reason != "PodInitializing":
			s.Status = "Init:" + w.Reason
		}
		return sidecars, true
	}
	return sidecars, false
}

// containers adds the regular containers. If several have a reason, the first in the spec counts.
func (s *Summary) containers(pod *v1.Pod) {
	running, failed := false, ""
	for i := len(pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &pod.Status.ContainerStatuses[i]
		s.count(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.Status = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.Status = endOf(c.State.Terminated)
			if c.State.Terminated.ExitCode != 0 {
				failed = s.Status
			}
		case c.State.Running != nil && c.Ready:
			running = true
			s.Ready++
		}
	}
	if s.Status != "Completed" {
		return
	}
	switch { // a completed container does not describe a pod with others that did not complete
	case running && Condition(pod, v1.PodReady):
		s.Status = "Running"
	case failed != "":
		s.Status = failed
	case running:
		s.Status = "NotReady"
	}
}

// count adds the container's restarts.
func (s *Summary) count(c *v1.ContainerStatus) {
	s.Restarts += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && t.FinishedAt.After(s.RestartedAt) {
		s.RestartedAt = t.FinishedAt.Time
	}
}

func endOf(t *v1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", t.ExitCode)
	}
}

// Condition reports whether a condition of the pod is true.
func Condition(pod *v1.Pod, kind v1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == kind && c.Status == v1.ConditionTrue
	})
}
