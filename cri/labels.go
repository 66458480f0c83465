package cri

import (
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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
	// AnnotationImageVolumes are the IDs of the images that it mounts as
	// volumes, with spaces between them: no list of the runtime has them.
	AnnotationImageVolumes = "playlet.dev/image-volumes"
	// AnnotationRound is how often all containers of its pod had been restarted
	// together (KEP-5532) when the container was made, in decimal: those with a
	// lower number than the pod's are ended and made again. It is there where
	// the pod has a rule for that.
	AnnotationRound = "playlet.dev/round"
	// AnnotationResources is the container's spec.resources in JSON, as it was
	// created with: no hash has them.
	AnnotationResources = "playlet.dev/resources"
	// AnnotationPodResources is the pod's spec.resources at that time, in JSON:
	// a container without limits of its own has the pod's.
	AnnotationPodResources = "playlet.dev/pod-resources"
)

// AnnotationRootDir is what this agent adds to sandboxes and containers: its root folder, which says whose they are where
// agents share a runtime.
const AnnotationRootDir = "playlet.dev/root-dir"

// ours leaves out what another agent made.
func ours[T interface{ GetAnnotations() map[string]string }](c *Client, all []T) []T {
	if c.opts.Foreign == nil {
		return all
	}
	return slices.DeleteFunc(all, func(one T) bool {
		root := one.GetAnnotations()[AnnotationRootDir]
		return root != "" && c.opts.Foreign(root)
	})
}

// noteForeign keeps which pods are another agent's, as a list of all sandboxes says it.
func (c *Client) noteForeign(all []*runtimeapi.PodSandbox) {
	found := map[string]string{}
	for _, one := range all {
		if root := one.GetAnnotations()[AnnotationRootDir]; root != "" && c.opts.Foreign != nil && c.opts.Foreign(root) {
			found[plainUID(one.GetLabels()[LabelPodUID])] = root
		}
	}
	c.foreign.Store(&found)
}

// ForeignPod says whether a pod is another agent's, as the last list of all sandboxes said it; before the first one, all may be.
// The UID may be as systemd's cgroups write it.
func (c *Client) ForeignPod(uid string) bool {
	found := c.foreign.Load()
	return found == nil || (*found)[plainUID(uid)] != ""
}

// ForeignRoot is the root folder of the agent whose pod it is; empty where it is no other agent's, as far as is known.
func (c *Client) ForeignRoot(uid string) string {
	if found := c.foreign.Load(); found != nil {
		return (*found)[plainUID(uid)]
	}
	return ""
}

func plainUID(uid string) string { return strings.ReplaceAll(uid, "_", "-") }

// AnnotationPodStarted is what this agent adds to sandboxes: the pod's start
// time (RFC 3339), which so survives the agent and the pod's first sandbox.
const AnnotationPodStarted = "playlet.dev/pod-started"
