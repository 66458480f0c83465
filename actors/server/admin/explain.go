package admin

import (
	"fmt"
	"net/http"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/supervisors"
)

// explain answers GET /v1/explain/node, and GET /v1/explain/pod/{name}[?namespace=N] with all pods of the name.
func (h *handlers) explain(w http.ResponseWriter, r *http.Request) {
	now, name, namespace := h.conf.Board.Now(), r.PathValue("name"), r.URL.Query().Get("namespace")
	out := api.Explanations{At: now.At}
	switch kind := r.PathValue("kind"); {
	case kind == "node" && name == "":
		out.Items = []api.Explanation{{Explanation: explain.Node(h.conf.Health(r.Context()), now)}}
	case kind == "pod" && name != "":
		for _, pods := range [][]board.Pod{now.Pods, now.Over} {
			for i := range pods {
				if (filter{namespace, name}).match(pods[i].Pod) {
					e := api.Explanation{Explanation: explain.Pod(&pods[i]), Messages: h.recorded(&pods[i])}
					out.Items = append(out.Items, e)
				}
			}
		}
		if len(out.Items) > 0 {
			break
		}
		absent, known := explain.Absent(namespace, name, now)
		if !known {
			text := fmt.Sprintf("there is no pod %q", name)
			if namespace != "" {
				text += fmt.Sprintf(" in namespace %q", namespace)
			}
			fail(w, &api.Error{Status: http.StatusNotFound, Text: text})
			return
		}
		out.Items = []api.Explanation{{Explanation: absent}}
	default:
		fail(w, &api.Error{Status: http.StatusNotFound, Text: "only node and pod/NAME can be explained"})
		return
	}
	answer(w, http.StatusOK, out)
}

// recorded are the last messages of a pod.
func (h *handlers) recorded(p *board.Pod) []supervisors.Entry {
	if tree := h.conf.Tree(); tree != nil {
		return tree.Recorder().Last(string(p.Pod.UID))
	}
	return nil
}
