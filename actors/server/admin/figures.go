package admin

import (
	"context"
	"net/http"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/playlet-dev/playlet/actors/internal/history"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
)

// figures answers GET /v1/figures with the CPU and memory of all pods, and GET /v1/figures?pod=UID with all figures of one pod
// and of the node; without a UID, of the node alone.
func (h *handlers) figures(w http.ResponseWriter, r *http.Request) error {
	if h.conf.Figures == nil {
		return refuse(http.StatusNotImplemented, "this agent measures nothing")
	}
	ctx, cancel := context.WithTimeout(r.Context(), figuresTimeout)
	defer cancel()
	of := r.URL.Query()
	got := h.conf.Figures(ctx, of.Has("pod"))
	if of.Has("pod") {
		got.Pods = slices.DeleteFunc(got.Pods, func(p stats.PodStats) bool { return p.PodRef.UID != of.Get("pod") })
	}
	return answer(w, got)
}

// history answers GET /v1/figures/history?pod=UID with the recorded figures of the pod and its containers; without a UID, of the
// node. No actor is asked.
func (h *handlers) history(w http.ResponseWriter, r *http.Request) error {
	var uid string
	if err := params(r, api.Params{"pod": &uid}); err != nil {
		return err
	}
	if h.conf.History == nil {
		return refuse(http.StatusNotImplemented, "this agent does not record figures")
	}
	out := api.History{At: time.Now(), EverySeconds: int(history.Every / time.Second), Series: []api.Series{}}
	requirements := h.requirements(uid)
	for _, s := range h.conf.History(uid) {
		r := requirements[s.Name]
		out.Series = append(out.Series, api.Series{Series: s, Requests: r.Requests, Limits: r.Limits})
	}
	return answer(w, out)
}

// requirements returns the requests and limits of the pod's containers by name, and of the pod itself under the empty name.
func (h *handlers) requirements(uid string) map[string]v1.ResourceRequirements {
	out := map[string]v1.ResourceRequirements{}
	for _, p := range h.conf.Board.Now().Pods {
		if uid == "" || string(p.Pod.UID) != uid {
			continue
		}
		for c := range podspec.Containers(&p.Pod.Spec) {
			out[c.Name] = c.Resources
		}
		if r := p.Pod.Spec.Resources; r != nil {
			out[""] = *r
		}
	}
	return out
}
