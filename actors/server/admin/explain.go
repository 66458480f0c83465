package admin

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
)

// explain answers GET /v1/explain/node, and GET /v1/explain/pod/{name}[?namespace=N] with all pods of the name.
func (h *handlers) explain(w http.ResponseWriter, r *http.Request) error {
	now, name, namespace := h.conf.Board.Now(), r.PathValue("name"), r.URL.Query().Get("namespace")
	out := api.Explanations{At: now.At}
	switch kind := r.PathValue("kind"); {
	case kind == "node" && name == "":
		out.Items = []api.Explanation{{Explanation: explain.Node(h.conf.Health(r.Context()), now)}}
		return answer(w, out)
	case kind != "pod" || name == "":
		return refuse(http.StatusNotFound, "only node and pod/NAME can be explained")
	}
	for _, p := range slices.Concat(now.Pods, now.Over) {
		if !(filter{namespace, name}).match(p.Pod) {
			continue
		}
		e := api.Explanation{Explanation: explain.Pod(&p)}
		if tree := h.conf.Tree(); tree != nil {
			e.Messages = tree.Recorder().Last(string(p.Pod.UID))
		}
		out.Items = append(out.Items, e)
	}
	if len(out.Items) == 0 {
		absent, known := explain.Absent(namespace, name, now, api.ProblemText)
		if !known {
			where := ""
			if namespace != "" {
				where = fmt.Sprintf(" in namespace %q", namespace)
			}
			return refuse(http.StatusNotFound, "there is no pod %q%s", name, where)
		}
		out.Items = []api.Explanation{{Explanation: absent}}
	}
	return answer(w, out)
}
