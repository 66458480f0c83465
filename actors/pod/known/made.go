package known

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/pod/resources"
	"github.com/playlet-dev/playlet/messages"
)

// Outdated reports whether a running container has to be created again. That is the only way to change the resources of a
// container of a manifest. Containers of the API server are resized (KEP-1287).
func (s *State) Outdated(c *Container, f *Attempt) bool {
	if c.Ephemeral {
		return false
	}
	if objectset.OfAPIServer(s.Pod) {
		return s.respecced(c, f)
	}
	return s.changed(c, f)
}

// changed reports whether the container was created from another spec, its resources included.
func (s *State) changed(c *Container, f *Attempt) bool {
	was := s.Set.Resources(s.Pod, f.ContainerFact)
	return s.respecced(c, f) || (was != nil && !equality.Semantic.DeepEqual(*was, resources.Allocated(s.Pod, c.Spec)))
}

// respecced reports whether the spec has changed in more than the resources.
func (s *State) respecced(c *Container, f *Attempt) bool {
	if objectset.OfAPIServer(s.Pod) {
		return s.Set.ChangedImage(c.Spec, f.ContainerFact)
	}
	return s.Set.Changed(c.Spec, f.ContainerFact)
}

// RestartTime returns when a container that ended may start again. If the end has the runtime's time, and that clock, or ours,
// was set since, the wait is at most the back-off from now.
func (s *State) RestartTime(now time.Time, c *Container, ended time.Time) time.Time {
	if c.Replace || c.Earlier {
		return now
	}
	return c.Backoff.At(now, ended)
}

// Adoptable returns the container of the present attempt that can be adopted, or nil. One that never ran is created again after a
// change of the spec.
func (s *State) Adoptable(c *Container) *Attempt {
	f, current := c.Newest(), s.Current()
	if f == nil || current == nil || f.SandboxID != current.ID || c.Earlier {
		return nil
	}
	if f.State == messages.ContainerRunning || (f.State == messages.ContainerCreated && c.Spec != nil && !s.changed(c, f)) {
		return f
	}
	return nil
}

// NextImage returns the next image that the container needs: as with the kubelet, the images of its volumes first, then its own.
func (s *State) NextImage(c *Container) (image string, policy v1.PullPolicy, volume string) {
	for _, v := range podspec.ImageVolumes(s.Pod, c.Spec) {
		if c.Image.Volumes[v.Name] == "" {
			return v.Image.Reference, v.Image.PullPolicy, v.Name
		}
	}
	return c.Spec.Image, c.Spec.ImagePullPolicy, ""
}

// ImageOf returns the container that still needs this image, or nil if it needs another by now.
func (s *State) ImageOf(key messages.ImageKey, image string) *Container {
	c := s.Container(key.Container)
	if c == nil || c.Spec == nil || c.Image.Attempt != key.Attempt {
		return nil
	}
	if want, _, volume := s.NextImage(c); want != image || volume != key.Volume {
		return nil
	}
	return c
}

// Sized returns the container with its present and allocated resources.
func (s *State) Sized(c *Container) *resources.Container {
	f := c.Newest()
	return &resources.Container{AttemptState: &f.Given, Pod: s.Pod, Spec: c.Spec, Fact: &f.ContainerFact, Set: &s.Set}
}

// Unsettled reports whether the container may run with other resources than its allocation.
func (s *State) Unsettled(c *Container) bool {
	return objectset.OfAPIServer(s.Pod) && c.Spec != nil && c.Running() && !s.Sized(c).Settled()
}

// RestartsFor reports whether the container has to be restarted for its resources, by its resizePolicy, which regular containers
// and sidecars have.
func (s *State) RestartsFor(c *Container) bool {
	return (c.Regular() || c.Sidecar()) && s.Sized(c).Restarts()
}
