package cadvisor

import (
	"context"
	"embed"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/google/cadvisor/lib/model"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/shares"
	"github.com/playlet-dev/playlet/actors/server/containers"
)

// Config has the sources of the pages and the API.
type Config struct {
	NodeName string
	Figures  Figures
	// Board has the statuses, with the exits of containers.
	Board *board.Board
	// Metrics answers /metrics.
	Metrics http.Handler
}

const (
	// answerTimeout bounds the wait for figures. The listener disconnects clients that are slow to send or to read.
	answerTimeout = 10 * time.Second
	// pending limits the concurrent requests.
	pending = 32
	// maxBody limits a request's body, which has three numbers.
	maxBody = 4 << 10
	// maxLacks limits the sentences about missing figures on one page.
	maxLacks = 8
)

// handler answers requests. Safe for concurrent use.
type handler struct {
	conf    Config
	history history
	pending *shares.Limit
	streams *shares.Limit
}

//go:embed assets/page.css assets/page.js
var assets embed.FS

// New returns the handler. It checks no credentials: its listener is on the loopback by default.
func New(conf Config) http.Handler {
	h := &handler{conf: conf, pending: shares.New("requests", pending),
		streams: shares.New("streams of events", maxStreams)}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", http.RedirectHandler("/containers/", http.StatusTemporaryRedirect))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	mux.Handle("GET /metrics", conf.Metrics)
	mux.HandleFunc("GET /static/{file}", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, assets, "assets/"+r.PathValue("file"))
	})
	for _, pattern := range []string{"GET /containers", "GET /containers/{name...}"} {
		mux.Handle(pattern, answer(h.page))
	}
	for _, rest := range []string{"", "/{name...}"} {
		mux.Handle("GET /api/v1.3/{call}"+rest, answer(h.v1))
		mux.Handle("POST /api/v1.3/{call}"+rest, answer(h.v1)) // the body has the number of samples
		mux.Handle("GET /api/v2.1/{call}"+rest, answer(h.v2))
	}
	mux.Handle("GET /api/", answer(func(http.ResponseWriter, *http.Request) error {
		return refuse(http.StatusNotFound, "there are /api/v1.3/ and /api/v2.1/ of cAdvisor's API")
	}))
	return h.bounded(mux)
}

// bounded rejects requests over the limit and unclean paths, and keeps browsers from loading or framing anything else.
func (h *handler) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "+
			"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		if p, c := r.URL.Path, path.Clean(r.URL.Path); p != c && p != c+"/" || strings.ContainsRune(p, 0) {
			http.Error(w, "the path has //, . or .. in it", http.StatusBadRequest)
			return
		}
		release, err := h.pending.Take(shares.Client(r))
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer release()
		ctx := r.Context()
		if !streams(r) {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, answerTimeout)
			defer cancel()
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// answer converts a returned error into an answer.
func answer(serve func(w http.ResponseWriter, r *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := serve(w, r); err != nil {
			http.Error(w, err.Error(), containers.StatusOf(err))
		}
	})
}

func refuse(status int, text string) error { return &containers.Error{Status: status, Text: text} }

// name returns the cgroup in a request's path.
func name(r *http.Request) string { return "/" + strings.Trim(r.PathValue("name"), "/") }

// read returns all cgroups with their recorded samples, of which the newest is at most age old. lacks describes missing figures
// in sentences.
func (h *handler) read(r *http.Request, age time.Duration) (t tree, lacks []string, err error) {
	all, lacks := h.conf.Figures.Containers(r.Context(), age)
	if len(all) == 0 {
		return nil, nil, refuse(http.StatusServiceUnavailable, "there are no figures: "+strings.Join(lacks, "; "))
	}
	return h.history.add(all), lacks[:min(len(lacks), maxLacks)], nil
}

// find returns the cgroup of this name.
func (t tree) find(name string) (*model.ContainerInfo, error) {
	info := t[name]
	if info == nil {
		return nil, refuse(http.StatusNotFound, "there is no container "+strconv.Quote(name))
	}
	return info, nil
}
