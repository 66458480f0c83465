package images

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/messages"
)

const (
	// settleTimeout limits how long removals wait after a start until all pods of the node are known. A source may never report.
	settleTimeout = time.Minute
	settleLook    = time.Second
)

// podsSynced reports whether all pods of the node are known. Before that, the image of a starting pod would count as unused: a
// restart of the actor loses needs and leases, and a pod that has its answer does not ask again.
func (a *images) podsSynced(now time.Time) bool {
	if a.opts.Board == nil {
		return true
	}
	s := a.opts.Board.Now()
	return s.Complete() || s.Version > 0 && now.Sub(s.Life) > settleTimeout
}

// ofPods adds the images of all containers that run or will run, and of their volumes.
func (a *images) ofPods(add func(ref string, k messages.ImageKey)) {
	if a.opts.Board == nil {
		return
	}
	for _, p := range a.opts.Board.Now().Pods {
		if p.Phase == "finished" {
			continue
		}
		ended := map[string]bool{} // the dead container itself keeps the image of one that restarts
		if s := p.Status; s != nil {
			for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses) {
				ended[c.Name] = c.State.Terminated != nil
			}
		}
		spec := &p.Pod.Spec
		containers := slices.Concat(spec.InitContainers, spec.Containers)
		for _, e := range spec.EphemeralContainers {
			containers = append(containers, v1.Container(e.EphemeralContainerCommon))
		}
		for i := range containers {
			c := &containers[i]
			if ended[c.Name] {
				continue
			}
			k := messages.ImageKey{UID: string(p.Pod.UID), Container: c.Name}
			add(c.Image, k)
			for _, v := range podspec.ImageVolumes(p.Pod, c) {
				add(v.Image.Reference, k)
			}
		}
	}
}
