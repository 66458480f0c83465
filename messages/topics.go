package messages

// Topic is what a message tells the state of. It replaces all that the same sender told before on that topic, about the same pod
// or, where it is about no pod, about all: an older one that comes late says what is not true any more. Empty: the message
// stands for itself, as questions and events do.
func Topic(msg any) string {
	switch m := msg.(type) {
	case SourcePodsWanted:
		return "pods of a source"
	case PodWanted:
		return "desired pod"
	case PodStatusChanged:
		return "status"
	case PodStatusWanted, PodStatusesWanted:
		return "desired status"
	case APIPodsObserved:
		return "pods of the API server"
	case NodeObserved:
		return "node"
	case VolumesInUse:
		return "volumes in use"
	case CSIDriversObserved:
		return "drivers"
	case NodePressureObserved:
		return "pressure"
	case NodeShutdownObserved:
		return "shutdown"
	case ObjectsWanted:
		return "desired objects"
	case ObjectProblems:
		return "problems of objects"
	case RuntimeAudited:
		return "audit"
	case RuntimeStateChanged:
		return "runtime"
	case KeepContainers:
		return "containers to keep"
	case PodObserved:
		return "facts"
	case RunContainer, StopContainer:
		return "desired container"
	case ContainerReported:
		if m.StopFailed != "" { // which says nothing else of the container
			return ""
		}
		return "container"
	case WatchProbes:
		return "desired probes"
	case ProbesObserved:
		return "probes"
	case MountVolumes, UnmountVolumes:
		return "desired volumes"
	case PodFoldersWanted:
		return "desired folders"
	case EnsurePodCgroup, RemovePodCgroup:
		return "desired cgroup"
	case PodCgroupsWanted:
		return "desired cgroups"
	default:
		return ""
	}
}
