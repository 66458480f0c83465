package containers

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/explain"
)

// Name identifies a container in a request. An empty UID matches any pod, an empty Container is the pod's default one.
type Name struct{ Namespace, Pod, UID, Container string }

// ChosenContainer is the container of a request. Immutable.
type ChosenContainer struct {
	Pod       *board.Pod
	Container string
	Status    *v1.ContainerStatus
	Note      string // the chosen container, if the request named none of several
}

// Object returns a pod as the API shows it: the desired spec with the current status. The parts shared with the board are
// read-only.
func Object(p *board.Pod) *v1.Pod {
	shown := *p.Pod
	if p.Status != nil {
		shown.Status = *p.Status
	} else {
		shown.Status = v1.PodStatus{Phase: v1.PodPending}
	}
	if !p.EndingSince.IsZero() {
		since := metav1.NewTime(p.EndingSince.Truncate(time.Second))
		shown.DeletionTimestamp, shown.DeletionGracePeriodSeconds = &since, p.EndingGrace
	}
	return &shown
}

// Pod finds a pod by its names. If there are several, e.g. a terminating one and its successor, it returns the desired one,
// unless the UID selects another.
func (h *Handlers) Pod(n Name) (*board.Pod, error) {
	now := h.conf.Board.Now()
	var ending *board.Pod
	for i := range now.Pods {
		p := &now.Pods[i]
		if p.Pod.Namespace == n.Namespace && p.Pod.Name == n.Pod && (n.UID == "" || n.UID == string(p.Pod.UID)) {
			if p.EndingSince.IsZero() {
				return p, nil
			}
			ending = p
		}
	}
	if ending != nil {
		return ending, nil
	}
	return nil, refuse(http.StatusNotFound, "there is no pod %q in namespace %q", n.Pod, n.Namespace)
}

// Choose finds an existing container.
func (h *Handlers) Choose(n Name) (ChosenContainer, error) {
	pod, err := h.Pod(n)
	if err != nil {
		return ChosenContainer{}, err
	}
	all := containerNames(pod.Pod)
	out := ChosenContainer{Pod: pod, Container: n.Container}
	if n.Container == "" {
		if out.Container = defaultContainer(pod.Pod); len(all) > 1 {
			out.Note = fmt.Sprintf("container %q of %s; -c names another", out.Container, strings.Join(all, ", "))
		}
	}
	out.Status = containerStatus(pod, out.Container)
	switch {
	case out.Status == nil && len(all) == 0: // found in the runtime and terminating
		return ChosenContainer{}, bad("pod %q has no container known here", n.Pod)
	case out.Status == nil && !slices.Contains(all, out.Container):
		return ChosenContainer{}, refuse(http.StatusNotFound, "pod %q has no container %q; it has %s", n.Pod, out.Container,
			strings.Join(all, ", "))
	case out.Status == nil:
		return ChosenContainer{}, bad("container %q of pod %q has not been made yet", out.Container, n.Pod)
	}
	return out, nil
}

// ID returns the ID of the container's current run.
func (c ChosenContainer) ID() (string, error) {
	switch state := c.Status.State; {
	case state.Running != nil:
		return c.run(false), nil
	case state.Terminated != nil:
		return "", bad("container %q of pod %q does not run: it exited with code %d (%s)",
			c.Container, c.Pod.Pod.Name, state.Terminated.ExitCode, state.Terminated.Reason)
	default:
		return "", bad("container %q of pod %q does not run: %s", c.Container, c.Pod.Pod.Name, c.waits())
	}
}

// run returns the ID of a container's latest or previous run, or "".
func (c ChosenContainer) run(previous bool) string {
	s, last := c.Status, ""
	if t := s.LastTerminationState.Terminated; t != nil {
		last = t.ContainerID
	}
	now := s.ContainerID
	switch {
	case s.State.Running != nil:
	case s.State.Terminated != nil:
		now = s.State.Terminated.ContainerID
	default: // it waits for its next start: the latest run is the last one
		now = last
	}
	if previous {
		now = last
	}
	_, id, _ := strings.Cut(now, "://")
	return id
}

// waits returns the reason that the container does not run.
func (c ChosenContainer) waits() string {
	if r := c.Pod.Waiting; r != nil && c.Pod.Status != nil && (r.Container == "" || r.Container == c.Container) {
		return explain.WaitsOf(c.Container, c.Pod.Pod, c.Pod.Status, *r)
	}
	if w := c.Status.State.Waiting; w != nil {
		return strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
	}
	return "ContainerCreating"
}

// NeverRan returns the reason that a container with an empty log was not started: the runtime has created it, but could not run
// its command. For other containers it returns "".
func (c ChosenContainer) NeverRan() string {
	t := c.Status.State.Terminated
	if t == nil && c.Status.State.Running == nil {
		t = c.Status.LastTerminationState.Terminated
	}
	if t == nil || t.Reason != "StartError" && t.Reason != "ContainerCannotRun" { // containerd's and Docker's terms
		return ""
	}
	return "never started: " + explain.Ended(c.Pod.Pod, c.Container, t)
}

// defaultContainer returns the default container, as in kubectl. It returns "" for a pod without containers in its spec: a pod
// found in the runtime only has statuses.
func defaultContainer(pod *v1.Pod) string {
	if name := pod.Annotations["kubectl.kubernetes.io/default-container"]; slices.Contains(containerNames(pod), name) {
		return name
	}
	if len(pod.Spec.Containers) == 0 {
		return ""
	}
	return pod.Spec.Containers[0].Name
}

func containerNames(pod *v1.Pod) []string {
	var out []string
	for _, c := range pod.Spec.Containers {
		out = append(out, c.Name)
	}
	for _, c := range pod.Spec.InitContainers {
		out = append(out, c.Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		out = append(out, pod.Spec.EphemeralContainers[i].Name)
	}
	return out
}

func containerStatus(pod *board.Pod, name string) *v1.ContainerStatus {
	if pod.Status == nil {
		return nil
	}
	st := pod.Status
	for _, list := range [][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses, st.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
