package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"
)

// routes are /healthz and /healthz/<check>, in the form that Kubernetes components give them.
func (h *health) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", h.all)
	mux.HandleFunc("GET /healthz/{$}", h.all)
	mux.HandleFunc("GET /healthz/{check}", h.one)
	return mux
}

// all answers /healthz: "ok", or 500 and what failed. ?verbose lists every check; ?exclude=NAME leaves one out.
func (h *health) all(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	_, verbose := query["verbose"]
	excluded := query["exclude"]
	var text strings.Builder
	failed := false
	for _, c := range h.checks {
		if slices.Contains(excluded, c.name) {
			fmt.Fprintf(&text, "[+]%s excluded: ok\n", c.name)
			continue
		}
		v := c.run(r.Context())
		if v.failed != "" {
			failed = true
			fmt.Fprintf(&text, "[-]%s failed: %s\n", c.name, plain(v.failed))
		} else {
			fmt.Fprintf(&text, "[+]%s ok\n", c.name)
		}
		for _, n := range v.notes {
			fmt.Fprintf(&text, "    %s\n", plain(n))
		}
	}
	for _, name := range excluded {
		if !slices.ContainsFunc(h.checks, func(c check) bool { return c.name == name }) {
			fmt.Fprintf(&text, "    there is no check %q to exclude\n", name)
		}
	}
	switch {
	case failed:
		text.WriteString("healthz check failed\n")
		say(w, http.StatusInternalServerError, text.String())
	case verbose:
		text.WriteString("healthz check passed\n")
		say(w, http.StatusOK, text.String())
	default:
		say(w, http.StatusOK, "ok")
	}
}

// one answers /healthz/<check>.
func (h *health) one(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("check")
	i := slices.IndexFunc(h.checks, func(c check) bool { return c.name == name })
	if i < 0 {
		say(w, http.StatusNotFound, fmt.Sprintf("there is no check %q\n", name))
		return
	}
	if v := h.checks[i].run(r.Context()); v.failed != "" {
		say(w, http.StatusInternalServerError, plain(v.failed)+"\n")
		return
	}
	say(w, http.StatusOK, "ok")
}

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // who does not read it has gone
}

// plain keeps a text from elsewhere to one line without control characters.
func plain(s string) string {
	return strings.Join(strings.FieldsFunc(s, unicode.IsControl), " ")
}
