package admin

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/trace"
)

// trace answers GET /v1/trace from the flight recorder, without a question to any actor: it works even if all of them hang.
func (h *handlers) trace(w http.ResponseWriter, r *http.Request) error {
	var o api.TraceOptions
	if err := params(r, o.Params()); err != nil {
		return err
	}
	if o.Pod != "" && o.Actor != "" {
		return bad(errors.New("either a pod or an actor can be chosen"))
	}
	tree, err := h.tree()
	if err != nil {
		return err
	}
	recorder := tree.Recorder()
	q, out := supervisors.Query{Since: o.Since}, api.Trace{}
	if o.Pod != "" {
		q.Pod, out.Pod = h.pod(o.Namespace, o.Pod)
	}
	if o.Actor != "" {
		actor := actorAt(o.Actor)
		q.Actor, out.Actor = &actor, actor.String()
	}
	out.Recorder = recorder.Size() // before the entries: later ones are followed
	out.Entries = recorder.Select(q)
	there := out.Pod != nil
	if q.Actor != nil {
		_, there = tree.VitalsOf(*q.Actor)
	}
	switch {
	case len(out.Entries) == 0 && !there && q.Since.IsZero():
		what := fmt.Sprintf("pod %q", o.Pod)
		if o.Actor != "" {
			what = fmt.Sprintf("actor %q", o.Actor)
		}
		return refuse(http.StatusNotFound, "there is no %s, and no message of one is recorded", what)
	case o.Follow:
		return h.followTrace(w, r, recorder, q, out)
	}
	return answer(w, out)
}

// criticalPath answers GET /v1/criticalpath?pod=NAME[&namespace=N] with the parts of a pod's start time.
func (h *handlers) criticalPath(w http.ResponseWriter, r *http.Request) error {
	var pod, namespace string
	if err := params(r, api.Params{"pod": &pod, "namespace": &namespace}); err != nil {
		return err
	}
	if pod == "" {
		return bad(errors.New("a pod is named, by pod and namespace, and nothing else"))
	}
	tree, err := h.tree()
	if err != nil {
		return err
	}
	names := trace.Names{Pods: podNames(h.conf.Board.Now())}
	names.Pod, _ = h.pod(namespace, pod)
	path, err := trace.CriticalPath(tree.Recorder().Last(names.Pod), names)
	if err != nil {
		return refuse(http.StatusNotFound, "there is no critical path: %v", err)
	}
	return answer(w, path)
}

// pod finds a pod by its name or its UID, or returns nil. A removed one may still be in the recorder.
func (h *handlers) pod(namespace, name string) (uid string, found *api.Ref) {
	now := h.conf.Board.Now()
	for _, of := range slices.Concat(now.Pods, now.Over) {
		if p := of.Pod; (filter{namespace, name}).match(p) || string(p.UID) == name {
			return string(p.UID), &api.Ref{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}
		}
	}
	return name, nil
}
