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

// Outdated says that a container which runs has to be made anew. What a container of a manifest may use changes only so; those
// of the API server's are resized (KEP-1287).
func (s *State) Outdated(c *Container, f *Attempt) bool {
	if c.Ephemeral {
		return false
	}
	if objectset.OfAPIServer(s.Pod) {
		return s.respecced(c, f)
	}
	return s.changed(c, f)
}

// changed says that the container was made from another spec. What it may use is part of that.
func (s *State) changed(c *Container, f *Attempt) bool {
	was := s.Set.Resources(s.Pod, f.ContainerFact)
	return s.respecced(c, f) || (was != nil && !equality.Semantic.DeepEqual(*was, resources.Allocated(s.Pod, c.Spec)))
}

// respecced says so of all but what it may use.
func (s *State) respecced(c *Container, f *Attempt) bool {
	if objectset.OfAPIServer(s.Pod) {
		return s.Set.ChangedImage(c.Spec, f.ContainerFact)
	}
	return s.Set.Changed(c.Spec, f.ContainerFact)
}

// RestartTime is when a container that ended may start again. The end has the runtime's time: where that clock, or ours,
// was set since, nobody waits longer than the back-off from now.
func (s *State) RestartTime(now time.Time, c *Container, ended time.Time) time.Time {
	if c.Replace || c.Earlier {
		return now
	}
	return s.Set.BackOff.After(now, c.Backoff, ended)
}

// Standing is the container that was made for the present attempt and can be adopted. One that never ran is made again where
// the spec has changed.
func (s *State) Standing(c *Container) *Attempt {
	f, current := c.Newest(), s.Current()
	if f == nil || current == nil || f.SandboxID != current.ID || c.Earlier {
		return nil
	}
	if f.State == messages.ContainerRunning || (f.State == messages.ContainerCreated && c.Spec != nil && !s.changed(c, f)) {
		return f
	}
	return nil
}

// NextImage is the image that the container needs next: those of its volumes first, as with the kubelet, then its own.
func (s *State) NextImage(c *Container) (image string, policy v1.PullPolicy, volume string) {
	for _, v := range podspec.ImageVolumes(s.Pod, c.Spec) {
		if c.Image.Volumes[v.Name] == "" {
			return v.Image.Reference, v.Image.PullPolicy, v.Name
		}
	}
	return c.Spec.Image, c.Spec.ImagePullPolicy, ""
}

// ImageOf is the container whose need of an image is answered; nil when it has another by now.
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

// Sized is what a container has and gets of resources.
func (s *State) Sized(c *Container) *resources.Container {
	f := c.Newest()
	return &resources.Container{Given: &f.Given, Pod: s.Pod, Spec: c.Spec, Fact: &f.ContainerFact, Set: &s.Set}
}

// Unsettled says that the container runs with other resources than were allocated to it, or that it is not known whether it does.
func (s *State) Unsettled(c *Container) bool {
	return objectset.OfAPIServer(s.Pod) && c.Spec != nil && c.Running() && !s.Sized(c).Settled()
}

// RestartsFor says that the container has to be made anew for its resources, by its resizePolicy, which is of regular containers
// and of sidecars.
func (s *State) RestartsFor(c *Container) bool {
	return (c.Regular() || c.Sidecar()) && s.Sized(c).Restarts()
}
