package sim

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imageService answers the calls of ImageService and leaves the rest Unimplemented.
type imageService struct {
	runtimeapi.UnimplementedImageServiceServer
	r *Runtime
}

// PullImage waits for its delay and makes the image present, or fails according to the Image. If cancelled, it leaves nothing.
// Concurrent pulls of one image each take their whole time and result in one image.
func (s *imageService) PullImage(ctx context.Context, req *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	r, asked := s.r, req.GetImage().GetImage()
	if asked == "" {
		return nil, errUnknown("failed to parse image reference %q: invalid reference format", asked)
	}
	ref := normalizeRef(asked)
	r.mu.Lock()
	offer := r.images.offers[ref]
	r.mu.Unlock()

	if err := r.pause(ctx); err != nil {
		return nil, err
	}
	if err := r.sleep(ctx, offer.Takes); err != nil {
		return nil, err
	}
	if err := offer.outcome(ref, req.GetAuth()); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	img := r.images.add(ref)
	r.changedLocked()
	return &runtimeapi.PullImageResponse{ImageRef: img.id}, nil
}

// outcome returns the result of a pull.
func (i Image) outcome(ref string, auth *runtimeapi.AuthConfig) error {
	if i.Username != "" && (auth.GetUsername() != i.Username || auth.GetPassword() != i.Password) {
		return errUnknown("failed to pull and unpack image %q: failed to resolve reference %q: "+
			"pull access denied, repository does not exist or may require authorization: authorization failed", ref, ref)
	}
	return i.Err
}

// RemoveImage removes the image with all its references; removing an absent image succeeds.
func (s *imageService) RemoveImage(_ context.Context, req *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse,
	error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	img := r.images.find(req.GetImage().GetImage())
	if img == nil {
		return &runtimeapi.RemoveImageResponse{}, nil
	}
	for _, c := range r.store.containerOrder {
		if c.image == img.id {
			r.violateLocked("image-in-use", "RemoveImage of %q, which %s uses", req.GetImage().GetImage(), c.name)
			break
		}
	}
	r.images.remove(img)
	r.changedLocked()
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo reports the sum of the images' sizes.
func (s *imageService) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	var used uint64
	for _, img := range r.images.byID {
		used += orDefault(img.offer.Size, 1<<20)
	}
	usage := &runtimeapi.FilesystemUsage{
		Timestamp: r.now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: imageRoot},
		UsedBytes: value(used), InodesUsed: value(uint64(len(r.images.byID))),
	}
	resp := &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{usage}}
	if !r.opts.Old {
		resp.ContainerFilesystems = []*runtimeapi.FilesystemUsage{usage}
	}
	return resp, nil
}
