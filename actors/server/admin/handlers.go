// Package admin holds the handlers of the admin socket, which only root may open. Package admin/api defines their answers.
package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/eventlog"
	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/actors/internal/history"
	"github.com/playlet-dev/playlet/actors/internal/shares"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/server/containers"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

const (
	// askTimeout bounds one question to an actor; after it the answer is a 503 that names the actor.
	askTimeout = 2 * time.Second
	// writeTimeout is the default of Config's WriteTimeout.
	writeTimeout = 30 * time.Second
	// figuresTimeout bounds the wait for figures. The client's own timeout is longer.
	figuresTimeout = 10 * time.Second
	maxBodyBytes   = 1 << 20
)

// Tree is the handlers' view of the running tree; *supervisors.System implements it.
type Tree interface {
	Ask(ctx context.Context, to messages.Address, question any) (any, error)
	Vitals() []supervisors.Vitals
	VitalsOf(a messages.Address) (supervisors.Vitals, bool)
	Quarantined() map[messages.Address]messages.ChildQuarantined
	Recorder() *supervisors.Recorder
}

// Config has the dependencies of the handlers. None of its functions may block, unless it takes a context.
type Config struct {
	Board      *board.Board // published by the pods actor
	Events     *eventlog.Log
	Containers *containers.Handlers
	Healthz    http.Handler
	Health     func(context.Context) []explain.Check // the checks of /healthz
	Tree       func() Tree                           // nil before the tree runs
	Runtime    func() api.Runtime                    // the latest state of the container runtime
	// Figures measures CPU and memory, or with all every figure, and returns the available ones when the context ends; may be
	// nil.
	Figures func(ctx context.Context, all bool) api.Figures
	// History returns the recorded figures of the pod with the UID, or of the node; nil: figures are not recorded.
	History func(uid string) []history.Series
	Chaos   *chaos.Engine // nil if it is not enabled
	// ExclusiveCPUs returns the CPUs that a container has to itself, by the pod's UID and its name; nil: none has any.
	ExclusiveCPUs func(uid, container string) []int64
	// Registered returns the control plane's view of the node; nil if the node is in no cluster.
	Registered func() api.Registration
	// Observatory returns the address of the observatory's port, or nil. The error is the reason that it is not open.
	Observatory func() (*api.Observatory, error)
	// WriteTimeout bounds the writing of one line of a stream; a client that does not read is disconnected. 0 means half a
	// minute.
	WriteTimeout time.Duration
	Version      api.Version // of the agent
}

// handlers are the handlers of the admin socket.
type handlers struct {
	conf      Config
	watches   *shares.Limit // streams
	manifests *shares.Limit // in memory
}

// handler answers a request, or returns the error to answer with.
type handler func(w http.ResponseWriter, r *http.Request) error

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h(w, r); err != nil {
		fail(w, err)
	}
}

// New returns the handler of the whole admin socket: the API, and /healthz.
func New(conf Config) http.Handler {
	conf.WriteTimeout = cmp.Or(conf.WriteTimeout, writeTimeout)
	h := &handlers{conf: conf, watches: shares.New("open watches", maxWatches),
		manifests: newSubmissions()}
	mux := http.NewServeMux()
	mux.Handle("/healthz", conf.Healthz)
	mux.Handle("/healthz/", conf.Healthz)
	return inJSON(mux, submissionsPath, h.routes())
}

// inJSON returns the mux with these routes. It limits the bodies of requests, which are manifests at one path and below it, and
// gives the mux's own errors (404, 405) the common form.
func inJSON(mux *http.ServeMux, manifests string, routes map[string]handler) http.Handler {
	for pattern, h := range routes {
		mux.Handle(pattern, h)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit := int64(maxBodyBytes)
		if r.URL.Path == manifests || strings.HasPrefix(r.URL.Path, manifests+"/") {
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
		fail(w, refuse(quiet.status, "%s", text))
	})
}

// refusal records the status and drops the mux's text.
type refusal struct {
	http.ResponseWriter
	status int
}

