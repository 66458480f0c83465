package admin

import (
	"encoding/json"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
)

// events answers GET /v1/events[?watch=true][&namespace=N][&name=N] with the last events of the node, or of an object; the
// stream goes on with each that comes.
func (h *handlers) events(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	news := func(turn uint64) (api.Events, uint64) {
		all, now := h.conf.Events.Since(turn)
		out := api.Events{Items: []*v1.Event{}}
		for _, e := range all {
			o := &e.InvolvedObject
			if n := q.Get("namespace"); n != "" && n != e.Namespace || q.Get("name") != "" && q.Get("name") != o.Name {
				continue
			}
			out.Items = append(out.Items, e)
		}
		return out, now
	}
	first, turn := news(0)
	if q.Get("watch") != "true" {
		answer(w, http.StatusOK, first)
		return
	}
	done, free := h.watch(w)
	if !free {
		return
	}
	defer done()
	w.Header().Set("Content-Type", "application/json")
	out, lines := http.NewResponseController(w), json.NewEncoder(w)
	for line := first; ; line, turn = news(turn) {
		_ = out.SetWriteDeadline(time.Now().Add(h.conf.WriteTimeout)) // where there is none, the write itself tells
		if lines.Encode(line) != nil || out.Flush() != nil {
			return
		}
		if h.conf.Events.Await(r.Context(), turn) != nil {
			return
		}
	}
}
