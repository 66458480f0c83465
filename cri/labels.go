package cri

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

// AnnotationPodStarted is what this agent adds to sandboxes: the pod's start
// time (RFC 3339), which so survives the agent and the pod's first sandbox.
const AnnotationPodStarted = "playlet.dev/pod-started"
