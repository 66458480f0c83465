package observatory

import (
	"context"
	"embed"
	"net/http"
	"net/url"
	"time"
)

// Config is what is served on a port.
type Config struct {
	// API are the handlers of the admin socket, of which a part is served.
	API http.Handler
	// Chaos lets requests through that break actors.
	Chaos bool
	// Token is what a client must have.
	Token *Token
	// Host is the host of the configured address, which requests may name beside those of the loopback.
	Host string
}

const (
	// answerTime bounds how long an answer is made, streamTime how long one stream lasts: the page opens another.
	answerTime = 20 * time.Second
	streamTime = 10 * time.Minute
)

// reading lists the paths that the page reads from the admin socket's handlers. Submitted manifests, whose variables may be
// secrets, are not among them.
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

// OnPort is what is served on a TCP port.
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
	return &gate{conf: conf, next: mux, now: time.Now}
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

// harden keeps browsers from loading, framing or running anything else, and from keeping what is of a moment.
func harden(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "+
		"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// bounded ends an answer that takes too long, and has pods told of without their specs, whose variables may be secrets.
func bounded(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit, q := answerTime, r.URL.Query()
		if q.Get("watch") == "true" || q.Get("follow") == "true" {
			limit = streamTime
		}
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		if r.Method != http.MethodGet { // a body that does not come; of a stream, reading tells that the client has gone
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(answerTime)) // a recorder in a test has none
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
