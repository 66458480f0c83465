package observatory

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// newFilter returns a filter with a token of its own, before an API that echoes its requests.
func newFilter(t *testing.T, chaos bool) (*tokenFilter, string) {
	t.Helper()
	token := NewToken(filepath.Join(t.TempDir(), "token"))
	if err := token.Load(); err != nil {
		t.Fatal(err)
	}
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, limited := r.Context().Deadline(); !limited {
			t.Errorf("%s is answered without a deadline", r.URL)
		}
		_, _ = w.Write([]byte("api " + r.Method + " " + r.URL.RequestURI()))
	})
	return OnPort(Config{API: api, Chaos: chaos, Token: token, Host: "node.example"}).(*tokenFilter), token.value()
}

// asked returns the answer to a request.
func asked(h http.Handler, method, path string, change func(*http.Request)) *http.Response {
	r := httptest.NewRequest(method, "http://127.0.0.1:4195"+path, nil)
	local := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 4195}
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(local)))
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(b.String(), "\r\n\r\n")
	return text
}

// Each request with its answer: the token, the Host, the Origin, the method and the path are checked.
func TestWhoIsLetIn(t *testing.T) {
	g, token := newFilter(t, false)
	cookie := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookieName, Value: value}) }
	}
	good := cookie(g.cookie(token))
	header := func(pairs ...string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer "+token)
			for i := 0; i < len(pairs); i += 2 {
				if r.Header.Set(pairs[i], pairs[i+1]); pairs[i] == "Host" {
					r.Host = pairs[i+1]
				}
			}
		}
	}
	for name, c := range map[string]struct {
		method, path string
		change       func(*http.Request)
		code         int
		says         string
	}{
		"no token":               {"GET", "/", nil, 401, "`playlet observatory` prints"},
		"no token, API":          {"GET", "/v1/pods", nil, 401, "needs its token"},
		"no token, asset":        {"GET", "/observatory/page.js", nil, 401, "needs its token"},
		"a wrong one":            {"GET", "/v1/pods", header("Authorization", "Bearer x"), 401, "is not the web page's token"},
		"an empty one":           {"GET", "/v1/pods", header("Authorization", "Bearer "), 401, "is not the web page's token"},
		"a wrong one, address":   {"GET", "/?token=x", nil, 401, "is not the web page's token"},
		"in the API's address":   {"GET", "/v1/pods?token=" + token, nil, 401, "needs its token"},
		"a bearer":               {"GET", "/v1/version", header(), 200, "api GET /v1/version"},
		"a cookie":               {"GET", "/v1/version", good, 200, "api GET"},
		"the page":               {"GET", "/", good, 200, "<title>Playlet<"},
		"an asset":               {"GET", "/observatory/page.css", good, 200, "prefers-color-scheme"},
		"no such asset":          {"GET", "/observatory/none.css", good, 404, ""},
		"a cookie that is old":   {"GET", "/v1/pods", cookie(sign(token, time.Now().Unix()-1)), 401, "needs its token"},
		"a cookie of another":    {"GET", "/v1/pods", cookie(sign("other", time.Now().Unix()+60)), 401, "needs its token"},
		"the token as a cookie":  {"GET", "/v1/pods", cookie(token), 401, "needs its token"},
		"a name of the loopback": {"GET", "/v1/pods", header("Host", "localhost:9"), 200, "api"},
		"IPv6":                   {"GET", "/v1/pods", header("Host", "[::1]:9"), 200, "api"},
		"the configured host":    {"GET", "/v1/pods", header("Host", "node.example:4195"), 200, "api"},
		"the address connected":  {"GET", "/v1/pods", header("Host", "192.0.2.7:4195"), 200, "api"},
		"a foreign host":         {"GET", "/v1/pods", header("Host", "evil.example"), 403, `"evil.example", which is not an address`},
		"a foreign address":      {"GET", "/v1/pods", header("Host", "192.0.2.8"), 403, "is not an address"},
		"no host":                {"GET", "/v1/pods", header("Host", ""), 403, "is not an address"},
		"of this page":           {"GET", "/v1/pods", header("Origin", "http://127.0.0.1:4195"), 200, "api"},
		"of another page":        {"GET", "/v1/pods", header("Origin", "http://evil.example"), 403, "a page of another site"},
		"of another port":        {"GET", "/v1/pods", header("Origin", "http://127.0.0.1:80"), 403, "a page of another site"},
		"of nowhere":             {"GET", "/v1/pods", header("Origin", "null"), 403, "a page of another site"},
		"foreign, without token": {"GET", "/?token=" + token, func(r *http.Request) { r.Host = "evil.example" }, 403, "is not an address"},
		"specs are left out":     {"GET", "/v1/pods?watch=true&brief=false", header(), 200, "api GET /v1/pods?brief=true&watch=true"},
		"exec":                   {"POST", "/v1/exec/default/web", header(), 404, ""},
		"logs":                   {"GET", "/v1/logs/default/web", header(), 200, "api GET /v1/logs/default/web"},
		"logs, no token":         {"GET", "/v1/logs/default/web", nil, 401, "observatory"},
		"submissions":            {"GET", "/v1/submissions", header(), 404, ""},
		"removing":               {"DELETE", "/v1/submissions/default/web", header(), 404, ""},
		"where the token is":     {"GET", "/v1/observatory", header(), 404, ""},
		"chaos is read":          {"GET", "/v1/chaos", header(), 200, "api"},
		"chaos is off":           {"POST", "/v1/chaos", header(), 405, ""},
		"another method":         {"PUT", "/v1/pods", header(), 405, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := asked(g, c.method, c.path, c.change)
			if text := body(t, r); r.StatusCode != c.code || !strings.Contains(text, c.says) {
				t.Errorf("%d %s", r.StatusCode, text)
			}
			policy := r.Header.Get("Content-Security-Policy")
			if !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") ||
				strings.Contains(policy, "unsafe") || r.StatusCode == 200 && r.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%v", r.Header)
			}
		})
	}
}

