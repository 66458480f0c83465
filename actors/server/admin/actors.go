package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// actors answers GET /v1/actors. No actor is asked.
func (h *handlers) actors(w http.ResponseWriter, _ *http.Request) {
	tree := h.conf.Tree()
	if tree == nil {
		fail(w, errNoTree)
		return
	}
	out := api.Actors{At: time.Now(), Actors: []api.Actor{}, Goroutines: runtime.NumGoroutine()}
	now := h.conf.Board.Now()
	names, manifests := podNames(now), manifestNames(now)
	for _, v := range tree.Vitals() {
		pod := podOf(v.Path)
		out.Actors = append(out.Actors, api.Actor{Vitals: v, Pod: names[pod], Manifest: manifests[pod]})
	}
	answer(w, http.StatusOK, out)
}

// podOf is the address of the pod's actor that this one is, or is below of.
func podOf(a messages.Address) messages.Address {
	for ; a != messages.Node; a = a.Parent() {
		if a.Parent() == messages.Pods {
			return a
		}
	}
	return ""
}

// podNames are the namespaces and names of pods by their actors.
func podNames(s *board.Snapshot) map[messages.Address]string {
	return ofPods(s, func(p *v1.Pod) string { return p.Namespace + "/" + p.Name })
}

// manifestNames are the names of static pods in their manifests, by their actors.
func manifestNames(s *board.Snapshot) map[messages.Address]string {
	return ofPods(s, manifest.NameInManifest)
}

func ofPods(s *board.Snapshot, what func(*v1.Pod) string) map[messages.Address]string {
	out := map[messages.Address]string{}
	for _, pods := range [][]board.Pod{s.Pods, s.Over} {
		for i := range pods {
			out[messages.PodAddress(string(pods[i].Pod.UID))] = what(pods[i].Pod)
		}
	}
	return out
}

// inspect answers GET /v1/actors/PATH with what the actor itself says.
func (h *handlers) inspect(w http.ResponseWriter, r *http.Request) {
	to := messages.Address(strings.Trim(r.PathValue("actor"), "/"))
	if to == messages.Address(messages.Node.String()) {
		to = messages.Node
	}
	got, err := h.ask(r.Context(), to, messages.GetInspection{})
	if err != nil {
		fail(w, err)
		return
	}
	in, ok := got.(messages.Inspection)
	if !ok {
		fail(w, fmt.Errorf("actor %q answered with %T", to, got))
		return
	}
	v, _ := h.conf.Tree().VitalsOf(to)
	v.Handling = nil // it was this very question
	answer(w, http.StatusOK, api.Inspection{
		Actor:       api.Actor{Vitals: v, Pod: podNames(h.conf.Board.Now())[podOf(to)]},
		Incarnation: in.Incarnation, Handled: in.Handled, Working: in.Working, Children: in.Children, Detail: in.Detail,
	})
}

// ask puts a question to an actor that must be there.
func (h *handlers) ask(ctx context.Context, to messages.Address, question any) (any, error) {
	return h.askFor(ctx, askTimeout, to, question)
}

// askFor is ask with a deadline. Where no answer comes, the error says what keeps the actor from it.
func (h *handlers) askFor(ctx context.Context, timeout time.Duration, to messages.Address, question any) (any, error) {
	tree := h.conf.Tree()
	if tree == nil {
		return nil, errNoTree
	}
	v, there := tree.VitalsOf(to)
	if !there {
		return nil, &api.Error{Status: http.StatusNotFound, Text: fmt.Sprintf("there is no actor %q", to)}
	}
	unavailable := func(text string) error {
		return &api.Error{Status: http.StatusServiceUnavailable, Actor: to.String(), Text: fmt.Sprintf("actor %q: %s", to, text)}
	}
	if v.State == supervisors.Quarantined {
		return nil, unavailable(v.Busy(time.Now()))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	got, err := tree.Ask(ctx, to, question)
	if late := (*supervisors.ErrNoAnswer)(nil); errors.As(err, &late) {
		if v, _ = tree.VitalsOf(to); v.Busy(time.Now()) != "" {
			return nil, unavailable(fmt.Sprintf("no answer to %s: %s", late.Question, v.Busy(time.Now())))
		}
	}
	return got, err
}
