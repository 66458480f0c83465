package messages

// Topic returns the state that a message reports, as a name. A message replaces the same sender's earlier ones on its topic,
// about the same pod or, without a pod, about all. One that arrives after a newer one is obsolete. Questions and Events have
// no topic and stand for themselves.
func Topic(msg any) string {
	switch m := msg.(type) {
	case Started:
		if m.Desired != nil {
			return Topic(m.Desired)
		}
		return ""
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
		if m.StopFailed != "" { // the only field that is set then
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
	case PrepareClaims, ReleaseClaims:
		return "desired claims"
	case PodCgroupsWanted:
		return "desired cgroups"
	default:
		return ""
	}
}
