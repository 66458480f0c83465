package nodeapi

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/server/containers"
	"github.com/playlet-dev/playlet/config"
)

// No query is worse than a refusal, and what is accepted makes sense.
func FuzzQueries(f *testing.F) {
	for _, q := range []string{"tailLines=1&follow", "sinceSeconds=9223372036854775807", "stream=Stdout", "sinceTime=0001-01-01T00:00:00Z",
		"input=1&tty=1&command=%00", "port=80,443&port=0", "limitBytes=-0&tail=all"} {
		f.Add(q)
	}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, query string) {
		q, _ := url.ParseQuery(query) // as net/http: what can be read counts
		if o, err := parseLogOptions(q, now); err == nil {
			if o.Tail != nil && (*o.Tail < 0 || o.Stream != "") || o.LimitBytes != nil && *o.LimitBytes < 1 ||
				q.Has("sinceSeconds") && q.Get("sinceSeconds") != "" && !o.Since.Before(now) {
				t.Errorf("%+v", o)
			}
		}
		if o, err := parseStreamOptions(q); err == nil && (o.TTY && o.Stderr || !o.Stdin && !o.Stdout && !o.Stderr) {
			t.Errorf("%+v", o)
		}
		if ports, err := parsePorts(q["port"]); err == nil {
			for _, p := range ports {
				if p < 1 || p > 65535 {
					t.Error(p)
				}
			}
		}
	})
}

// No path of a node without pods is answered with more than what concerns the node, is redirected, or ends in a panic.
func FuzzPaths(f *testing.F) {
	for _, p := range []string{"/exec/ns/web/app", "/pods/../exec/ns/web/app", "/logs/%2e%2e/secret", "//configz", "/containerLogs/a/b/c?follow=1",
		"/portForward/%2f/%00", "/run/a/b/c/d?cmd=x"} {
		f.Add(p)
	}
	b := board.New()
	h := New(Config{
		Board: b, Containers: containers.New(containers.Config{Board: b}), Kubelet: &config.KubeletConfiguration{}, Kubernetes: "1.36.3",
		Healthz: http.NotFoundHandler(), SystemLogs: f.TempDir(),
	})
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil || u.Path == "/runningpods/" || u.Path == "/debug/pprof/profile" || u.Path == "/debug/pprof/trace" {
			return
		}
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, &http.Request{Method: method, URL: u, Header: http.Header{}, Body: http.NoBody, RequestURI: path, Host: "h"})
			if w.Code/100 == 3 && !(len(u.Path) > 6 && u.Path[:6] == "/logs/") && u.Path != "/debug/pprof" && u.Path != "/logs" &&
				u.Path != "/healthz" && u.Path != "/runningpods" {
				t.Errorf("%s: %d %s", path, w.Code, w.Header().Get("Location"))
			}
		}
	})
}
