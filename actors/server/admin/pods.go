package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
)

// coalesce is the least time between two lines of a stream: what changes within it makes one line.
const coalesce = 50 * time.Millisecond

// pods answers GET /v1/pods[?watch=true][&namespace=N][&name=N][&brief=true].
func (h *handlers) pods(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	for key := range q {
		if !slices.Contains([]string{"watch", "brief", "namespace", "name"}, key) {
			fail(w, &api.Error{Status: http.StatusBadRequest, Text: fmt.Sprintf("unknown parameter %q", key)})
			return
		}
	}
	said := map[string]bool{}
	for _, key := range []string{"watch", "brief"} {
		if text := q.Get(key); text != "" {
			var err error
			if said[key], err = strconv.ParseBool(text); err != nil {
				fail(w, bad(fmt.Errorf("%s=%q is neither true nor false", key, text)))
				return
			}
		}
	}
	chosen, view := filter{q.Get("namespace"), q.Get("name")}, podView
	if said["brief"] {
		view = briefView
	}
	if said["watch"] {
		h.watchPods(w, r, chosen, view)
		return
	}
	now := h.conf.Board.Now()
	out := api.Pods{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"},
		Metadata: metav1.ListMeta{ResourceVersion: strconv.FormatUint(now.Version, 10)},
		At:       now.At, Pods: []api.Pod{}, Node: h.nodeView(now),
	}
	if h.conf.Registered != nil {
		out.Registered = h.conf.Registered()
	}
	for _, p := range chosen.choose(now) {
		out.Pods = append(out.Pods, view(p))
	}
	answer(w, http.StatusOK, out)
}

// watch takes a slot for a stream, or refuses it.
func (h *handlers) watch(w http.ResponseWriter) (done func(), free bool) {
	select {
	case h.watches <- struct{}{}:
		return func() { <-h.watches }, true
	default:
		fail(w, &api.Error{
			Status: http.StatusTooManyRequests, Text: fmt.Sprintf("%d watches are open already, which is the limit", maxWatches),
		})
		return nil, false
	}
}

// watchPods streams one line of JSON a change, until the client goes or the process ends.
func (h *handlers) watchPods(w http.ResponseWriter, r *http.Request, chosen filter, view func(*board.Pod) api.Pod) {
	done, free := h.watch(w)
	if !free {
		return
	}
	defer done()
	w.Header().Set("Content-Type", "application/json")
	ctx, out, lines := r.Context(), http.NewResponseController(w), json.NewEncoder(w)
	seen := tracker{chosen: chosen, view: view}
	for now := h.conf.Board.Now(); ; {
		if change, news := seen.next(now, h.nodeView(now)); news {
			_ = out.SetWriteDeadline(time.Now().Add(h.conf.WriteTimeout)) // where there is none, the write itself tells
			if lines.Encode(change) != nil || out.Flush() != nil {
				return
			}
			if !pause(ctx.Done(), coalesce) {
				return
			}
		}
		var err error
		if now, err = h.conf.Board.After(ctx, now.Version); err != nil {
			return
		}
	}
}

// pause waits, and says whether it was left to.
func pause(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		return false
	}
}
