package messages

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Reasons of Kubernetes Events, the kubelet's. Some of those that things wait for are reasons of events, too.
const (
	// Of a container.
	EventCreated             = "Created"
	EventStarted             = "Started"
	EventFailed              = "Failed"
	EventKilling             = "Killing"
	EventBackOff             = "BackOff"
	EventUnhealthy           = "Unhealthy"
	EventProbeWarning        = "ProbeWarning"
	EventFailedPostStartHook = "FailedPostStartHook"
	EventFailedPreStopHook   = "FailedPreStopHook"
	EventHTTPFallback        = "LifecycleHTTPFallback" // of the pod: a hook by HTTPS was answered by plain HTTP
	// Of an image.
	EventPulling           = "Pulling"
	EventPulled            = "Pulled"
	EventInspectFailed     = "InspectFailed"
	EventErrImageNeverPull = "ErrImageNeverPull"
	EventFailedPullSecret  = "FailedToRetrieveImagePullSecret"
	// Of a pod.
	EventFailedMount = "FailedMount"
	// EventPermissionChange is recorded while the files of a volume are given to the pod's fsGroup.
	EventPermissionChange = "VolumePermissionChangeInProgress"
	EventFailedMap        = "FailedMapVolume"       // a volume that is a block device
	EventMounted          = "SuccessfulMountVolume" // the same; volumes with a file system have no such Event
	EventAlreadyMounted   = "AlreadyMountedVolume"  // a local volume, by pods of another fsGroup
	EventInvalidGroup     = "InvalidVolumeGroup"    // Playlet's own: an annotation of a PersistentVolume is ignored
	EventFailedUnmount    = "FailedUnMount"
	EventFailedSandbox    = "FailedCreatePodSandBox"
	// Of a pod and of its claim: the volume was grown on the node, or could not be.
	EventVolumeGrown        = "FileSystemResizeSuccessful"
	EventVolumeNotGrown     = "VolumeResizeFailed"
	EventVolumeReadOnly     = "FileSystemResizeFailed"
	EventSandboxChanged     = "SandboxChanged"
	EventFailedKillPod      = "FailedKillPod"
	EventFailedPodContainer = "FailedCreatePodContainer"
	EventFailedPrepare      = "FailedPrepareDynamicResources"
	EventDeadlineExceeded   = "DeadlineExceeded"
	EventNetworkNotReady    = "NetworkNotReady"
	EventFamilyMismatch     = "HostIPsIPFamilyMismatch"
	EventFailedValidation   = "FailedValidation" // about the node where the manifest does not name the pod
	// EventExceededGracePeriod is of a pod that the node ends, and that does not end in time.
	EventExceededGracePeriod = "ExceededGracePeriod"
	// EventExceedsNode is of a pod that asks for more than the whole node has, and is run all the same.
	EventExceedsNode = "ExceedsNode"
	// EventFeaturesMissing is recorded of a pod when an update of it needs features that the node does not declare (KEP-5328).
	EventFeaturesMissing = "FailedNodeDeclaredFeaturesCheck"
	// EventEvicted is recorded when the node ends a pod that exceeds a limit, or to reclaim a resource. The pod's status has
	// the same reason.
	EventEvicted = "Evicted"
	// EventOOMKilling is recorded when the kernel kills a process of a pod for lack of memory. Node problem detectors use it
	// for nodes.
	EventOOMKilling = "OOMKilling"
	// Events of in-place resize (KEP-1287). An Event of an impossible resize takes its reason from the pod's condition.
	EventResize          = "Resize"
	EventResizeStarted   = "ResizeStarted"
	EventResizeCompleted = "ResizeCompleted"
	EventResizeError     = "ResizeError"
	// Of the node.
	EventStarting            = "Starting"
	EventImageGCFailed       = "ImageGCFailed"
	EventContainerGCFailed   = "ContainerGCFailed"
	EventFreeDiskSpaceFailed = "FreeDiskSpaceFailed"
	EventInvalidDiskCapacity = "InvalidDiskCapacity"
	EventThresholdMet        = "EvictionThresholdMet"
	EventSystemOOM           = "SystemOOM"
	EventShutdown            = "Shutdown"
	EventResolvConf          = "CheckLimitsForResolvConf"
	EventCgroupV1            = "CgroupV1"
	EventAllocatableEnforced = "NodeAllocatableEnforced"
	EventAllocatableFailed   = "FailedNodeAllocatableEnforcement"
	EventChaos               = "Chaos" // Playlet's own: an effect of playlet chaos
)

// PodEvent asks for an event about a pod or, where a container is named, about that container of it. kind is Normal or
// Warning (v1.EventTypeNormal, v1.EventTypeWarning).
func PodEvent(pod *v1.Pod, container, kind, reason, message string, at time.Time) RecordEvent {
	return RecordEvent{
		Object: v1.ObjectReference{
			Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			ResourceVersion: pod.ResourceVersion, FieldPath: containerPath(pod, container),
		},
		Type: kind, Reason: reason, Message: message, At: at,
	}
}

// NodeEvent asks for an event about the node of this name. As UID it has the name, by which kubectl looks for the events that
// a kubelet writes.
func NodeEvent(node, kind, reason, message string, at time.Time) RecordEvent {
	return RecordEvent{
		Object: v1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: node, UID: types.UID(node)},
		Type:   kind, Reason: reason, Message: message, At: at,
	}
}

// containerPath is where a container stands in its pod, e.g. "spec.containers{web}"; empty for none.
func containerPath(pod *v1.Pod, container string) string {
	if container == "" {
		return ""
	}
	list := "containers"
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == container {
			list = "initContainers"
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == container {
			list = "ephemeralContainers"
		}
	}
	return "spec." + list + "{" + container + "}"
}
