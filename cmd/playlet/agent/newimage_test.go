package agent

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri/sim"
)

// A container that exits with 0 because its image was changed runs with the new image, and the API server accepts the new
// status. It would reject that after a report of the end.
func TestAnImageIsChangedUnderOnFailure(t *testing.T) {
	r := newClusterRig(t, sim.Options{})
	r.start(nil)
	r.binds(manifest("web", "OnFailure", nil, []string{"one forever", "two forever"}))
	r.await("both", func(s sim.Snapshot) bool { return isUp(s, "web") && s.Running() == 2 })
	r.edits("web", func(p *v1.Pod) { p.Spec.Containers[0].Image = "hello" })
	r.eventually("the new one is told of", func() bool {
		p := r.pod("web")
		if len(p.Status.ContainerStatuses) == 0 {
			return false
		}
		s := p.Status.ContainerStatuses[0]
		return s.RestartCount == 1 && s.State.Running != nil && s.Ready && s.LastTerminationState.Terminated != nil
	})
}
