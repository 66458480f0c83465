package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/trace"
)

// trace answers GET /v1/trace from the flight recorder, without a question to any actor: it answers while all of them hang.
func (h *handlers) trace(w http.ResponseWriter, r *http.Request) {
	o, err := api.ParseTraceOptions(r.URL.Query())
	if err != nil {
		fail(w, bad(err))
		return
	}
	tree := h.conf.Tree()
	if tree == nil {
		fail(w, errNoTree)
		return
	}
	recorder := tree.Recorder()
	q, out := supervisors.Query{Since: o.Since}, api.Trace{}
	if o.Pod != "" {
		uid, pod := h.pod(o.Namespace, o.Pod)
		out.Pod, q.Pod = pod, uid
	}
	if o.Actor != "" {
		actor := messages.Address(strings.Trim(o.Actor, "/"))
		if actor == messages.Address(messages.Node.String()) {
			actor = messages.Node
		}
		q.Actor, out.Actor = &actor, actor.String()
	}
	out.Recorder = recorder.Size() // before the entries: what comes later is followed
	out.Entries = recorder.Select(q)
	there := out.Pod != nil
	if q.Actor != nil {
		_, there = tree.VitalsOf(*q.Actor)
	}
	if len(out.Entries) == 0 && !there && q.Since.IsZero() {
		what := fmt.Sprintf("pod %q", o.Pod)
		if o.Actor != "" {
			what = fmt.Sprintf("actor %q", o.Actor)
		}
		fail(w, &api.Error{Status: http.StatusNotFound, Text: "there is no " + what + ", and no message of one is recorded"})
		return
	}
	if !o.Follow {
		answer(w, http.StatusOK, out)
		return
	}
	h.followTrace(w, r, recorder, q, out)
}

// criticalPath answers GET /v1/criticalpath?pod=NAME[&namespace=N] with where the time of a pod's start went.
func (h *handlers) criticalPath(w http.ResponseWriter, r *http.Request) {
	o, err := api.ParseTraceOptions(r.URL.Query())
	if err == nil && (o.Pod == "" || o.Follow || !o.Since.IsZero()) {
		err = errors.New("a pod is named, by pod and namespace, and nothing else")
	}
	if err != nil {
		fail(w, bad(err))
		return
	}
	tree := h.conf.Tree()
	if tree == nil {
		fail(w, errNoTree)
		return
	}
	names := trace.Names{Pods: map[string]string{}}
	for actor, name := range podNames(h.conf.Board.Now()) {
		names.Pods[actor.PodUID()] = name
	}
	names.Pod, _ = h.pod(o.Namespace, o.Pod)
	path, err := trace.CriticalPath(tree.Recorder().Last(names.Pod), names)
	if err != nil {
		fail(w, &api.Error{Status: http.StatusNotFound, Text: "there is no critical path: " + err.Error()})
		return
	}
	answer(w, http.StatusOK, path)
}

// pod finds a pod by its name or its UID; nil where none is there. One that is gone may still be in the recorder.
func (h *handlers) pod(namespace, name string) (uid string, found *api.Ref) {
	now := h.conf.Board.Now()
	for _, pods := range [][]board.Pod{now.Pods, now.Over} {
		for i := range pods {
			if p := pods[i].Pod; (filter{namespace, name}).match(p) || string(p.UID) == name {
				return string(p.UID), &api.Ref{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}
			}
		}
	}
	return name, nil
}

// followTrace streams one line of JSON for each batch of entries, until the client goes or the process ends.
func (h *handlers) followTrace(w http.ResponseWriter, r *http.Request, recorder *supervisors.Recorder, q supervisors.Query,
	line api.Trace,
) {
	done, free := h.watch(w)
	if !free {
		return
	}
	defer done()
	w.Header().Set("Content-Type", "application/json")
	ctx, out, lines := r.Context(), http.NewResponseController(w), json.NewEncoder(w)
	for q.After = line.Recorder.Seq; ; {
		_ = out.SetWriteDeadline(time.Now().Add(h.conf.WriteTimeout)) // where there is none, the write itself tells
		if lines.Encode(line) != nil || out.Flush() != nil {
			return
		}
		for line.Entries = nil; len(line.Entries) == 0; {
			if recorder.Wait(ctx, q.After) != nil || !pause(ctx.Done(), coalesce) {
				return
			}
			line.Recorder = recorder.Size()
			line.Entries = recorder.Select(q)
			q.After = line.Recorder.Seq
			if n := len(line.Entries); n > 0 { // one that came in between is not to come again
				q.After = max(q.After, line.Entries[n-1].Seq)
			}
		}
	}
}
