package stats

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// answerTimeout bounds how long an answer waits for figures; it then has those that are there.
	answerTimeout = 2 * partTimeout
	// writeTimeout bounds the writing of one answer: who does not read is let go.
	writeTimeout = 30 * time.Second
	// answers is how many answers are made at once: that of a crowded node takes megabytes.
	answers = 4
	// maxWarnings bounds the sentences in one answer's headers.
	maxWarnings = 16
)

// errNothing says that there are no figures at all.
var errNothing = errors.New("no cgroup could be read")

// handler answers who asks for figures. Safe for concurrent use.
type handler struct {
	collector *Collector
	slots     chan struct{} // one an answer
}

// Handler serves /stats/summary, /metrics and what is below it. It checks no credentials: that is the listener's. m may be nil.
func Handler(c *Collector, m *Metrics) http.Handler {
	h := &handler{c, make(chan struct{}, answers)}
	mux := http.NewServeMux()
	mux.Handle("GET /stats/summary", h.bounded(h.summary))
	mux.Handle("POST /stats/summary", h.bounded(h.summary)) // the kubelet takes both
	mux.Handle("GET /metrics/cadvisor", h.bounded(h.cadvisor))
	mux.Handle("GET /metrics/resource", h.bounded(h.resource))
	if m != nil {
		m.handle(mux, c)
	}
	return mux
}

// bounded waits for a slot and gives the request a deadline.
func (h *handler) bounded(serve http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		select {
		case h.slots <- struct{}{}:
			defer func() { <-h.slots }()
		case <-ctx.Done():
			http.Error(w, "too many requests for figures are being answered", http.StatusServiceUnavailable)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // a recorder in a test has none
		serve(w, r.WithContext(ctx))
	})
}

func (h *handler) summary(w http.ResponseWriter, r *http.Request) {
	only := false
	if text := r.FormValue("only_cpu_and_memory"); text != "" {
		var err error
		if only, err = strconv.ParseBool(text); err != nil {
			http.Error(w, "only_cpu_and_memory is neither true nor false", http.StatusBadRequest)
			return
		}
	}
	s, lacks := h.collector.Summary(r.Context(), only)
	body, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	warn(w, lacks)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // a failure means that nobody reads it any more
}

func (h *handler) resource(w http.ResponseWriter, r *http.Request) {
	s, lacks := h.collector.Summary(r.Context(), true)
	warn(w, lacks)
	serve(w, r, &resourceView{s, len(lacks) > 0})
}

func (h *handler) cadvisor(w http.ResponseWriter, r *http.Request) {
	collectors, lacks := h.collector.cadvisor(r.Context())
	warn(w, lacks)
	serve(w, r, collectors...)
}

// serve answers with what the collectors give. A family that cannot be given is left out, and the others are there.
func serve(w http.ResponseWriter, r *http.Request, collectors ...prometheus.Collector) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors...)
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(w, r)
}

// warn says in headers what an answer lacks (RFC 7234, section 5.5): its form has no place for it.
func warn(w http.ResponseWriter, lacks []string) {
	for i, text := range lacks {
		if i == maxWarnings {
			text = strconv.Itoa(len(lacks)-i) + " more figures are missing"
		}
		w.Header().Add("Warning", "199 playlet "+strconv.Quote(oneLine(text)))
		if i == maxWarnings {
			return
		}
	}
}

// oneLine makes a text fit for a header.
func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '\\' || r == '"' {
			return ' '
		}
		return r
	}, text)
	return text[:min(len(text), 500)]
}