// Chaos, if enabled, needs a bearer token or a request of the page itself.
func TestChaosIsForThePageItself(t *testing.T) {
	g, token := newFilter(t, true)
	for origin, want := range map[string]int{"": 403, "http://127.0.0.1:4195": 200, "http://evil.example": 403} {
		for _, method := range []string{"POST", "DELETE"} {
			r := asked(g, method, "/v1/chaos", func(r *http.Request) {
				r.AddCookie(&http.Cookie{Name: cookieName, Value: g.cookie(token)})
				if origin != "" {
					r.Header.Set("Origin", origin)
				}
			})
			if r.StatusCode != want {
				t.Errorf("%s from %q: %d", method, origin, r.StatusCode)
			}
		}
	}
	if r := asked(g, "DELETE", "/v1/chaos/3", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }); r.StatusCode != 200 {
		t.Errorf("a bearer: %d", r.StatusCode)
	}
}

// The address with the token sets a cookie that is not the token, and redirects to an address without it. The cookie expires.
func TestTheTokenBecomesACookie(t *testing.T) {
	g, token := newFilter(t, false)
	now := time.Now()
	g.now = func() time.Time { return now }
	r := asked(g, "GET", "/?token="+token, nil)
	cookies := r.Cookies()
	if r.StatusCode != 303 || r.Header.Get("Location") != "/" || len(cookies) != 1 || !cookies[0].HttpOnly ||
		cookies[0].SameSite != http.SameSiteStrictMode || strings.Contains(cookies[0].Value, token) {
		t.Fatalf("%d %v", r.StatusCode, r.Header)
	}
	with := func(r *http.Request) { r.AddCookie(cookies[0]) }
	if r := asked(g, "GET", "/", with); r.StatusCode != 200 {
		t.Errorf("%d", r.StatusCode)
	}
	now = now.Add(cookieTime)
	if r := asked(g, "GET", "/", with); r.StatusCode != 401 {
		t.Errorf("after its time: %d", r.StatusCode)
	}
}

