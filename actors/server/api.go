package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/actors/server/admin"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

const (
	// askTimeout bounds one question to an actor; after it the answer is a 503 that names the actor.
	askTimeout = 2 * time.Second
	// writeTimeout bounds the writing of one answer, or of one line of a stream: who does not read is let go.
	writeTimeout = 30 * time.Second
	maxWatches   = 32
	adminConns   = 128
)

// api are the handlers of the admin socket.
type api struct {
	l       *Listeners
	watches chan struct{} // a slot a stream
	logs    chan struct{} // a slot a log that is read
	streams chan struct{} // a slot a command that is run
}

func newAPI(l *Listeners) *api {
	return &api{
		l: l, watches: make(chan struct{}, maxWatches), logs: make(chan struct{}, maxLogs),
		streams: make(chan struct{}, maxStreams),
	}
}

// endpoint is the admin socket's.
func (a *api) endpoint(h *health) *endpoint {
	server := &http.Server{Handler: a.handler(h), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout}
	where := a.l.conf.AdminSocket
	return newEndpoint("admin", where, adminConns, server, &socketDoor{path: where})
}

// handler is all that the admin socket answers: the API, and /healthz.
func (a *api) handler(h *health) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/pods", a.pods)
	mux.HandleFunc("GET /v1/logs/{namespace}/{pod}", a.readLogs)
	mux.HandleFunc("POST /v1/exec/{namespace}/{pod}", a.exec)
	mux.HandleFunc("GET /v1/version", a.version)
	mux.HandleFunc("GET /v1/tree", a.tree)
	mux.HandleFunc("GET /v1/inspect/{actor...}", a.inspect)
	mux.HandleFunc("GET /v1/flows/{uid...}", a.flows)
	mux.HandleFunc("GET /v1/submissions", a.submissions)
	mux.HandleFunc("POST /v1/submissions", a.submit)
	mux.HandleFunc("GET /v1/submissions/{namespace}/{name}", a.submission)
	mux.HandleFunc("PUT /v1/submissions/{namespace}/{name}", a.submitOne)
	mux.HandleFunc("DELETE /v1/submissions/{namespace}/{name}", a.withdraw)
	probes := h.routes(true)
	mux.Handle("/healthz", probes)
	mux.Handle("/healthz/", probes)
	return inJSON(mux)
}

// inJSON limits the bodies of requests, and gives the mux's own refusals (404, 405) the form of all others.
func inJSON(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit := int64(maxBodyBytes)
		if r.URL.Path == submissionsPath || strings.HasPrefix(r.URL.Path, submissionsPath+"/") {
			limit = maxManifestBytes
		}
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		quiet := &refusal{ResponseWriter: w, status: http.StatusNotFound}
		mux.ServeHTTP(quiet, r)
		text := fmt.Sprintf("there is no %s", r.URL.Path)
		if quiet.status == http.StatusMethodNotAllowed {
			text = fmt.Sprintf("%s does not take %s; it takes %s", r.URL.Path, r.Method, w.Header().Get("Allow"))
		}
		w.Header().Del("X-Content-Type-Options")
		fail(w, &admin.Error{Status: quiet.status, Text: text})
	})
}

// refusal takes the status and drops the text that the mux would answer.
type refusal struct {
	http.ResponseWriter
	status int
}

func (r *refusal) WriteHeader(status int)      { r.status = status }
func (r *refusal) Write(b []byte) (int, error) { return len(b), nil }

// answer writes v as the whole answer. A failure to write means that nobody reads it any more.
func answer(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"status":500,"error":"the answer cannot be encoded"}`)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // a recorder in a test has none
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

func fail(w http.ResponseWriter, err error) {
	failed := &admin.Error{Status: http.StatusInternalServerError, Text: err.Error()}
	var late *supervisors.ErrNoAnswer
	switch {
	case errors.As(err, &failed):
	case errors.As(err, &late):
		failed.Status, failed.Actor = http.StatusServiceUnavailable, late.Actor.String()
	}
	answer(w, failed.Status, failed)
}

var errNoTree = &admin.Error{Status: http.StatusServiceUnavailable, Text: "the agent is starting: its actors do not run yet"}

// ask puts a question to an actor that must be there.
func (a *api) ask(ctx context.Context, to messages.Address, question any) (any, error) {
	return a.askFor(ctx, askTimeout, to, question)
}

func (a *api) askFor(ctx context.Context, timeout time.Duration, to messages.Address, question any) (any, error) {
	tree := a.l.tree()
	if tree == nil {
		return nil, errNoTree
	}
	if tree.KindOf(to) == "" {
		if q, ok := tree.Quarantined()[to]; ok {
			return nil, &admin.Error{
				Status: http.StatusServiceUnavailable, Actor: to.String(),
				Text: fmt.Sprintf("actor %q is in quarantine until %s: %s", to, q.Until.Format(time.RFC3339), q.Reason),
			}
		}
		return nil, &admin.Error{Status: http.StatusNotFound, Text: fmt.Sprintf("there is no actor %q", to)}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return tree.Ask(ctx, to, question)
}

func (a *api) inspect(w http.ResponseWriter, r *http.Request) {
	to := messages.Address(strings.Trim(r.PathValue("actor"), "/"))
	if to == messages.Address(messages.Node.String()) {
		to = messages.Node
	}
	in, err := a.ask(r.Context(), to, messages.GetInspection{})
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, in)
}

func (a *api) tree(w http.ResponseWriter, _ *http.Request) {
	tree := a.l.tree()
	if tree == nil {
		fail(w, errNoTree)
		return
	}
	out := admin.Tree{Actors: []admin.Actor{}}
	for _, path := range tree.Actors() {
		out.Actors = append(out.Actors, admin.Actor{Path: path, Kind: tree.KindOf(path)})
	}
	for path, q := range tree.Quarantined() {
		out.Actors = append(out.Actors, admin.Actor{Path: path, Quarantine: quarantine(&q)})
	}
	sortActors(out.Actors)
	answer(w, http.StatusOK, out)
}

func (a *api) flows(w http.ResponseWriter, r *http.Request) {
	tree, uid := a.l.tree(), r.PathValue("uid")
	if tree == nil {
		fail(w, errNoTree)
		return
	}
	entries := tree.Recorder().Last(uid)
	if entries == nil && uid != "" {
		fail(w, &admin.Error{Status: http.StatusNotFound, Text: fmt.Sprintf("no messages are recorded of a pod with UID %q",
			uid)})
		return
	}
	answer(w, http.StatusOK, admin.Flows{Pod: uid, Entries: entries})
}

func (a *api) version(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, a.l.version())
}
