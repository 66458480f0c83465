package stats

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/playlet-dev/playlet/actors/stats/agentmetrics"
)

// answerTimeout bounds how long an answer waits for figures; it then has those that are there.
const answerTimeout = 2 * partTimeout

// errNothing says that there are no figures at all.
var errNothing = errors.New("no cgroup could be read")

// handler answers who asks for figures. Safe for concurrent use.
type handler struct{ collector *Collector }

// Handler serves /stats/summary, /spec, /metrics and what is below it. It checks no credentials, and does not bound how many ask
// at once, or how long they take to read: both are the listener's. m may be nil.
func Handler(c *Collector, m *agentmetrics.Metrics) http.Handler {
	h := &handler{c}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stats/summary", h.summary)
	mux.HandleFunc("POST /stats/summary", h.summary) // the kubelet takes both
	mux.HandleFunc("GET /spec/{$}", h.spec)
	mux.HandleFunc("GET /spec", h.spec)
	mux.HandleFunc("GET /metrics/cadvisor", h.cadvisor)
	mux.HandleFunc("GET /metrics/resource", h.resource)
	if m != nil {
		usage := prometheus.NewRegistry()
		usage.MustRegister(&usageView{c})
		m.Handle(mux, usage)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		mux.ServeHTTP(w, r.WithContext(ctx))
	})
}

// CAdvisorHandler answers each request with what Handler serves at /metrics/cadvisor. Its caller bounds how long that may take.
func CAdvisorHandler(c *Collector) http.Handler { return http.HandlerFunc((&handler{c}).cadvisor) }

func (h *handler) summary(w http.ResponseWriter, r *http.Request) {
	only := false
	if text := r.URL.Query().Get("only_cpu_and_memory"); text != "" {
		var err error
		if only, err = strconv.ParseBool(text); err != nil {
			http.Error(w, "only_cpu_and_memory is neither true nor false", http.StatusBadRequest)
			return
		}
	}
	s, _ := h.collector.Summary(r.Context(), only) // its form has no place for what is lacking
	body, err := json.Marshal(s)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // a failure means that nobody reads it any more
}

// spec answers with what the machine has, in cAdvisor's form, as older kubelets did.
func (h *handler) spec(w http.ResponseWriter, r *http.Request) {
	machine, err := h.collector.Machine(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	body, err := json.Marshal(machine)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // a failure means that nobody reads it any more
}

func (h *handler) resource(w http.ResponseWriter, r *http.Request) {
	s, lacks := h.collector.Summary(r.Context(), true)
	registry := prometheus.NewRegistry()
	registry.MustRegister(&resourceView{s, len(lacks) > 0})
	serve(w, r, registry)
}

func (h *handler) cadvisor(w http.ResponseWriter, r *http.Request) {
	serve(w, r, h.collector.cadvisor(r.Context()))
}

// serve answers with what is gathered. A family that cannot be given is left out, and the others are there. It is packed as fast
// as can be: a scraper of the same network has more use for time than for a few bytes less.
func serve(w http.ResponseWriter, r *http.Request, gatherer prometheus.Gatherer) {
	to := w
	if takesGzip(r.Header.Get("Accept-Encoding")) {
		packer := packers.Get().(*gzip.Writer) //nolint:forcetypeassert // it is what New makes
		packer.Reset(w)
		defer func() {
			_ = packer.Close() // to who reads it, if he still does,
			packer.Reset(io.Discard)
			packers.Put(packer) // which it does not keep
		}()
		w.Header().Set("Content-Encoding", "gzip")
		to = packed{w, packer}
	}
	promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, DisableCompression: true}).
		ServeHTTP(to, r)
}

// takesGzip says that who asks takes gzip: with a weight of 0 it refuses that (RFC 9110, section 12.5.3).
func takesGzip(takes string) bool {
	for one := range strings.SplitSeq(takes, ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(one, " ", ""), ";q=")
		if q, err := strconv.ParseFloat(weight, 64); name == "gzip" && (err != nil || q > 0) {
			return true
		}
	}
	return false
}

// packers have been used and can be used again: one takes a megabyte.
var packers = sync.Pool{New: func() any {
	packer, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // there is such a level
	return packer
}}

// packed is an answer that is packed while it is made.
type packed struct {
	http.ResponseWriter
	to io.Writer
}

// Write implements http.ResponseWriter.
func (p packed) Write(b []byte) (int, error) { return p.to.Write(b) }
