package messages

import (
	"slices"
	"time"
)

// ContainerState is the CRI's state of a container.
type ContainerState string

// The states that the CRI knows.
const (
	ContainerCreated ContainerState = "created"
	ContainerRunning ContainerState = "running"
	ContainerExited  ContainerState = "exited"
	ContainerUnknown ContainerState = "unknown"
)

// ContainerFact is the state of one container in the CRI at one time.
type ContainerFact struct {
	ID         string
	Name       string // of the container in the pod
	SandboxID  string
	Attempt    uint32
	State      ContainerState
	CreatedAt  time.Time
	StartedAt  time.Time // zero when it never started
	FinishedAt time.Time
	ExitCode   int32
	Reason     string
	Message    string // of the runtime, or the container's own termination message
	Image      string // as asked for
	ImageRef   string // with digest, as resolved
	ImageID    string
	// Annotations are those that the container was created with. Immutable.
	Annotations map[string]string
	LogPath     string
	User        *ContainerUser
	// Resources are the current resources; nil where the runtime does not report them, as in lists.
	Resources *ContainerResources
}

// ContainerResources are the resources of a container that can change while it runs, in the runtime's units.
type ContainerResources struct {
	CPUShares           int64 // as of cgroup v1
	CPUQuota, CPUPeriod int64 // microseconds; no limit where the quota is 0 or below
	MemoryLimit         int64 // bytes; no limit where it is 0 or below
}

// ContainerUser is the identity that the runtime gave the container's first process.
type ContainerUser struct {
	UID, GID int64
	Groups   []int64
}

// SandboxFact is the state of one sandbox in the CRI at one time.
type SandboxFact struct {
	ID        string
	Attempt   uint32
	Ready     bool
	CreatedAt time.Time
	IPs       []string
	HostNet   bool
	// Handler is the runtime's handler that it was made with; empty: the default one.
	Handler string
	// NoIP is true when the runtime reports a network of the pod's own without an address.
	NoIP bool
	// PodStarted is the pod's start time, as noted on the sandbox; zero where it is not.
	PodStarted time.Time
	// Source is where the pod came from, as the annotation kubernetes.io/config.source of the sandbox has it.
	Source string
}

// PodFacts is the state of one pod in the CRI at one time.
type PodFacts struct {
	UID, Name, Namespace string
	Sandboxes            []SandboxFact   // newest first
	Containers           []ContainerFact // newest first
	// ReadAt is the time when the reading began. Later operations may be missing from it.
	ReadAt time.Time
	// Away is how long the runtime has been away since its actor started: grace periods do not run meanwhile.
	Away time.Duration
}

// Alive reports whether a sandbox or container of the pod may be running.
func (f *PodFacts) Alive() bool {
	return slices.ContainsFunc(f.Sandboxes, func(s SandboxFact) bool { return s.Ready }) ||
		slices.ContainsFunc(f.Containers, func(c ContainerFact) bool { return c.Alive() })
}

// Alive reports whether the container may have a process to end.
func (f *ContainerFact) Alive() bool {
	return f.State == ContainerRunning || f.State == ContainerUnknown
}

// Exit returns the container's end, as the strategy of its actor judges it. A container that never ran did not fail.
func (f *ContainerFact) Exit() Exit {
	if f.State != ContainerExited {
		return Exit{Run: f.Attempt}
	}
	return Exit{Code: f.ExitCode, Run: f.Attempt}
}

// Removed returns the end of a container that was removed from the runtime from outside, as observed at a time.
func (f ContainerFact) Removed(at time.Time) ContainerFact {
	f.State, f.ExitCode, f.Reason = ContainerExited, 137, ReasonUnknown
	f.Message, f.FinishedAt = "the container was removed from the runtime by someone else", at
	return f
}

// ReadPod asks for the CRI's state of one pod.
//
// Sender: pod. Receiver: runtime. Reply: PodObserved, when the runtime can be reached.
// If lost: the pod asks again when its timeout ends.
type ReadPod struct{ UID string }

// PodObserved is the CRI's state of one pod: after ReadPod, an event, or an audit that found a difference.
//
// Sender: runtime. Receiver: pod. Reply: none.
// If lost: the next audit sends every pod again.
type PodObserved struct{ Facts PodFacts }

// GetAudit asks for a list of every pod that the CRI knows of. Until it has one, pods starts nothing: a pod's predecessor
// of the same name may still be there.
//
// Sender: pods. Receiver: runtime. Reply: RuntimeAudited, when the runtime can be reached.
// If lost: pods asks again every few seconds.
type GetAudit struct{}

// RuntimeAudited lists every pod in the CRI, desired or not, from the CRI's lists. Containers lack times of start and end,
// exit code, reason, message, log path and user. Sandboxes lack addresses, HostNet and NoIP.
//
// Sender: runtime. Receiver: pods. Reply: none.
// If lost: the next audit sends it again.
type RuntimeAudited struct {
	Pods   []PodFacts
	ReadAt time.Time
}

// RuntimeStateChanged reports whether the runtime is reachable and ready, and whether its network is.
//
// Sender: runtime. Receiver: pods, registration. Reply: none.
// If lost: the next audit sends it again.
type RuntimeStateChanged struct {
	Ready  bool
	Reason Reason // why not
	Since  time.Time
	// NetworkReady is the runtime's latest report on the pods' network. NetworkReason explains a failure.
	NetworkReady  bool
	NetworkReason string
	// Stale explains why the lists of a ready runtime cannot be trusted; empty when they can.
	Stale string
}

// KeepContainers names the pods whose dead containers and sandboxes the collector must not touch beyond the
// configured limits, and those that are gone, of which it removes everything.
//
// Sender: pods. Receiver: runtime. Reply: none.
// If lost: pods sends it again with its next sweep.
type KeepContainers struct {
	// At is the time of this state. A pod that asked for a reading after it counts as desired.
	At time.Time
	// Wanted are the UIDs of the pods that a source has, or that are ending. Of each, the configured number of dead
	// containers stays.
	Wanted map[string]bool
	// Over are the UIDs of the desired pods that never run again, and whose final status is on disk or at the API server, or
	// does not fit on a full disk. Only they may lose the newest instance of a container: for all others the runtime alone
	// knows how it ended.
	Over map[string]bool
	// Heard is true when every source has reported. Only then may sandboxes and containers without a pod be removed.
	Heard bool
}

// ReclaimContainers asks for the removal of dead containers beyond the configured limits at once, and of all of the pods in
// KeepContainers.Over: the node is short of disk.
//
// Sender: eviction. Receiver: runtime. Reply: ContainersReclaimed, when nothing more is to be removed.
// If lost: eviction stops waiting, and asks again with a later measurement, as long as the disk is short.
type ReclaimContainers struct{}

// ContainersReclaimed is the result of a removal of dead containers.
//
// Sender: runtime. Receiver: eviction. Reply: none.
// If lost: eviction stops waiting and relies on its next measurement.
type ContainersReclaimed struct {
	Removed int    // containers, sandboxes and log folders
	Freed   int64  // bytes of logs; runtimes do not report other files of dead containers
	Problem string // the containers that could not be removed, and why
}
