package images

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/messages"
)

const (
	// settleTimeout is how long nothing is removed after a start while the node's pods are not all known; a source may never be
	// heard.
	settleTimeout = time.Minute
	settleLook    = time.Second
)

// settled says that all pods of the node are known. Before that, an image that one is about to use is nobody's: what this actor
// was asked for is forgotten when it begins anew, and a pod that was told that its image is there does not ask again.
func (a *images) settled(now time.Time) bool {
	if a.opts.Board == nil {
		return true
	}
	s := a.opts.Board.Now()
	return s.Complete() || s.Version > 0 && now.Sub(s.Life) > settleTimeout
}

// ofPods adds the images of all containers that pods have yet to run, or run, and of their volumes.
func (a *images) ofPods(add func(ref string, k messages.ImageKey)) {
	if a.opts.Board == nil {
		return
	}
	for _, p := range a.opts.Board.Now().Pods {
		if p.Phase == "finished" {
			continue
		}
		ended := map[string]bool{} // those that run again are there as dead containers
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
