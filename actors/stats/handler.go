package stats

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/playlet-dev/playlet/actors/stats/agentmetrics"
)

const (
	// answerTimeout bounds how long an answer waits for figures; it then has those that are there.
	answerTimeout = 2 * partTimeout
	// writeTimeout bounds the writing of one answer: who does not read is let go.
	writeTimeout = 30 * time.Second
	// answers is how many answers are made at once by a handler.
	answers = 4
	// pending is how many requests a handler has in hand at once: the answer of a crowded node takes megabytes until it is read.
	pending = 32
	// maxWarnings bounds the sentences in one answer's headers.
	maxWarnings = 16
)

// errNothing says that there are no figures at all.
var errNothing = errors.New("no cgroup could be read")

// handler answers who asks for figures. Safe for concurrent use.
type handler struct {
	collector *Collector
	slots     chan struct{} // one an answer that is being made
	pending   chan struct{} // one a request
}

// Handler serves /stats/summary, /spec, /metrics and what is below it. It checks no credentials: that is the listener's, of which
// each has a handler of its own, so that those whom one lets in do not hold up those of another. m may be nil.
func Handler(c *Collector, m *agentmetrics.Metrics) http.Handler {
	h := &handler{c, make(chan struct{}, answers), make(chan struct{}, pending)}
	mux := http.NewServeMux()
	mux.Handle("GET /stats/summary", h.bounded(h.summary))
	mux.Handle("POST /stats/summary", h.bounded(h.summary)) // the kubelet takes both
	mux.Handle("GET /spec/{$}", h.bounded(h.spec))
	mux.Handle("GET /spec", h.bounded(h.spec))
	mux.Handle("GET /metrics/cadvisor", h.bounded(h.cadvisor))
	mux.Handle("GET /metrics/resource", h.bounded(h.resource))
	if m != nil {
		usage := prometheus.NewRegistry()
		usage.MustRegister(&usageView{c})
		m.Handle(mux, answers+pending, usage)
	}
	return mux
}

// CAdvisorHandler answers each request with what Handler serves at /metrics/cadvisor.
func CAdvisorHandler(c *Collector) http.Handler {
	h := &handler{c, make(chan struct{}, answers), make(chan struct{}, pending)}
	return h.bounded(h.cadvisor)
}

// page is an answer in memory.
type page struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (p *page) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *page) WriteHeader(code int) { p.code = code }

// Write implements http.ResponseWriter.
func (p *page) Write(b []byte) (int, error) { return p.body.Write(b) }

// bounded gives the request a deadline and a slot, which it holds while the answer is made: a client that is slow to read or to
// send keeps it from nobody.
func (h *handler) bounded(serve http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case h.pending <- struct{}{}:
			defer func() { <-h.pending }()
		default:
			busy(w)
			return
		}
		p := &page{header: http.Header{}, code: http.StatusOK}
		if !h.make(p, r, serve) {
			busy(w)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // a recorder in a test has none
		maps.Copy(w.Header(), p.header)
		w.WriteHeader(p.code)
		_, _ = w.Write(p.body.Bytes()) // a failure means that nobody reads it any more
	})
}

// make makes the answer, or says that there was no slot for it in time.
func (h *handler) make(p *page, r *http.Request, serve http.HandlerFunc) bool {
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-ctx.Done():
		return false
	}
	serve(p, r.WithContext(ctx))
	return true
}

func busy(w http.ResponseWriter) {
	http.Error(w, "too many requests for figures are being answered", http.StatusServiceUnavailable)
}

func (h *handler) summary(w http.ResponseWriter, r *http.Request) {
	only := false
	if text := r.URL.Query().Get("only_cpu_and_memory"); text != "" {
		var err error
		if only, err = strconv.ParseBool(text); err != nil {
			http.Error(w, "only_cpu_and_memory is neither true nor false", http.StatusBadRequest)
			return
		}
	}
	s, lacks := h.collector.Summary(r.Context(), only)
	body, err := json.Marshal(s)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	warn(w, lacks)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // to memory
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
	_, _ = w.Write(body) // to memory
}

func (h *handler) resource(w http.ResponseWriter, r *http.Request) {
	s, lacks := h.collector.Summary(r.Context(), true)
	warn(w, lacks)
	registry := prometheus.NewRegistry()
	registry.MustRegister(&resourceView{s, len(lacks) > 0})
	serve(w, r, registry)
}

func (h *handler) cadvisor(w http.ResponseWriter, r *http.Request) {
	gatherer, lacks := h.collector.cadvisor(r.Context())
	warn(w, lacks)
	serve(w, r, gatherer)
}

// serve answers with what is gathered. A family that cannot be given is left out, and the others are there. It is packed as fast
// as can be: a scraper of the same network has more use for time than for a few bytes less.
func serve(w http.ResponseWriter, r *http.Request, gatherer prometheus.Gatherer) {
	to := w
	if takesGzip(r.Header.Get("Accept-Encoding")) {
		packer := packers.Get().(*gzip.Writer) //nolint:forcetypeassert // it is what New makes
		packer.Reset(w)
		defer func() {
			_ = packer.Close() // to memory,
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

// warn says in headers what an answer lacks (RFC 7234, section 5.5): its form has no place for it.
func warn(w http.ResponseWriter, lacks []string) {
	for i, text := range lacks {
		if i == maxWarnings {
			text = strconv.Itoa(len(lacks)-i) + " more figures are missing"
		}
		w.Header().Add("Warning", "199 playlet "+strconv.Quote(headerText(text)))
		if i == maxWarnings {
			return
		}
	}
}

// headerText makes a text fit for a header.
func headerText(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '\\' || r == '"' {
			return ' '
		}
		return r
	}, text)
	return text[:min(len(text), 500)]
}
