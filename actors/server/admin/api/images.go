package api

import (
	"context"
	"net/http"
	"net/url"

	"github.com/playlet-dev/playlet/messages"
)

const images = "/v1/images"

// Images are those on the node, by ID.
type Images struct {
	Images []messages.NodeImage `json:"images"`
}

// Images lists what is on the node.
func (c *Client) Images(ctx context.Context) (*Images, error) { return get[Images](ctx, c, images, "") }

// RemoveImage removes the image of that ID, unless somebody uses it or, with collect, a rule of the collection of unused images
// keeps it. It may be repeated.
func (c *Client) RemoveImage(ctx context.Context, id string, collect bool) (*messages.ImageRemoved, error) {
	query := ""
	if collect {
		query = "collect=true"
	}
	return call[messages.ImageRemoved](ctx, c, http.MethodDelete, images+"/"+id, query, nil)
}

// PullImage has an image pulled, and says how far that is. It is repeated until it has ended, with an id that stands for this one
// pull.
func (c *Client) PullImage(ctx context.Context, id, image string) (*messages.ImageFetched, error) {
	q := url.Values{"id": {id}, "image": {image}}
	return call[messages.ImageFetched](ctx, c, http.MethodPost, images, q.Encode(), nil)
}
