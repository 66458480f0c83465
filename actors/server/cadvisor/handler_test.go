package cadvisor

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Each path with its request and expected answer.
func TestPaths(t *testing.T) {
	f := &fake{lacks: []string{"no \"pods\"\n"}}
	h := newHandler(f)
	for _, c := range []struct {
		method, path, body string
		code               int
		says               string
	}{
		{"GET", "/", "", 307, "/containers/"},
		{"GET", "/healthz", "", 200, "ok"},
		{"GET", "/metrics", "", 200, "container_cpu_usage_seconds_total"},
		{"GET", "/static/page.css", "", 200, "prefers-color-scheme"},
		{"GET", "/static/page.js", "", 200, "fetch("},
		{"GET", "/static/page.html", "", 404, ""},
		{"GET", "/static/doc.go", "", 404, ""},
		{"GET", "/containers", "", 200, "<h1>node"},
		{"GET", "/containers/", "", 200, "<h1>node"},
		{"HEAD", "/containers/", "", 200, ""},
		{"GET", "/containers" + one, "", 200, "<h1>default/web/nginx"},
		{"GET", "/containers" + one + "/", "", 200, "<h1>default/web/nginx"},
		{"GET", "/containers/none", "", 404, `there is no container "/none"`},
		{"POST", "/containers/", "", 405, ""},
		{"DELETE", "/api/v1.3/containers/", "", 405, ""},
		{"GET", "/api", "", 307, "/api/"},
		{"GET", "/api/", "", 404, "/api/v1.3/"},
		{"GET", "/api/v1.0/machine", "", 404, "/api/v2.1/"},
		{"GET", "/none", "", 404, ""},

		{"GET", "/api/v1.3/machine", "", 200, `"num_cores":4`},
		{"GET", "/api/v1.3/containers", "", 200, `"subcontainers":[{"name":"/kubepods"},{"name":"/system.slice/playlet.service"}]`},
		{"POST", "/api/v1.3/containers" + podName, "null", 200, `"subcontainers":[{"name":"` + one},
		{"POST", "/api/v1.3/containers/", `{"num_stats": 1}`, 200, `"filesystem":[{"device":"/dev/a"`},
		{"POST", "/api/v1.3/containers/", `{"end": "2020-01-01T00:00:00Z"}`, 200, `"has_custom_metrics":false}}`},
		{"POST", "/api/v1.3/containers/", `{"num_stats": -2}`, 400, "below -1"},
		{"POST", "/api/v1.3/containers/", `{`, 400, "the request's body"},
		{"POST", "/api/v1.3/containers/", strings.Repeat(" ", maxBody+1) + "{}", 400, "too large"},
		{"GET", "/api/v1.3/containers/none", "", 404, "no container"},
		{"GET", "/api/v1.3/subcontainers" + podName, "", 200, `[{"name":"` + podName + `"`},
		{"GET", "/api/v1.3/docker", "", 200, `{"` + one + `":{"name":"` + one + `","aliases":["` + id1 + `"]`},
		{"GET", "/api/v1.3/docker/" + id1, "", 200, `{"` + one + `":{`},
		{"GET", "/api/v1.3/docker/" + id1[:13], "", 200, `{"` + one + `":{`},
		{"GET", "/api/v1.3/docker/" + id1[:11], "", 404, "no one container"},
		{"GET", "/api/v1.3/docker/" + id2, "", 404, "no one container"}, // a sandbox
		{"GET", "/api/v1.3/events/", "", 200, "[]"},
		{"GET", "/api/v1.3/summary", "", 404, "API v1.3 has no"},

		{"GET", "/api/v2.1/version", "", 200, `"`},
		{"GET", "/api/v2.1/attributes", "", 200, `"kernel_version":"`},
		{"GET", "/api/v2.1/attributes", "", 200, `"machine_id":"m1"`},
		{"GET", "/api/v2.1/machine", "", 200, `"num_cores":4`},
		{"GET", "/api/v2.1/machinestats", "", 200, `"inline":{"reads_completed":0,"reads_merged":0,"sectors_read":0,"read_duration":7000000,`},
		{"GET", "/api/v2.1/stats?recursive=true", "", 200, `"/kubepods":{"spec":`},
		{"GET", "/api/v2.1/stats", "", 200, "{}"}, // the root's are machinestats
		{"GET", "/api/v2.1/stats" + one, "", 200, `"aliases":["` + id1},
		{"GET", "/api/v2.1/stats/?type=docker", "", 200, `"aliases":["` + id1},
		{"GET", "/api/v2.1/stats/" + id1 + "?type=docker", "", 200, `"aliases":["` + id1},
		{"GET", "/api/v2.1/stats/?type=podman", "", 404, "of type podman"},
		{"GET", "/api/v2.1/stats/?type=rkt", "", 400, "none of name, docker and podman"},
		{"GET", "/api/v2.1/stats/?count=-2", "", 400, "count"},
		{"GET", "/api/v2.1/stats/?recursive=maybe", "", 400, "recursive"},
		{"GET", "/api/v2.1/stats/?max_age=-1s", "", 400, "max_age"},
		{"GET", "/api/v2.1/stats/none", "", 404, "no container"},
		{"GET", "/api/v2.1/summary/", "", 501, "stats has the latest"},
		{"GET", "/api/v2.1/ps/", "", 501, "secrets"},
		{"GET", "/api/v2.1/events", "", 501, "/api/v1.3/events"},
		{"GET", "/api/v2.1/appmetrics/", "", 501, "applications"},
		{"GET", "/api/v2.1/storage", "", 404, "API v2.1 has no"},
		{"POST", "/api/v2.1/machine", "", 405, ""},

		{"GET", "/containers/../static/page.css", "", 400, "//, . or .."},
		{"GET", "/containers/%2e%2e/static/page.css", "", 400, "//, . or .."},
		{"GET", "/static/..%2fhandler.go", "", 400, "//, . or .."},
		{"GET", "/containers//kubepods", "", 400, "//, . or .."},
		{"GET", "/containers/a%00b", "", 400, "//, . or .."},
	} {
		w := request(t, h, c.method, c.path, c.body)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s: %d, wanted %d with %q: %.600s", c.method, c.path, w.Code, c.code, c.says, w.Body)
		}
		if !strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "default-src 'none'; ") {
			t.Errorf("%s %s: %v", c.method, c.path, w.Header())
		}
		if strings.HasPrefix(c.path, "/containers/kubepods") && !strings.Contains(w.Body.String(), `>no &#34;pods&#34;`) {
			t.Errorf("%s: %s", c.path, w.Body)
		}
	}
}

