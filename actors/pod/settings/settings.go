// Package settings is what a pod's machine needs to know of the node, of its runtime and of the feature gates.
package settings

import (
	"cmp"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// Settings are what the machine needs to know of the node.
type Settings struct {
	// AnswerTimeout is how long an answer from another actor is awaited before the question is repeated.
	AnswerTimeout time.Duration
	// Work is how long a result of the pod's own work is awaited before the work is asked for again, which joins
	// what is still under way.
	Work time.Duration
	// BackOff is the kubelet's container back-off.
	BackOff restarts.BackOff
	// HostIPs are the node's addresses now, for status and for pods on the host's network. What it gives is not changed.
	HostIPs func() []string
	// Unsettled says that the node's addresses may be others yet: then a status says nothing of them, which leaves what others
	// know as it is.
	Unsettled func() bool
	// Events: whether Kubernetes Events are recorded.
	Events bool
	// Changed says whether a container was made from another spec than this one.
	Changed func(spec *v1.Container, made messages.ContainerFact) bool
	// ChangedImage says so of what an API server lets change in a container: its image.
	ChangedImage func(spec *v1.Container, made messages.ContainerFact) bool
	// Resources are those that a container of the pod was made with, its pod's limits included; nil where that is not known.
	Resources func(pod *v1.Pod, made messages.ContainerFact) *v1.ResourceRequirements
	// PodLevelResize says that the status tells the resources of the pod as a whole (KEP-5419).
	PodLevelResize bool
	// Actual are those that a container has which was given those of the spec, by what the runtime tells of it.
	Actual func(pod *v1.Pod, spec *v1.Container, reported messages.ContainerResources) v1.ResourceRequirements
	// Devices is the health of the devices that a container has; nil: none has any.
	Devices func(uid, container string) []v1.ResourceStatus
	// RestartAll says that a container may have all of its pod restarted, by a rule of its own (KEP-5532).
	RestartAll bool
	// RecursiveReadOnly says whether a handler of the runtime can mount read-only all that is mounted below a volume (KEP-3857).
	RecursiveReadOnly func(handler string) bool
	// RuntimeName is the scheme of container IDs in statuses, e.g. "containerd".
	RuntimeName func() string
	// BackOffStep reads the back-off step that a container carries in its annotations.
	BackOffStep func(made messages.ContainerFact) int
}

// RuntimeID is a container's ID as statuses have it: "containerd://<id>".
func (s *Settings) RuntimeID(id string) string { return s.RuntimeName() + "://" + id }

// Default are the settings for a node.
func Default(h *host.Host, backOff restarts.BackOff, runtimeName func() string) Settings {
	var health func(uid, container string) []v1.ResourceStatus
	if h.Devices != nil {
		health = h.Devices.Health
	}
	return Settings{
		Devices:       health,
		AnswerTimeout: 15 * time.Second, Work: h.Reap(4) + 10*time.Second, BackOff: backOff, HostIPs: h.NodeIPs,
		Unsettled: h.Unsettled, RuntimeName: runtimeName,
		Resources: madeWith, Events: h.Events,
		Changed: func(spec *v1.Container, made messages.ContainerFact) bool {
			return translate.Changed(spec, made.Annotations)
		},
		ChangedImage: func(spec *v1.Container, made messages.ContainerFact) bool {
			return translate.ChangedForKubelet(spec, made.Annotations)
		},
		Actual: func(pod *v1.Pod, spec *v1.Container, reported messages.ContainerResources) v1.ResourceRequirements {
			return facts.Resources(spec.Resources, translate.NewContainerResources(pod, spec, h.Node), reported)
		},
		RecursiveReadOnly: func(handler string) bool { return h.Can().RecursiveReadOnlyMounts[handler] },
		BackOffStep: func(made messages.ContainerFact) int {
			n, err := strconv.Atoi(made.Annotations[cri.AnnotationBackoff])
			if err != nil {
				return 0 // a kubelet made it, which keeps no step: its back-off starts anew
			}
			return n
		},
	}
}

// madeWith is what the container got when it was made; nil where it does not carry that, as a kubelet's. One that an earlier
// release made carries nothing of its pod's own: that is what it has now.
func madeWith(pod *v1.Pod, made messages.ContainerFact) *v1.ResourceRequirements {
	container, own := translate.MadeWith(made.Annotations)
	if container == nil {
		return nil
	}
	return new(translate.EffectiveResources(cmp.Or(own, pod.Spec.Resources), *container))
}
