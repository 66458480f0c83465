package cri

// The kubelet's labels and annotations of sandboxes and containers. crictl, log shippers, cAdvisor and the next kubelet on this
// node read them, so none may change.
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

// Annotations that this agent adds to its containers. A kubelet that takes over ignores them.
const (
	// AnnotationSpecHash holds the container's SpecHash.
	AnnotationSpecHash = "playlet.dev/spec-hash"
	// AnnotationBackoff holds the step of the container's back-off, which so survives the agent. The container's actor defines
	// its format.
	AnnotationBackoff = "playlet.dev/backoff"
	// AnnotationImageVolumes holds the IDs of the images that the container mounts as volumes, separated by spaces: no list of
	// the runtime has them.
	AnnotationImageVolumes = "playlet.dev/image-volumes"
	// AnnotationRound counts, in decimal, how often all containers of the pod had been restarted together (KEP-5532) when the
	// container was made. Containers with a lower number than the pod's are ended and made again. It is only set if the pod has a
	// rule for that.
	AnnotationRound = "playlet.dev/round"
	// AnnotationResources holds the container's spec.resources at its creation, in JSON: no hash covers them.
	AnnotationResources = "playlet.dev/resources"
	// AnnotationPodResources holds the pod's spec.resources at that time, in JSON: a container without limits of its own has the
	// pod's.
	AnnotationPodResources = "playlet.dev/pod-resources"
)

// AnnotationRootDir is added to sandboxes and containers. It holds the agent's root folder, which identifies the owner if agents
// share a runtime.
const AnnotationRootDir = "playlet.dev/root-dir"

// AnnotationPodStarted is added to sandboxes. It holds the pod's start time (RFC 3339), which so survives the agent and the pod's
// first sandbox.
const AnnotationPodStarted = "playlet.dev/pod-started"
