package healthz

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/playlet-dev/playlet/actors/internal/explain"
)

// Handler answers /healthz and /healthz/<check>, in the form of Kubernetes components. Only with details it gives reasons and
// notes: these name pods, paths and addresses, which are not public.
func (h *Checks) Handler(details bool) http.Handler { return routes(h.checks, details) }

// Explain runs all checks, for "playlet explain node".
func (h *Checks) Explain(ctx context.Context) []explain.Check {
	out := make([]explain.Check, 0, len(h.checks))
	for _, c := range h.checks {
		v := c.run(ctx)
		out = append(out, explain.Check{Name: c.name, Failed: v.failed, Notes: v.notes})
	}
	return out
}

// NodeHandler answers /healthz of the node's API, with the kubelet's checks: syncloop fails if the tree does not work,
// device-plugin if device plugins cannot register.
func (h *Checks) NodeHandler() http.Handler {
	plugins := func(context.Context) verdict { return verdict{failed: h.conf.NoPlugins()} }
	return routes([]check{{"ping", fine}, {"log", fine}, {"syncloop", h.answers}, {"device-plugin", plugins}}, false)
}

func routes(checks []check, details bool) http.Handler {
	answer := func(w http.ResponseWriter, r *http.Request) { all(w, r, checks, details) }
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", answer)
	mux.HandleFunc("GET /healthz/{$}", answer)
	mux.HandleFunc("GET /healthz/{check}", func(w http.ResponseWriter, r *http.Request) { one(w, r, checks, details) })
	return mux
}

// withheld replaces the reason of a failure, as in the answers of Kubernetes components.
const withheld = "reason withheld"

// all answers /healthz: "ok", or 500 and the failed checks. ?verbose lists every check; ?exclude=NAME omits one.
func all(w http.ResponseWriter, r *http.Request, checks []check, details bool) {
	query := r.URL.Query()
	_, verbose := query["verbose"]
	excluded := query["exclude"]
	var text strings.Builder
	failed := false
	for _, c := range checks {
		if slices.Contains(excluded, c.name) {
			fmt.Fprintf(&text, "[+]%s excluded: ok\n", c.name)
			continue
		}
		v := c.run(r.Context()).shown(details)
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
		if !slices.ContainsFunc(checks, func(c check) bool { return c.name == name }) {
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
func one(w http.ResponseWriter, r *http.Request, checks []check, details bool) {
	name := r.PathValue("check")
	i := slices.IndexFunc(checks, func(c check) bool { return c.name == name })
	if i < 0 {
		say(w, http.StatusNotFound, fmt.Sprintf("there is no check %q\n", name))
		return
	}
	if v := checks[i].run(r.Context()).shown(details); v.failed != "" {
		say(w, http.StatusInternalServerError, plain(v.failed)+"\n")
		return
	}
	say(w, http.StatusOK, "ok")
}

// shown returns the verdict, without reasons unless details is set.
func (v verdict) shown(details bool) verdict {
	switch {
	case details:
		return v
	case v.failed != "":
		return verdict{failed: withheld}
	}
	return verdict{}
}

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // fails if the client has left
}

// plain replaces control characters in external text.
func plain(s string) string {
	return strings.Join(strings.FieldsFunc(s, unicode.IsControl), " ")
}
