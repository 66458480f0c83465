package admin

import (
	"net/http"
	"strings"

	"github.com/playlet-dev/playlet/actors/internal/shares"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/messages"
)

// images answers GET /v1/images with the images on the node. As all questions on images, it waits for the runtime.
func (h *handlers) images(w http.ResponseWriter, r *http.Request) error {
	got, err := ask[messages.ImagesListed](h, r, submitTimeout, messages.Images, messages.GetImages{})
	switch {
	case err != nil:
		return err
	case got.Failed != "":
		return refuse(http.StatusServiceUnavailable, "%s", got.Failed)
	}
	for i := range got.Images {
		h.nameUsers(got.Images[i].Users)
	}
	return answer(w, api.Images{Images: got.Images})
}

// removeImage answers DELETE /v1/images/{id}[?collect=true].
func (h *handlers) removeImage(w http.ResponseWriter, r *http.Request) error {
	question := messages.RemoveImage{ID: r.PathValue("id")}
	if err := params(r, api.Params{"collect": &question.Collect}); err != nil {
		return err
	}
	got, err := ask[messages.ImageRemoved](h, r, submitTimeout, messages.Images, question)
	if err != nil {
		return err
	}
	h.nameUsers(got.Users)
	return answer(w, got)
}

// pullImage answers POST /v1/images?image=NAME&id=ID with the progress of the pull, which the first request begins.
func (h *handlers) pullImage(w http.ResponseWriter, r *http.Request) error {
	question := messages.FetchImage{Client: shares.Client(r)}
	if err := params(r, api.Params{"id": &question.ID, "image": &question.Image}); err != nil {
		return err
	}
	got, err := ask[messages.ImageFetched](h, r, submitTimeout, messages.Images, question)
	if err != nil {
		return err
	}
	return answer(w, got)
}

// nameUsers adds names to users with only a UID.
func (h *handlers) nameUsers(users []messages.ImageUser) {
	names := podNames(h.conf.Board.Now())
	for i := range users {
		u := &users[i]
		if name := names[u.UID]; u.Pod == "" && name != "" {
			u.Namespace, u.Pod, _ = strings.Cut(name, "/")
		}
	}
}