// Without a token every client is rejected.
func TestWithoutATokenNobodyIsLetIn(t *testing.T) {
	g := OnPort(Config{API: http.NotFoundHandler(), Token: NewToken("/none")})
	for _, value := range []string{"", "Bearer "} {
		r := asked(g, "GET", "/v1/pods", func(r *http.Request) {
			r.AddCookie(&http.Cookie{Name: cookieName, Value: sign("", time.Now().Unix()+60)})
			if value != "" {
				r.Header.Set("Authorization", value)
			}
		})
		if r.StatusCode != 401 {
			t.Errorf("%q: %d", value, r.StatusCode)
		}
	}
}

// The admin socket requires no token, but also rejects requests of other sites.
func TestOnTheSocket(t *testing.T) {
	h := OnSocket(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("api " + r.URL.Path)) }))
	for name, c := range map[string]struct {
		host, origin, path string
		code               int
		says               string
	}{
		"a command":      {"playlet", "", "/v1/exec/a/b", 200, "api /v1/exec/a/b"},
		"the page":       {"localhost:4195", "", "/", 200, "<title>Playlet<"},
		"an asset":       {"127.0.0.1", "", "/observatory/page.js", 200, "import"},
		"of the page":    {"localhost:4195", "http://localhost:4195", "/v1/pods", 200, "api"},
		"foreign host":   {"evil.example", "", "/v1/pods", 403, "evil.example"},
		"foreign origin": {"localhost:4195", "http://evil.example", "/v1/pods", 403, "another site"},
	} {
		r := asked(h, "GET", c.path, func(r *http.Request) {
			if r.Host = c.host; c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
		})
		if text := body(t, r); r.StatusCode != c.code || !strings.Contains(text, c.says) {
			t.Errorf("%s: %d %s", name, r.StatusCode, text)
		}
	}
}

// The token is random, owned by root, and kept. An invalid or readable one is replaced.
func TestTheTokensFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	load := func() string {
		t.Helper()
		token := NewToken(path)
		if err := token.Load(); err != nil {
			t.Fatal(err)
		}
		return token.value()
	}
	if _, err := ReadToken(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	first := load()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || !regexp.MustCompile(`^[\w-]{43}$`).MatchString(first) {
		t.Fatalf("%v %v %q", err, info, first)
	}
	if load() != first {
		t.Error("it is not kept")
	}
	spoil := map[string]func() error{
		"others can read it": func() error { return os.Chmod(path, 0o644) },
		"it is short":        func() error { return os.WriteFile(path, []byte("abc\n"), 0o600) },
		"it is empty":        func() error { return os.Truncate(path, 0) },
		"it is a link": func() error {
			other := filepath.Join(t.TempDir(), "other")
			return errors.Join(os.Rename(path, other), os.Symlink(other, path))
		},
	}
	for name, damage := range spoil {
		before := load()
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadToken(path); !errors.Is(err, errNoToken) {
			t.Errorf("%s: %v", name, err)
		}
		if now := load(); now == before || now == "" {
			t.Errorf("%s: it is kept", name)
		}
		if text, err := ReadToken(path); err != nil || text == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := NewToken("/proc/none/token").Load(); err == nil {
		t.Error("a folder that cannot be written")
	}
}

// The page loads nothing from elsewhere, and has no inline script or style, which its policy forbids.
func TestTheAssetsAreOurs(t *testing.T) {
	entries, err := assets.ReadDir("assets")
	if err != nil || len(entries) == 0 {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := assets.ReadFile("assets/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		allowed := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", "")
		for _, bad := range []string{"http://", "https://", "innerHTML", "eval(", "<style", " style=\"", "onclick=\"", "<script>"} {
			if strings.Contains(allowed, bad) {
				t.Errorf("%s has %q", e.Name(), bad)
			}
		}
	}
}