// Without figures each answer reports that.
func TestWithoutFigures(t *testing.T) {
	h := newHandler(&fake{none: true, lacks: []string{"no cgroups are mounted"}})
	for _, path := range []string{"/containers/", "/api/v1.3/containers/", "/api/v2.1/stats/", "/api/v2.1/machinestats"} {
		if w := get(t, h, path); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "no cgroups are mounted") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/api/v1.3/machine", "/api/v2.1/attributes"} {
		if w := get(t, h, path); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "the machine cannot be read") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// The client's maximum age is the one used for reading figures.
func TestAge(t *testing.T) {
	f := &fake{}
	h := newHandler(f)
	for _, path := range []string{"/api/v2.1/stats/", "/api/v2.1/stats/?max_age=3s", "/containers/", "/api/v1.3/containers/"} {
		get(t, h, path)
	}
	want := []time.Duration{restAge, 3 * time.Second, pageAge, restAge}
	for i, age := range f.ages {
		if age != want[i] {
			t.Errorf("request %d: %s", i, age)
		}
	}
}

// Hanging figures hold up a limited number of requests, each for a limited time.
func TestRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{hangs: make(chan struct{})}
		h := newHandler(f)
		codes := make(chan int, pending)
		began := time.Now()
		for range pending / 2 { // the share of one client
			go func() { codes <- get(t, h, "/containers/").Code }()
		}
		synctest.Wait()
		if w := get(t, h, "/healthz"); w.Code != http.StatusServiceUnavailable {
			t.Errorf("one more: %d", w.Code)
		}
		for range pending / 2 {
			<-codes
		}
		if took := time.Since(began); took != answerTimeout {
			t.Errorf("they took %s", took)
		}
		if w := get(t, h, "/healthz"); w.Code != http.StatusOK {
			t.Errorf("afterwards: %d", w.Code)
		}
		time.Sleep(keep) // the history forgets
	})
}

func FuzzPath(f *testing.F) {
	for _, seed := range []string{"/", "/containers/../x", "/api/v2.1/stats/a%2fb", "/api/v1.3/docker/" + id1, "/static/%2e%2e", "//", "/containers/" + "\x00"} {
		f.Add(seed, "type=docker&count=1")
	}
	h := newHandler(&fake{})
	f.Fuzz(func(t *testing.T, p, query string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://node/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.URL = &url.URL{Path: "/" + p, RawQuery: query}
		if streams(r) { // it would not end
			t.Skip()
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code >= 500 && w.Code != http.StatusNotImplemented {
			t.Errorf("%q: %d %s", p, w.Code, w.Body)
		}
		if clean := path.Clean("/" + p); w.Code == http.StatusOK && clean != "/"+p && clean+"/" != "/"+p {
			t.Errorf("%q was answered", p)
		}
	})
}

// Any body is read or rejected, and the answer has no more than was measured.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{`{"num_stats":1}`, `{"num_stats":-2}`, `{"num_stats":1e99}`, `{"start":"2026-01-01T00:00:00Z"}`, `{"end":"x"}`, `[`, `{"num_stats":"1"}`} {
		f.Add("containers", seed)
	}
	f.Add("docker", "{}")
	f.Add("subcontainers", `{"num_stats":0}`)
	h := newHandler(&fake{})
	f.Fuzz(func(t *testing.T, call, body string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://node/", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.URL = &url.URL{Path: "/api/v1.3/" + call}
		if streams(r) { // it would not end
			t.Skip()
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		}
		if w.Code == http.StatusOK && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%q: %s", body, w.Body)
		}
	})
}
