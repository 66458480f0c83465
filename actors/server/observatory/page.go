package observatory

import (
	"context"
	"embed"
	"net/http"
	"net/url"
	"time"
)

// Config has the dependencies of the page on a port.
type Config struct {
	// API are the handlers of the admin socket, of which a part is served.
	API http.Handler
	// Chaos permits requests that break actors.
	Chaos bool
	// Token is required of clients.
	Token *Token
	// Host is the host of the configured address, which requests may name in addition to the loopback's.
	Host string
}

const (
	// answerTime bounds an answer, streamTime one stream: the page opens another.
	answerTime = 20 * time.Second
	streamTime = 10 * time.Minute
)

// reading lists the paths of the admin socket that the page reads. It excludes submitted manifests, whose variables may be
// secrets.
var reading = []string{
	"/v1/version", "/v1/pods", "/v1/events", "/v1/explain/", "/v1/actors", "/v1/actors/", "/v1/trace", "/v1/criticalpath",
	"/v1/figures", "/v1/figures/history", "/v1/chaos", "/v1/logs/",
}

//go:embed assets
var assets embed.FS

// OnSocket adds the page to the handlers of the admin socket.
func OnSocket(api http.Handler) http.Handler {
	mux := http.NewServeMux()
	addPage(mux)
	mux.Handle("/", api)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text := foreign(r, socketHost); text != "" {
			http.Error(w, text, http.StatusForbidden)
			return
		}
		harden(w.Header())
		mux.ServeHTTP(w, r)
	})
}

// OnPort returns the handler for a TCP port.
func OnPort(conf Config) http.Handler {
	mux := http.NewServeMux()
	addPage(mux)
	for _, path := range reading {
		mux.Handle("GET "+path, bounded(conf.API))
	}
	if conf.Chaos {
		mux.Handle("POST /v1/chaos", bounded(conf.API))
		mux.Handle("DELETE /v1/chaos", bounded(conf.API))
		mux.Handle("DELETE /v1/chaos/", bounded(conf.API))
	}
	return &tokenFilter{conf: conf, next: mux, now: time.Now}
}

func addPage(mux *http.ServeMux) {
	serve := func(name func(*http.Request) string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			harden(w.Header())
			http.ServeFileFS(w, r, assets, "assets/"+name(r))
		}
	}
	// Not index.html: the library would redirect from that name.
	mux.HandleFunc("GET /{$}", serve(func(*http.Request) string { return "page.html" }))
	mux.HandleFunc("GET /observatory/{file}", serve(func(r *http.Request) string { return r.PathValue("file") }))
}

// harden sets headers that keep browsers from loading, framing or running anything else, and from caching.
func harden(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "+
		"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// bounded ends an answer that takes too long, and requests pods without their specs, whose variables may be secrets.
func bounded(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit, q := answerTime, r.URL.Query()
		if q.Get("watch") == "true" || q.Get("follow") == "true" {
			limit = streamTime
		}
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		if r.Method != http.MethodGet { // a missing body; for a stream, reading notices a departed client
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(answerTime)) // not supported by a test's recorder
		}
		r = r.WithContext(ctx)
		if r.URL.Path == "/v1/pods" {
			q.Set("brief", "true")
			u := url.URL{Path: r.URL.Path, RawQuery: q.Encode()}
			r.URL = &u
		}
		api.ServeHTTP(w, r)
	})
}
