package nodeapi

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/server/containers"
	"github.com/playlet-dev/playlet/config"
)

// Any query is rejected or has a meaningful result.
func FuzzQueries(f *testing.F) {
	for _, q := range []string{"tailLines=1&follow", "sinceSeconds=9223372036854775807", "stream=Stdout", "sinceTime=0001-01-01T00:00:00Z",
		"input=1&tty=1&command=%00", "port=80,443&port=0", "limitBytes=-0&tail=all"} {
		f.Add(q)
	}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, query string) {
		q, _ := url.ParseQuery(query) // like net/http: the readable part counts
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

// For any log query, journalctl gets services and filters, each after its option's name: no word of a client becomes an option.
func FuzzLogQuery(f *testing.F) {
	for _, q := range []string{"query=kubelet&tailLines=10&boot=-1", "query=/syslog", "query=-rf&pattern=--file=x", "query=a&query=b&sinceTime=2026-01-02T00:00:00Z",
		"query=a%00b&pattern=%28", "query=x&untilTime=0000-01-01T00:00:00-23:59"} {
		f.Add(q)
	}
	option := regexp.MustCompile(`^--(since|until)=[0-9]{4,}-[0-9: .-]+ UTC$|^--(lines|boot)=-?[0-9]+$|(?s)^--grep=.+$`)
	f.Fuzz(func(t *testing.T, query string) {
		q, _ := url.ParseQuery(query)
		l, err := parseLogQuery(q)
		if err != nil {
			return
		}
		if (l.file == "") == (len(l.services) == 0) || len(l.services) > mostServices {
			t.Errorf("%+v", l)
		}
		for _, s := range l.services {
			if strings.HasPrefix(s, "-") || strings.ContainsAny(s, "/\x00 *?[") {
				t.Errorf("service %q", s)
			}
		}
		for _, o := range l.filters {
			if !option.MatchString(o) {
				t.Errorf("option %q", o)
			}
		}
	})
}

// On a node without pods, any path only answers about the node, without a redirect or a panic.
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
