package sim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imageRoot is the mount point in ImageFsInfo and stats.
const imageRoot = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs"

// Image is the offer of a registry under a reference. The zero value is an ordinary image of 1 MiB.
type Image struct {
	// Content stands for the bytes: references with the same Content share one image ID. By default each reference has
	// its own.
	Content string
	Size    uint64 // bytes; 1 MiB when 0
	Pinned  bool

	// Username and Password are required for a pull, if set.
	Username, Password string
	// Takes is added to the latency of PullImage.
	Takes time.Duration
	// Err is the error of every pull.
	Err error
}

// image is one image in the store.
type image struct {
	id            string
	tags, digests []string
	offer         Image
}

// imageStore holds the present images, and those that can be pulled. Runtime.mu guards it.
type imageStore struct {
	offers map[string]Image // by normalized reference
	byID   map[string]*image
	byRef  map[string]*image // tags and digests
	sorted []string          // keys of byRef; nil after a change
}

func newImageStore(offers map[string]Image) imageStore {
	s := imageStore{
		offers: map[string]Image{}, byID: map[string]*image{}, byRef: map[string]*image{},
	}
	for ref, offer := range offers {
		s.offers[normalizeRef(ref)] = offer
	}
	return s
}

// add makes the image with this normalized reference present.
func (s *imageStore) add(ref string) *image {
	offer := s.offers[ref]
	repo, digest, hasDigest := strings.Cut(ref, "@")
	content := offer.Content
	if content == "" {
		content = ref
	}
	if !hasDigest {
		repo, _ = cutTag(ref)
		digest = digestOf("manifest " + content)
	}
	id := digestOf("config " + content)
	img := s.byID[id]
	if img == nil {
		img = &image{id: id}
		s.byID[id] = img
	}
	img.offer = offer
	if !hasDigest {
		s.name(ref, img, &img.tags)
	}
	s.name(repo+"@"+digest, img, &img.digests)
	return img
}

// name makes ref refer to img. Answers in progress may refer to the old slice.
func (s *imageStore) name(ref string, img *image, refs *[]string) {
	s.byRef[ref] = img
	if !slices.Contains(*refs, ref) {
		*refs = append(slices.Clone(*refs), ref)
	}
	s.sorted = nil
}

// find returns the image with this ID or reference, or nil if it is not present.
func (s *imageStore) find(ref string) *image {
	if img := s.byID[ref]; img != nil {
		return img
	}
	return s.byRef[normalizeRef(ref)]
}

func (s *imageStore) remove(img *image) {
	delete(s.byID, img.id)
	for _, ref := range append(slices.Clone(img.tags), img.digests...) {
		delete(s.byRef, ref)
	}
	s.sorted = nil
}

// refs returns every present reference, sorted. The slice is shared and must not be changed.
func (s *imageStore) refs() []string {
	if s.sorted == nil {
		s.sorted = make([]string, 0, len(s.byRef))
		for ref := range s.byRef {
			s.sorted = append(s.sorted, ref)
		}
		slices.Sort(s.sorted)
	}
	return s.sorted
}

func digestOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// normalizeRef completes a reference like Docker and containerd: host, "library" on Docker Hub, and the tag "latest" if it has
// neither tag nor digest. An image ID remains unchanged.
func normalizeRef(ref string) string {
	if ref == "" || strings.HasPrefix(ref, "sha256:") {
		return ref
	}
	host, rest, hasHost := strings.Cut(ref, "/")
	if !hasHost || !strings.ContainsAny(host, ".:") && host != "localhost" {
		host, rest = "docker.io", ref
	}
	if host == "docker.io" && !strings.Contains(rest, "/") {
		rest = "library/" + rest
	}
	name, digest, hasDigest := strings.Cut(rest, "@")
	if hasDigest {
		name, _ = cutTag(name)
		return host + "/" + name + "@" + digest
	}
	if name, tag := cutTag(rest); tag == "" {
		rest = name + ":latest"
	}
	return host + "/" + rest
}

// cutTag splits "repository:tag"; a colon before a slash belongs to a port.
func cutTag(ref string) (repo, tag string) {
	if i := strings.LastIndexByte(ref, ':'); i > strings.LastIndexByte(ref, '/') {
		return ref[:i], ref[i+1:]
	}
	return ref, ""
}

func (i *image) toCRI() *runtimeapi.Image {
	return &runtimeapi.Image{
		Id: i.id, RepoTags: i.tags, RepoDigests: i.digests, Size: orDefault(i.offer.Size, 1<<20), Pinned: i.offer.Pinned,
	}
}

// ImageStatus returns no image if it is not present.
func (s *imageService) ImageStatus(_ context.Context, req *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse,
	error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	resp := &runtimeapi.ImageStatusResponse{}
	if img := r.images.find(req.GetImage().GetImage()); img != nil {
		resp.Image = img.toCRI()
		if req.GetVerbose() {
			resp.Info = map[string]string{"info": "{}"}
		}
	}
	return resp, nil
}

// ListImages lists every image; like containerd it ignores the filter.
func (s *imageService) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	resp := &runtimeapi.ListImagesResponse{}
	for _, img := range r.images.byID {
		resp.Images = append(resp.Images, img.toCRI())
	}
	inIDOrder(resp.Images, (*runtimeapi.Image).GetId)
	return resp, nil
}
