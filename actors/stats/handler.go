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

// answerTimeout limits how long an answer waits for figures; after it the answer has the available ones.
const answerTimeout = 2 * partTimeout

// errNothing is returned if there are no figures at all.
var errNothing = errors.New("no cgroup could be read")

// handler serves requests for figures. Safe for concurrent use.
type handler struct{ collector *Collector }

// Handler serves /stats/summary, /spec, /metrics and the paths below it. The listener checks credentials and limits concurrent
// requests and slow readers. m may be nil.
func Handler(c *Collector, m *agentmetrics.Metrics) http.Handler {
	h := &handler{c}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stats/summary", h.summary)
	mux.HandleFunc("POST /stats/summary", h.summary) // the kubelet accepts both
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

// CAdvisorHandler serves the content of /metrics/cadvisor for every request. Its caller limits the duration.
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
	s, _ := h.collector.Summary(r.Context(), only) // its format has no place for missing figures
	body, err := json.Marshal(s)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // fails if the client has left
}

// spec serves the machine's properties in cAdvisor's form, as older kubelets did.
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
	_, _ = w.Write(body) // fails if the client has left
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

// serve renders the gathered families. A family that cannot be rendered is omitted. Compression is the fastest level: for a
// scraper in the same network, time matters more than a few bytes.
func serve(w http.ResponseWriter, r *http.Request, gatherer prometheus.Gatherer) {
	to := w
	if takesGzip(r.Header.Get("Accept-Encoding")) {
		packer := packers.Get().(*gzip.Writer) //nolint:forcetypeassert // it is what New makes
		packer.Reset(w)
		defer func() {
			_ = packer.Close() // fails if the client has left
			packer.Reset(io.Discard)
			packers.Put(packer) // the pool does not retain the writer
		}()
		w.Header().Set("Content-Encoding", "gzip")
		to = compressedWriter{w, packer}
	}
	promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, DisableCompression: true}).
		ServeHTTP(to, r)
}

// takesGzip reports whether the client accepts gzip: a weight of 0 rejects it (RFC 9110, section 12.5.3).
func takesGzip(takes string) bool {
	for one := range strings.SplitSeq(takes, ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(one, " ", ""), ";q=")
		if q, err := strconv.ParseFloat(weight, 64); name == "gzip" && (err != nil || q > 0) {
			return true
		}
	}
	return false
}

// packers are reusable compressors: one takes a megabyte.
var packers = sync.Pool{New: func() any {
	packer, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // a valid level
	return packer
}}

// compressedWriter is an answer that is compressed as it is written.
type compressedWriter struct {
	http.ResponseWriter
	to io.Writer
}

// Write implements http.ResponseWriter.
func (p compressedWriter) Write(b []byte) (int, error) { return p.to.Write(b) }
