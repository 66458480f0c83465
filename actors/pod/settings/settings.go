// Package settings describes the node, its runtime and the feature gates for a pod's machine.
package settings

import (
	"cmp"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// Settings are the facts about the node for the machine.
type Settings struct {
	// AnswerTimeout is the time after which a request to another actor without an answer is repeated.
	AnswerTimeout time.Duration
	// Work is the time after which a piece of the pod's own work without a result is requested again, which joins the one in
	// progress.
	Work time.Duration
	// BackOff is the kubelet's container back-off.
	BackOff backoff.Policy
	// HostIPs returns the node's present addresses, for status and for pods on the host's network. The result must not be
	// changed.
	HostIPs func() []string
	// Unsettled reports whether the node's addresses may still change: then a status omits them, and earlier ones stay at the API
	// server.
	Unsettled func() bool
	// Events enables Kubernetes Events.
	Events bool
	// Changed reports whether a container was created from another spec than this one.
	Changed func(spec *v1.Container, made messages.ContainerFact) bool
	// ChangedImage reports the same for the image alone, which is mutable at an API server.
	ChangedImage func(spec *v1.Container, made messages.ContainerFact) bool
	// Resources returns the resources that a container of the pod was created with, its pod's limits included, or nil if unknown.
	Resources func(pod *v1.Pod, made messages.ContainerFact) *v1.ResourceRequirements
	// PodLevelResize adds the resources of the pod as a whole to the status (KEP-5419).
	PodLevelResize bool
	// Actual returns the resources in effect of a container with this spec, from the runtime's report.
	Actual func(pod *v1.Pod, spec *v1.Container, reported messages.ContainerResources) v1.ResourceRequirements
	// Devices returns the health of a container's devices; nil: none has any.
	Devices func(uid, container string) []v1.ResourceStatus
	// Claims returns the health of the devices of a container's ResourceClaims; nil: none has any.
	Claims func(pod *v1.Pod, c *v1.Container) []v1.ResourceStatus
	// RestartAll enables rules of a container that restart its whole pod (KEP-5532).
	RestartAll bool
	// RecursiveReadOnly reports whether a handler of the runtime can make all mounts below a volume read-only (KEP-3857).
	RecursiveReadOnly func(handler string) bool
	// RuntimeName returns the scheme of container IDs in statuses, e.g. "containerd".
	RuntimeName func() string
	// BackOffStep reads the back-off step that a container carries in its annotations.
	BackOffStep func(made messages.ContainerFact) int
}

// RuntimeID returns a container's ID in the format of statuses: "containerd://<id>".
func (s *Settings) RuntimeID(id string) string { return s.RuntimeName() + "://" + id }

// Default returns the settings for a node.
func Default(h *host.Host, backOff backoff.Policy, runtimeName func() string) Settings {
	var health func(uid, container string) []v1.ResourceStatus
	if h.Devices != nil {
		health = h.Devices.Health
	}
	var ofClaims func(pod *v1.Pod, c *v1.Container) []v1.ResourceStatus
	if h.Claims != nil {
		ofClaims = h.Claims.Health
	}
	return Settings{
		Devices: health, Claims: ofClaims,
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
				return 0 // a kubelet created it, which records no step: its back-off is reset
			}
			return n
		},
	}
}

// madeWith returns the resources of the container's creation, or nil if it does not carry them, like a kubelet's. A container of
// an earlier release carries none of its pod's own: then the present ones count.
func madeWith(pod *v1.Pod, made messages.ContainerFact) *v1.ResourceRequirements {
	container, own := translate.MadeWith(made.Annotations)
	if container == nil {
		return nil
	}
	return new(translate.EffectiveResources(cmp.Or(own, pod.Spec.Resources), *container))
}
