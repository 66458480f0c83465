package images

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/images/pullrecord"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// Store is the part of the CRI that a collection uses. *cri.Client implements it.
type Store interface {
	ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
	// ListAllContainers includes the containers of other agents, so that their images are kept.
	ListAllContainers(ctx context.Context) ([]*runtimeapi.Container, error)
	RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
}

// survey is the state of the node that a collection decides on.
type survey struct {
	images []*runtimeapi.Image
	used   users // of containers, and of the runtime itself
	err    error
	// space is the state of the file system if spaceErr is nil. Only a collection uses it.
	space    Space
	spaceErr error
}

// users has the present and future users of images, by the IDs and references of the images.
type users map[string][]messages.ImageUser

func (u users) add(ref string, by ...messages.ImageUser) {
	ref = fullName(ref)
	u[ref] = append(u[ref], by...)
}

// of returns the users of an image with these names, without duplicates. some is also true for an image in use without a user.
func (u users) of(names map[string]bool) (by []messages.ImageUser, some bool) {
	for name := range names {
		list, found := u[name]
		some = some || found
		by = append(by, list...)
	}
	slices.SortFunc(by, func(a, b messages.ImageUser) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod), strings.Compare(a.UID, b.UID),
			strings.Compare(a.Container, b.Container))
	})
	return slices.Compact(by), some
}

// Space is the available and the total space of the file system of images, in bytes.
type Space struct{ Available, Capacity int64 }

// allNames returns the names of an image, for comparison with the references in containers and pods.
func allNames(img *runtimeapi.Image) map[string]bool {
	names := map[string]bool{img.GetId(): true}
	for _, ref := range slices.Concat(img.GetRepoTags(), img.GetRepoDigests()) {
		names[fullName(ref)] = true
	}
	return names
}

// fullName normalizes a reference, as runtimes do. It returns any other text, such as an ID, unchanged.
func fullName(ref string) string {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil || strings.HasPrefix(ref, "sha256:") {
		return ref
	}
	if digested, ok := named.(reference.Digested); ok { // a tag beside a digest is ignored
		return named.Name() + "@" + digested.Digest().String()
	}
	return reference.TagNameOnly(named).String()
}

func (o *Collect) survey(ctx context.Context) survey {
	var s survey
	// Images are listed before containers, so that the image of a container created in between is found to be in use.
	if s.images, s.err = o.Store.ListImages(ctx, nil); s.err != nil {
		return s
	}
	containers, err := o.Store.ListAllContainers(ctx)
	if err != nil {
		return survey{err: err}
	}
	s.used = users{}
	for _, c := range containers {
		l := c.GetLabels()
		by := messages.ImageUser{Namespace: l[cri.LabelPodNamespace], Pod: l[cri.LabelPodName], UID: l[cri.LabelPodUID],
			Container: c.GetMetadata().GetName()}
		volumes := strings.Fields(c.GetAnnotations()[cri.AnnotationImageVolumes])
		for _, ref := range append(volumes, c.GetImageId(), c.GetImageRef(), c.GetImage().GetImage()) {
			s.used.add(ref, by)
		}
	}
	status, err := o.Store.Status(ctx, true)
	if err != nil {
		return survey{err: err}
	}
	var config struct { // of containerd 1.6, which does not pin the sandbox image
		SandboxImage string `json:"sandboxImage"`
	}
	if json.Unmarshal([]byte(status.GetInfo()["config"]), &config) == nil && config.SandboxImage != "" {
		s.used.add(config.SandboxImage)
	}
	s.space, s.spaceErr = o.Space(ctx)
	return s
}

// prune drops the pull records of removed images. It ignores an empty list of images.
func (s survey) prune(records *pullrecord.Records, since time.Time) error {
	if len(s.images) == 0 {
		return nil
	}
	names := map[string]bool{}
	for _, img := range s.images {
		maps.Copy(names, allNames(img))
	}
	return records.Prune(func(name string) bool { return names[fullName(name)] }, since)
}
