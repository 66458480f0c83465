package cri

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// What the kubelet writes on sandboxes and containers. crictl, log shippers,
// cAdvisor and the next kubelet on this node read it, so none of it may change.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"

	AnnotationHash                     = "io.kubernetes.container.hash"         // hexadecimal, no prefix
	AnnotationRestartCount             = "io.kubernetes.container.restartCount" // decimal
	AnnotationTerminationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPreStopHandler           = "io.kubernetes.container.preStopHandler" // v1.LifecycleHandler in JSON
	AnnotationPorts                    = "io.kubernetes.container.ports"          // []v1.ContainerPort in JSON
	AnnotationDeletionGracePeriod      = "io.kubernetes.pod.deletionGracePeriod"  // seconds
	AnnotationTerminationGracePeriod   = "io.kubernetes.pod.terminationGracePeriod"
)

// What this agent adds to its containers. A kubelet that takes over ignores it.
const (
	// AnnotationSpecHash is SpecHash of the container.
	AnnotationSpecHash = "playlet.dev/spec-hash"
	// AnnotationBackoff is the step of the container's back-off, which so
	// survives the agent. Its text belongs to the container's actor.
	AnnotationBackoff = "playlet.dev/backoff"
	// AnnotationResources is the container's spec.resources in JSON, as it was
	// created with: no hash has them.
	AnnotationResources = "playlet.dev/resources"
)

// AnnotationPodStarted is what this agent adds to sandboxes: the pod's start
// time (RFC 3339), which so survives the agent and the pod's first sandbox.
const AnnotationPodStarted = "playlet.dev/pod-started"

// sandboxLabels is the pod's own labels and, above them, its identity.
func sandboxLabels(pod *v1.Pod) map[string]string {
	labels := make(map[string]string, len(pod.Labels)+3)
	maps.Copy(labels, pod.Labels)
	labels[LabelPodName] = pod.Name
	labels[LabelPodNamespace] = pod.Namespace
	labels[LabelPodUID] = string(pod.UID)
	return labels
}

// containerLabels is identity alone: the pod's labels are on its sandbox.
func containerLabels(pod *v1.Pod, container *v1.Container) map[string]string {
	return map[string]string{
		LabelPodName:       pod.Name,
		LabelPodNamespace:  pod.Namespace,
		LabelPodUID:        string(pod.UID),
		LabelContainerName: container.Name,
	}
}

// containerAnnotations is what is needed to end the container rightly and to
// report it when its pod is no longer known. extra (of device plugins, the
// back-off step) gives way to the kubelet's keys.
func containerAnnotations(
	pod *v1.Pod, container *v1.Container, restartCount uint32, extra map[string]string,
) (map[string]string, error) {
	a := make(map[string]string, len(extra)+9)
	maps.Copy(a, extra)
	a[AnnotationHash] = strconv.FormatUint(KubeletHash(container), 16)
	a[AnnotationRestartCount] = strconv.FormatUint(uint64(restartCount), 10)
	a[AnnotationTerminationMessagePath] = container.TerminationMessagePath
	a[AnnotationTerminationMessagePolicy] = string(container.TerminationMessagePolicy)
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		a[AnnotationDeletionGracePeriod] = strconv.FormatInt(*s, 10)
	}
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		a[AnnotationTerminationGracePeriod] = strconv.FormatInt(*s, 10)
	}
	if container.Lifecycle != nil && container.Lifecycle.PreStop != nil {
		text, err := json.Marshal(container.Lifecycle.PreStop)
		if err != nil {
			return nil, fmt.Errorf("pre-stop handler: %w", err)
		}
		a[AnnotationPreStopHandler] = string(text)
	}
	if len(container.Ports) > 0 {
		text, err := json.Marshal(container.Ports)
		if err != nil {
			return nil, fmt.Errorf("ports: %w", err)
		}
		a[AnnotationPorts] = string(text)
	}
	hash, err := SpecHash(container)
	if err != nil {
		return nil, err
	}
	a[AnnotationSpecHash] = hash
	return a, nil
}
