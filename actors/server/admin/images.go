package admin

import (
	"fmt"
	"net/http"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/messages"
)

// images answers GET /v1/images with what is on the node.
func (h *handlers) images(w http.ResponseWriter, r *http.Request) {
	got, err := askImages[messages.ImagesListed](h, r, messages.GetImages{})
	if err == nil && got.Failed != "" {
		err = &api.Error{Status: http.StatusServiceUnavailable, Text: got.Failed}
	}
	if err != nil {
		fail(w, err)
		return
	}
	out := api.Images{Images: got.Images}
	for i := range out.Images {
		h.nameUsers(out.Images[i].Users)
	}
	answer(w, http.StatusOK, out)
}

// removeImage answers DELETE /v1/images/{id}[?collect=true].
func (h *handlers) removeImage(w http.ResponseWriter, r *http.Request) {
	got, err := askImages[messages.ImageRemoved](h, r, messages.RemoveImage{
		ID: r.PathValue("id"), Collect: r.URL.Query().Get("collect") == "true",
	})
	if err != nil {
		fail(w, err)
		return
	}
	h.nameUsers(got.Users)
	answer(w, http.StatusOK, got)
}

// pullImage answers POST /v1/images?image=NAME&id=ID with how far the pull is, which it begins where it is asked for it first.
func (h *handlers) pullImage(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	got, err := askImages[messages.ImageFetched](h, r, messages.FetchImage{ID: q.Get("id"), Image: q.Get("image")})
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, got)
}

// askImages puts a question to the actor of the images, whose answer waits for the runtime.
func askImages[T any](h *handlers, r *http.Request, question any) (T, error) {
	got, err := h.askFor(r.Context(), submitTimeout, messages.Images, question)
	if err != nil {
		var none T
		return none, err
	}
	out, ok := got.(T)
	if !ok {
		err = fmt.Errorf("the actor %s answered with a %T", messages.Images, got)
	}
	return out, err
}

// nameUsers gives those their names of which only the UID is known.
func (h *handlers) nameUsers(users []messages.ImageUser) {
	now := h.conf.Board.Now()
	for i := range users {
		if users[i].Pod != "" {
			continue
		}
		for _, pods := range [][]board.Pod{now.Pods, now.Over} {
			for k := range pods {
				if p := pods[k].Pod; string(p.UID) == users[i].UID {
					users[i].Namespace, users[i].Pod = p.Namespace, p.Name
				}
			}
		}
	}
}