func (r *refusal) WriteHeader(status int)      { r.status = status }
func (r *refusal) Write(b []byte) (int, error) { return len(b), nil }

// refuse returns the answer to a rejected request.
func refuse(status int, format string, args ...any) error {
	return &api.Error{Status: status, Text: fmt.Sprintf(format, args...)}
}

func bad(err error) error { return refuse(http.StatusBadRequest, "%s", err.Error()) }

// params reads the parameters of a request.
func params(r *http.Request, p api.Params) error {
	if err := p.Decode(r.URL.Query()); err != nil {
		return bad(err)
	}
	return nil
}

// answer writes v as the whole answer.
func answer(w http.ResponseWriter, v any) error {
	write(w, http.StatusOK, v)
	return nil
}

// write writes an answer. It ignores errors, which mean that the client has left.
func write(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"status":500,"error":"the answer cannot be encoded"}`)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // not supported by a test's recorder
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

func fail(w http.ResponseWriter, err error) {
	failed := &api.Error{Status: http.StatusInternalServerError, Text: err.Error()}
	var refused *containers.Error
	var late *supervisors.ErrNoAnswer
	switch {
	case errors.As(err, &failed):
	case errors.As(err, &refused):
		failed.Status = refused.Status
	case errors.As(err, &late):
		failed.Status, failed.Actor = http.StatusServiceUnavailable, late.Actor.String()
	}
	write(w, failed.Status, failed)
}

// tree returns the running tree, or the error that there is none yet.
func (h *handlers) tree() (Tree, error) {
	if tree := h.conf.Tree(); tree != nil {
		return tree, nil
	}
	return nil, refuse(http.StatusServiceUnavailable, "the agent is starting: its actors do not run yet")
}

// ask sends a question to an existing actor. Without an answer, the error explains the actor's state.
func ask[T any](h *handlers, r *http.Request, timeout time.Duration, to messages.Address, question any) (out T, err error) {
	tree, err := h.tree()
	if err != nil {
		return out, err
	}
	unavailable := func(format string, args ...any) error {
		return &api.Error{Status: http.StatusServiceUnavailable, Actor: to.String(), Text: fmt.Sprintf(format, args...)}
	}
	v, there := tree.VitalsOf(to)
	switch {
	case !there && to == messages.Submit: // between two lives
		return out, unavailable("submissions are not taken at this moment; send it again")
	case !there:
		return out, refuse(http.StatusNotFound, "there is no actor %q", to)
	case v.State == supervisors.Quarantined:
		return out, unavailable("actor %q: %s", to, v.Busy(time.Now()))
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	got, err := tree.Ask(ctx, to, question)
	if late := (*supervisors.ErrNoAnswer)(nil); errors.As(err, &late) {
		if v, _ = tree.VitalsOf(to); v.Busy(time.Now()) != "" {
			return out, unavailable("actor %q: no answer to %s: %s", to, late.Question, v.Busy(time.Now()))
		}
	}
	if err != nil {
		return out, err
	}
	switch got := got.(type) {
	case T:
		return got, nil
	case messages.SubmissionRefused:
		return out, &api.Error{Status: refusals[got.Why], Text: got.Message, Problems: got.Problems, Accepted: got.Accepted}
	}
	return out, fmt.Errorf("the actor %s answered with a %T", to, got)
}

func (h *handlers) version(w http.ResponseWriter, _ *http.Request) error {
	version, rt := h.conf.Version, h.conf.Runtime()
	version.Runtime = &rt
	return answer(w, version)
}

// observatory answers GET /v1/observatory, on the admin socket only.
func (h *handlers) observatory(w http.ResponseWriter, _ *http.Request) error {
	at, err := h.conf.Observatory()
	switch {
	case err != nil:
		return refuse(http.StatusServiceUnavailable, "%s", err.Error())
	case at == nil:
		return refuse(http.StatusNotFound, "the web page is on no port: this agent was started without --observatory-address")
	}
	return answer(w, at)
}
