package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListImages returns the images that match the filter; nil matches all.
func (c *Client) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	resp, err := c.images.ListImages(ctx, &runtimeapi.ListImagesRequest{Filter: filter})
	return resp.GetImages(), err
}

// ImageStatus returns the image, or nil without an error if it is absent.
func (c *Client) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.Image,
	map[string]string, error) {
	resp, err := c.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: image, Verbose: verbose})
	return resp.GetImage(), resp.GetInfo(), err
}

// PullImage pulls an image and returns the reference by which the runtime knows it. Only ctx ends it. errors.Is finds
// ErrRegistryUnavailable and ErrSignatureValidationFailed of k8s.io/cri-api/pkg/errors in the error.
func (c *Client) PullImage(
	ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	resp, err := c.images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: image, Auth: auth, SandboxConfig: sandbox})
	return resp.GetImageRef(), err
}

// RemoveImage removes the image. An absent image is not an error.
func (c *Client) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	_, err := c.images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: image})
	return err
}

// ImageFsInfo returns the usage of the file systems that hold images and containers' writable layers.
func (c *Client) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return c.images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
}

// ImageUser returns the user of the image: a numeric ID or a name, never both. The default is root.
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
