package known

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/find"
	"github.com/playlet-dev/playlet/messages"
)

// SeedAttempts takes from the status how often containers were started, where the runtime no longer has any.
func (s *State) SeedAttempts(last *v1.PodStatus) {
	for _, c := range s.Containers {
		if was := lastOf(last, c.Name); was != nil && was.ContainerID != "" && was.RestartCount >= 0 {
			c.Free = max(c.Free, uint32(was.RestartCount)+1)
		}
	}
}

// SeedProbes takes what the status says of containers that run, where no probe's word was kept: another agent ran them, and
// its last word stands until a probe says otherwise.
func (s *State) SeedProbes(last *v1.PodStatus) {
	for _, c := range s.Containers {
		f, was := c.Newest(), lastOf(last, c.Name)
		if !Probed(c.Spec) || was == nil || !c.Running() || was.ContainerID != s.Set.RuntimeID(f.ID) {
			continue
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
}

// SeedEnds takes from the status how containers of the API server's pod ended of which the runtime has nothing any more: what
// was told of an end counts for more than a guess, and what is over is not run again since somebody removed its remains.
func (s *State) SeedEnds(last *v1.PodStatus, now time.Time) {
	for _, c := range s.Containers {
		was := lastOf(last, c.Name)
		if was == nil || c.Spec == nil || c.Newest() != nil || was.RestartCount < 0 {
			continue
		}
		end := was.State.Terminated
		if end == nil && was.State.Waiting != nil {
			end = was.LastTerminationState.Terminated
		}
		if w := was.State.Waiting; w != nil && w.Reason == messages.ReasonRestartingAll || end != nil && end.Reason ==
			messages.ReasonRestartingAll {
			continue // a kubelet removed it, to restart all
		}
		if end == nil || was.ContainerID == "" || end.Reason == messages.ReasonUnknown {
			continue
		}
		_, id, _ := strings.Cut(was.ContainerID, "://")
		c.Learn(messages.ContainerFact{
			ID: id, Name: c.Name, Attempt: uint32(was.RestartCount), State: messages.ContainerExited, Image: was.Image,
			ImageRef:  was.ImageID,
			StartedAt: end.StartedAt.Time, FinishedAt: end.FinishedAt.Time, ExitCode: end.ExitCode, Reason: end.Reason,
			Message: end.Message,
		}, now)
	}
}

// lastOf is the status of one container; nil where there is none.
func lastOf(s *v1.PodStatus, name string) *v1.ContainerStatus {
	return find.In(slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses),
		func(c *v1.ContainerStatus) bool { return c.Name == name })
}
