package admin

import (
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/messages"
)

// actors answers GET /v1/actors without a question to any actor.
func (h *handlers) actors(w http.ResponseWriter, _ *http.Request) error {
	tree, err := h.tree()
	if err != nil {
		return err
	}
	out := api.Actors{At: time.Now(), Actors: []api.Actor{}, Goroutines: runtime.NumGoroutine()}
	now := h.conf.Board.Now()
	names, manifests := podNames(now), ofPods(now, manifest.NameInManifest)
	for _, v := range tree.Vitals() {
		uid := v.Path.PodUID()
		out.Actors = append(out.Actors, api.Actor{Vitals: v, Pod: names[uid], Manifest: manifests[uid]})
	}
	return answer(w, out)
}

// actorAt returns the address of the actor at a path in a request.
func actorAt(path string) messages.Address {
	if path = strings.Trim(path, "/"); path == messages.Node.String() {
		return messages.Node
	}
	return messages.Address(path)
}

// podNames returns the namespaces and names of pods by their UIDs.
func podNames(s *board.Snapshot) map[string]string {
	return ofPods(s, func(p *v1.Pod) string { return p.Namespace + "/" + p.Name })
}

func ofPods(s *board.Snapshot, what func(*v1.Pod) string) map[string]string {
	out := map[string]string{}
	for _, p := range slices.Concat(s.Pods, s.Over) {
		out[string(p.Pod.UID)] = what(p.Pod)
	}
	return out
}

// inspect answers GET /v1/actors/PATH with the actor's own inspection.
func (h *handlers) inspect(w http.ResponseWriter, r *http.Request) error {
	to := actorAt(r.PathValue("actor"))
	in, err := ask[messages.Inspection](h, r, askTimeout, to, messages.GetInspection{})
	if err != nil {
		return err
	}
	v, _ := h.conf.Tree().VitalsOf(to)
	v.Handling = nil // it was this question
	return answer(w, api.Inspection{
		Actor:       api.Actor{Vitals: v, Pod: podNames(h.conf.Board.Now())[to.PodUID()]},
		Incarnation: in.Incarnation, Handled: in.Handled, Working: in.Working, Children: in.Children, Detail: in.Detail,
	})
}
