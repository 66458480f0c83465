package admin

import (
	"net/http"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
)

// observatory answers GET /v1/observatory. It is asked on the admin socket alone.
func (h *handlers) observatory(w http.ResponseWriter, _ *http.Request) {
	at, err := h.conf.Observatory()
	switch {
	case err != nil:
		fail(w, &api.Error{Status: http.StatusServiceUnavailable, Text: err.Error()})
	case at == nil:
		fail(w, &api.Error{Status: http.StatusNotFound,
			Text: "the observatory is on no port: this agent was started without --observatory-address"})
	default:
		answer(w, http.StatusOK, at)
	}
}
