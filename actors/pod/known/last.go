package known

import (
	"iter"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/find"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/messages"
)

// Seed restores from the last status the pod's start time, and the restart counts of containers that the runtime no longer has,
// so that the status continues.
func (s *State) Seed(now time.Time) {
	if last := s.Wanted.Last; last != nil && last.StartTime != nil {
		s.seedStart(last.StartTime.Time, now)
	}
	for c, was := range s.last() {
		if was.ContainerID != "" && was.RestartCount >= 0 {
			c.Free = max(c.Free, uint32(was.RestartCount)+1)
		}
	}
}

// SeedAttempts restores attempts, after the runtime and the prober were read.
func (s *State) SeedAttempts(now time.Time) {
	for c, was := range s.last() {
		s.seedProbes(c, was)
		if objectset.OfAPIServer(s.Pod) {
			c.seedEnd(s.Pod, was, now)
		}
	}
}

// last returns the containers in the last status, each with its entry.
func (s *State) last() iter.Seq2[*Container, *v1.ContainerStatus] {
	return func(yield func(*Container, *v1.ContainerStatus) bool) {
		if s.Wanted.Last == nil {
			return
		}
		last := slices.Concat(s.Wanted.Last.InitContainerStatuses, s.Wanted.Last.ContainerStatuses,
			s.Wanted.Last.EphemeralContainerStatuses)
		for _, c := range s.Containers {
			was := find.In(last, func(was *v1.ContainerStatus) bool { return was.Name == c.Name })
			if was != nil && !yield(c, was) {
				return
			}
		}
	}
}

// seedProbes restores the probe results of a running container from the status if none were kept: another agent ran it, and its
// last status holds until a probe contradicts it.
func (s *State) seedProbes(c *Container, was *v1.ContainerStatus) {
	f := c.Newest()
	if !Probed(c.Spec) || !c.Running() || was.ContainerID != s.Set.RuntimeID(f.ID) {
		return
	}
	var said messages.ProbeResults
	if was.Started != nil && *was.Started {
		said.Startup = messages.ProbeSucceeded
	}
	if was.Ready {
		said.Startup, said.Readiness = messages.ProbeSucceeded, messages.ProbeSucceeded
	}
	said.Learn(c.Results())
	f.Results = said
}

// seedEnd restores the end of a container that the runtime has lost from the status of a pod of the API server. A reported end
// counts for more than a guess, and a finished container does not run again because its remains were removed. A guess counts if
// it was reported as an end for good, and so does the loss of an ephemeral container: it never runs twice (KEP-277).
func (c *Container) seedEnd(pod *v1.Pod, was *v1.ContainerStatus, now time.Time) {
	end, waits := was.State.Terminated, was.State.Waiting
	if end == nil && waits != nil {
		end = was.LastTerminationState.Terminated
	}
	restarting := waits != nil && waits.Reason == messages.ReasonRestartingAll ||
		end != nil && end.Reason == messages.ReasonRestartingAll // a kubelet removed it to restart all
	if c.Spec == nil || c.Newest() != nil || was.RestartCount < 0 || was.ContainerID == "" || restarting {
		return
	}
	_, id, _ := strings.Cut(was.ContainerID, "://")
	f := messages.ContainerFact{ID: id, Name: c.Name, Attempt: uint32(was.RestartCount), Image: was.Image, ImageRef: was.ImageID}
	switch {
	case end != nil:
		f.State, f.StartedAt, f.FinishedAt = messages.ContainerExited, end.StartedAt.Time, end.FinishedAt.Time
		f.ExitCode, f.Reason, f.Message = end.ExitCode, end.Reason, end.Message
		if end.Reason == messages.ReasonUnknown && (waits != nil || c.Verdict(pod, &f) == messages.ExitRestarts) {
			return
		}
	case c.Ephemeral && was.State.Running != nil:
		f.StartedAt = was.State.Running.StartedAt.Time
		f = f.Removed(now)
	default:
		return
	}
	c.Learn(f, now)
}
