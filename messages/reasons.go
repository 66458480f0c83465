package messages

import (
	"strings"
	"time"
)

// Reason is why something waits or failed, in the words of the Kubernetes API. Status, events and explanations are all
// made from it, so that they never disagree.
type Reason struct {
	// Code is a CamelCase word as Kubernetes has it, e.g. ErrImagePull.
	Code string
	// Message is a sentence for people. It names the thing and, where possible, the remedy.
	Message string
	// Permanent is true when trying again cannot help.
	Permanent bool
	// RetryAt is when it is tried again; zero when that is not known. Of ReasonKilling it is when the grace period ends.
	RetryAt time.Time
	// Since is the time when the wait began; zero where it is irrelevant.
	Since time.Time
	// Container and Volume name the subject; empty for the whole pod.
	Container, Volume string
	// Tries counts the failures in a row, or the restarts; 0 where they are not counted.
	Tries int
	// Cause is the failure behind the reason; zero where nothing failed.
	Cause Cause
	// Before is the failure before this try, of something that is being tried again.
	Before Cause
	// Probe is the probe whose failures delayed or ended the container; empty for none.
	Probe ProbeKind
}

// Reasons that containers and pods wait for or ended with. They are the kubelet's where it has one.
const (
	ReasonContainerCreating   = "ContainerCreating"
	ReasonPodInitializing     = "PodInitializing"
	ReasonRestartingAll       = "RestartingAllContainers"
	ReasonCrashLoopBackOff    = "CrashLoopBackOff"
	ReasonErrImagePull        = "ErrImagePull"
	ReasonImagePullBackOff    = "ImagePullBackOff"
	ReasonErrImageNeverPull   = "ErrImageNeverPull"
	ReasonInvalidImageName    = "InvalidImageName"
	ReasonImageInspectError   = "ImageInspectError"
	ReasonRegistryUnavailable = "RegistryUnavailable"
	ReasonPullQueued          = "PullQueued" // a pull is queued
	ReasonPulling             = "Pulling"
	ReasonCreateContainer     = "CreateContainerError"
	ReasonCreateConfig        = "CreateContainerConfigError"
	ReasonRunContainer        = "RunContainerError"
	ReasonStartError          = "StartError"
	ReasonCompleted           = "Completed"
	ReasonError               = "Error"
	ReasonOOMKilled           = "OOMKilled"
	ReasonUnknown             = "ContainerStatusUnknown"
	ReasonCreateSandbox       = "FailedCreatePodSandBox"
	ReasonFailedMount         = "FailedMount"
	ReasonPermissionChange    = "VolumePermissionChangeInProgress" // a volume is being given to fsGroup
	ReasonCreatePodContainer  = "FailedCreatePodContainer"         // its cgroup, in the kubelet's terms
	ReasonPrepareClaims       = "FailedPrepareDynamicResources"    // the pod's ResourceClaims
	ReasonReleaseClaims       = "FailedUnprepareDynamicResources"
	ReasonAwaitDrivers        = "AwaitingDynamicResources" // calls of DRA drivers are in progress
	ReasonDeadlineExceeded    = "DeadlineExceeded"
	ReasonAttachLimit         = "VolumeAttachmentLimitExceeded" // the node has no place for another volume (KEP-4876)
	ReasonRuntimeUnavailable  = "RuntimeUnavailable"
	ReasonQuarantined         = "Quarantined"
	ReasonUnsupported         = "Unsupported" // the pod sets a field that this agent does not honour yet
	ReasonNetworkNotReady     = "NetworkNotReady"
	ReasonPreempting          = "Preempting"
	ReasonNodeUnknown         = "NodeUnknown" // the Node object has not been read yet
	ReasonAllocating          = "AllocatingResources"
	ReasonUnhealthy           = "Unhealthy" // a probe fails
	ReasonKilling             = "Killing"   // a container is being ended
	ReasonStopSandbox         = "FailedKillPod"
	ReasonUnmounting          = "Unmounting"
	ReasonRemoving            = "Removing" // sandboxes, containers and folders of an ended pod
	ReasonFailedRemove        = "FailedRemove"
	ReasonFinalizers          = "Finalizers" // the object of an ended pod is kept by them
	ReasonAgentStarting       = "AgentStarting"
	ReasonPredecessorEnding   = "PredecessorEnding" // a pod of the same name
	ReasonNameTaken           = "NameTaken"
	ReasonPredecessorFound    = "PredecessorFound"
)

// OneLine is an error's text in one line, for a message, a status, a log or a terminal: joined errors have a line each.
func OneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// Shorten returns the beginning of a text that others write, in at most this many bytes. An ellipsis marks the cut, which splits
// no character.
func Shorten(text string, most int) string {
	const more = " …"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:max(most-len(more), 0)], "") + more
}

// Err is the reason as an error text: "Code: Message".
func (r Reason) String() string {
	if r.Message == "" {
		return r.Code
	}
	return r.Code + ": " + r.Message
}
