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

// Store is what a collection needs of the CRI; *cri.Client has it.
type Store interface {
	ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
	// ListAllContainers has those of other agents, too: their images are not ours to remove.
	ListAllContainers(ctx context.Context) ([]*runtimeapi.Container, error)
	RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
}

// survey is what is found before a collection.
type survey struct {
	images []*runtimeapi.Image
	used   users // those that containers have, and the runtime itself
	err    error
	// space is what is left of the file system, where spaceErr is nil: only a collection goes by it.
	space    Space
	spaceErr error
}

// users are who has images, or is about to have them, by the IDs and references of those.
type users map[string][]messages.ImageUser

func (u users) add(ref string, by ...messages.ImageUser) {
	ref = fullName(ref)
	u[ref] = append(u[ref], by...)
}

// of says who has an image of these names, each once, and whether anybody does.
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

// Space is what is left of the file system that images are on, in bytes.
type Space struct{ Available, Capacity int64 }

// allNames are the names of an image, for comparison with what containers and pods call it.
func allNames(img *runtimeapi.Image) map[string]bool {
	names := map[string]bool{img.GetId(): true}
	for _, ref := range slices.Concat(img.GetRepoTags(), img.GetRepoDigests()) {
		names[fullName(ref)] = true
	}
	return names
}

// fullName spells a reference out, as runtimes do. What is none, as an ID, stays as it is.
func fullName(ref string) string {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil || strings.HasPrefix(ref, "sha256:") {
		return ref
	}
	if digested, ok := named.(reference.Digested); ok { // a tag beside it counts for nothing
		return named.Name() + "@" + digested.Digest().String()
	}
	return reference.TagNameOnly(named).String()
}

func (o *Collect) survey(ctx context.Context) survey {
	var s survey
	// Images before containers: one of which a container was made meanwhile is then found to be in use.
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
	var config struct { // of containerd 1.6, which pins nothing
		SandboxImage string `json:"sandboxImage"`
	}
	if json.Unmarshal([]byte(status.GetInfo()["config"]), &config) == nil && config.SandboxImage != "" {
		s.used.add(config.SandboxImage)
	}
	s.space, s.spaceErr = o.Space(ctx)
	return s
}

// prune forgets how images were pulled that are gone. A list without any image is not believed.
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
