package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListImages returns the images that match; a nil filter means all.
func (c *Client) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	k := call{name: "ListImages", class: ClassRead}
	resp, err := invoke(ctx, c, k, c.images.ListImages, &runtimeapi.ListImagesRequest{Filter: filter})
	if err != nil {
		return nil, err
	}
	return resp.Images, nil
}

// ImageStatus returns the image, or nil and no error when it is not there. A
// response with an image that lacks its ID or size counts as an error, as the
// kubelet counts it.
func (c *Client) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.Image,
	map[string]string, error) {
	k := call{name: "ImageStatus", object: image.GetImage(), class: ClassRead}
	resp, err := invoke(ctx, c, k, c.images.ImageStatus,
		&runtimeapi.ImageStatusRequest{Image: image, Verbose: verbose})
	if err != nil {
		return nil, nil, err
	}
	if resp.Image != nil && (resp.Image.Id == "" || resp.Image.Size == 0) {
		return nil, nil, malformed(k, "an image without ID or size")
	}
	return resp.Image, resp.Info, nil
}

// PullImage pulls and returns the reference by which the runtime knows the
// image. Its time limit is PullTimeout. errors.Is finds ErrRegistryUnavailable
// and ErrSignatureValidationFailed of k8s.io/cri-api/pkg/errors in the error.
func (c *Client) PullImage(
	ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	k := call{name: "PullImage", object: image.GetImage(), class: ClassPull, total: c.opts.PullTimeout}
	resp, err := invoke(ctx, c, k, c.images.PullImage,
		&runtimeapi.PullImageRequest{Image: image, Auth: auth, SandboxConfig: sandbox})
	if err != nil {
		return "", err
	}
	if resp.ImageRef == "" {
		return "", malformed(k, "an image without a reference")
	}
	return resp.ImageRef, nil
}

// RemoveImage removes the image; one that is not there is no error.
func (c *Client) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	k := call{name: "RemoveImage", object: image.GetImage(), class: ClassStop}
	_, err := invoke(ctx, c, k, c.images.RemoveImage, &runtimeapi.RemoveImageRequest{Image: image})
	return err
}

// ImageFsInfo returns the use of the file systems that hold images and
// containers' writable layers.
func (c *Client) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	k := call{name: "ImageFsInfo", class: ClassRead}
	return invoke(ctx, c, k, c.images.ImageFsInfo, &runtimeapi.ImageFsInfoRequest{})
}

// ImageUser returns whom the image runs as: a numeric user, or a name, never
// both; root where it says nothing.
func ImageUser(image *runtimeapi.Image) (uid *int64, username string) {
	switch {
	case image.GetUid() != nil:
		v := image.GetUid().GetValue()
		return &v, ""
	case image.GetUsername() != "":
		return nil, image.GetUsername()
	}
	return new(int64), ""
}
