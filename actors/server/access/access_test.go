package access

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
)

const hour = time.Hour

// options returns the documented defaults, with a client CA and the API server.
func options(t *testing.T, ca *authority, client kubernetes.Interface, log io.Writer) Options {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ca.pem(), 0o600); err != nil {
		t.Fatal(err)
	}
	return Options{
		NodeName: "n1", Tokens: client, Rights: client, Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Authentication: kubeletconfig.KubeletAuthentication{
			X509:      kubeletconfig.KubeletX509Authentication{ClientCAFile: file},
			Webhook:   kubeletconfig.KubeletWebhookAuthentication{Enabled: ptr.To(true), CacheTTL: metav1.Duration{Duration: 2 * hour}},
			Anonymous: kubeletconfig.KubeletAnonymousAuthentication{Enabled: ptr.To(false)},
		},
		Authorization: kubeletconfig.KubeletAuthorization{
			Mode: kubeletconfig.KubeletAuthorizationModeWebhook,
			Webhook: kubeletconfig.KubeletWebhookAuthorization{
				CacheAuthorizedTTL: metav1.Duration{Duration: hour}, CacheUnauthorizedTTL: metav1.Duration{Duration: hour},
			},
		},
	}
}

// open serves "in" behind the filter, over TLS, with the client CAs announced as by the agent.
func open(t *testing.T, o Options) (*Access, *httptest.Server) {
	t.Helper()
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	server := httptest.NewUnstartedServer(a.Filter(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "in")
	})))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return a, server
}

// identity is the credentials of a client.
type identity struct {
	cert  *tls.Certificate
	token string
}

func ask(t *testing.T, server *httptest.Server, who identity, method, path string) (code int, body string) {
	t.Helper()
	transport := server.Client().Transport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	if who.cert != nil { // regardless of the CAs that the server names
		transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return who.cert, nil
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if who.token != "" {
		request.Header.Set("Authorization", "Bearer "+who.token)
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// Every identity requests every path. The rights that admit a client follow the path.
func TestEveryPathByEveryIdentity(t *testing.T) {
	paths := map[string]struct{ verb, subresources string }{
		"GET /pods": {"get", "pods proxy"}, "GET /runningpods/": {"get", "pods proxy"},
		"GET /healthz": {"get", "healthz proxy"}, "GET /healthz/syncloop": {"get", "healthz proxy"},
		"GET /configz": {"get", "configz proxy"}, "GET /flagz": {"get", "configz"}, "GET /statusz": {"get", "statusz"},
		"GET /stats/summary": {"get", "stats"}, "GET /stats/": {"get", "stats"}, "GET /spec/": {"get", "spec"},
		"GET /metrics": {"get", "metrics"}, "GET /metrics/cadvisor": {"get", "metrics"},
		"GET /metrics/resource": {"get", "metrics"}, "GET /metrics/probes": {"get", "metrics"}, "GET /metrics/slis": {"get", "metrics"},
		"GET /logs/": {"get", "log"}, "GET /logs/syslog": {"get", "log"},
		"POST /checkpoint/ns/p/c": {"create", "checkpoint"}, "POST /manifests": {"create", "manifests"},
		"PUT /manifests/x": {"update", "manifests"}, "DELETE /manifests/x": {"delete", "manifests"},
		"GET /containerLogs/ns/p/c": {"get", "proxy"}, "GET /debug/pprof/heap": {"get", "proxy"}, "PUT /debug/flags/v": {"update", "proxy"},
		"GET /": {"get", "proxy"}, "GET /nothing": {"get", "proxy"}, "GET /podsandmore": {"get", "proxy"}, "PATCH /pods": {"patch", "pods proxy"},
		"OPTIONS /metrics": {"", "metrics"},
	}
	for _, stream := range []string{"/exec/ns/p/c", "/exec/ns/p/uid/c", "/attach/ns/p/c", "/run/ns/p/c", "/portForward/ns/p"} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			paths[method+" "+stream] = struct{ verb, subresources string }{"create", "proxy"}
		}
	}
	api, ca, stranger := newFakeAPI(t), newAuthority(t, "ca"), newAuthority(t, "ca")
	later := time.Now().Add(hour)
	who := map[string]identity{
		"none": {}, "wrong CA": {cert: stranger.client("admin", later, "system:masters")},
		"expired":       {cert: ca.client("admin", time.Now().Add(-hour), "system:masters")},
		"unknown token": {token: "unknown"}, "token without rights": {token: "nobody"},
		"node":          {cert: ca.client("system:node:n2", later, "system:nodes")},
		"administrator": {cert: ca.client("admin", later, "system:masters")},
		"both":          {cert: stranger.client("admin", later), token: "metrics-reader"}, // its token suffices
	}
	api.tokens["nobody"] = authenticationv1.UserInfo{Username: "nobody"}
	api.rules["system:masters"] = []string{"* *"}
	for _, right := range strings.Fields("pods healthz configz statusz stats spec metrics log checkpoint manifests proxy") {
		name := right + "-reader"
		api.tokens[name] = authenticationv1.UserInfo{Username: name, Groups: []string{right}}
		api.rules[right] = []string{"get " + right}
		who[name] = identity{token: name}
	}
	api.tokens["proxy-creator"] = authenticationv1.UserInfo{Username: "proxy-creator"}
	api.rules["proxy-creator"] = []string{"create proxy"}
	who["proxy-creator"] = identity{token: "proxy-creator"}

	var log bytes.Buffer
	_, server := open(t, options(t, ca, api.client(t), &log))
	for name, id := range who {
		for request, needs := range paths {
			method, path, _ := strings.Cut(request, " ")
			subresources := strings.Fields(needs.subresources)
			user, want := name, http.StatusForbidden
			right, does, _ := strings.Cut(name, "-")
			switch {
			case slices.Contains([]string{"none", "wrong CA", "expired", "unknown token"}, name):
				want = http.StatusUnauthorized
			case name == "administrator":
				want = http.StatusOK
			case name == "token without rights":
				user = "nobody"
			case name == "node":
				user = "system:node:n2"
			case name == "both":
				user, right, does = "metrics-reader", "metrics", "reader"
			}
			if slices.Contains(subresources, right) && (does == "reader" && needs.verb == "get" || does == "creator" && needs.verb == "create") {
				want = http.StatusOK
			}
			body := map[int]string{http.StatusOK: "in", http.StatusUnauthorized: "Unauthorized", http.StatusForbidden: fmt.Sprintf(
				"Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=[%s])\n", user, needs.verb, needs.subresources)}[want]
			if code, text := ask(t, server, id, method, path); code != want || text != body {
				t.Errorf("%s, %s: %d %q, want %d %q", name, request, code, text, want, body)
			}
		}
	}
	if !strings.Contains(log.String(), "not authenticated") || strings.Contains(log.String(), "Bearer") {
		t.Errorf("logged: %s", log.String())
	}
	if n := slices.Index(api.asked, "token nobody"); n < 0 || slices.Contains(api.asked[n+1:], "token nobody") {
		t.Error("the answer about a token is not cached")
	}
}

// The fine-grained right is reviewed first, and the other only if it is not allowed.
func TestTheOrderOfRights(t *testing.T) {
	api, ca := newFakeAPI(t), newAuthority(t, "ca")
	api.tokens["t"] = authenticationv1.UserInfo{Username: "u"}
	api.rules["u"] = []string{"get pods", "get proxy"}
	_, server := open(t, options(t, ca, api.client(t), io.Discard))
	for _, path := range []string{"/pods", "/pods", "/healthz"} {
		if code, _ := ask(t, server, identity{token: "t"}, "GET", path); code != http.StatusOK {
			t.Errorf("%s: %d", path, code)
		}
	}
	want := []string{"token t", "u get nodes/pods n1", "u get nodes/healthz n1", "u get nodes/proxy n1"}
	if !slices.Equal(api.asked, want) {
		t.Errorf("asked %q", api.asked)
	}
}

func TestAPathThatLeadsElsewhereIsRefused(t *testing.T) {
	api, ca := newFakeAPI(t), newAuthority(t, "ca")
	api.rules["system:masters"] = []string{"* *"}
	_, server := open(t, options(t, ca, api.client(t), io.Discard))
	admin := identity{cert: ca.client("admin", time.Now().Add(hour), "system:masters")}
	for _, path := range []string{"/metrics/../exec/ns/p/c", "/metrics%2f..%2fexec", "/metrics//x", "/metrics/./x", "//exec"} {
		if code, _ := ask(t, server, admin, "GET", path); code != http.StatusBadRequest {
			t.Errorf("%s: %d", path, code)
		}
		if code, _ := ask(t, server, identity{}, "GET", path); code != http.StatusUnauthorized {
			t.Errorf("%s without credentials: %d", path, code)
		}
	}
}

func TestAnonymousAndAlwaysAllow(t *testing.T) {
	api, ca := newFakeAPI(t), newAuthority(t, "ca")
	o := options(t, ca, api.client(t), io.Discard)
	o.Authentication.Anonymous.Enabled = ptr.To(true)
	_, server := open(t, o)
	want := "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[metrics])\n"
	if code, text := ask(t, server, identity{}, "GET", "/metrics"); code != http.StatusForbidden || text != want {
		t.Errorf("%d %q", code, text)
	}
	if code, _ := ask(t, server, identity{token: "unknown"}, "GET", "/metrics"); code != http.StatusUnauthorized {
		t.Errorf("a wrong token is taken for none: %d", code)
	}
	o.Authorization.Mode, o.Tokens, o.Rights = kubeletconfig.KubeletAuthorizationModeAlwaysAllow, nil, nil
	_, server = open(t, o)
	if code, _ := ask(t, server, identity{}, "GET", "/metrics"); code != http.StatusOK {
		t.Errorf("AlwaysAllow: %d", code)
	}
}

// Without an API server every client is rejected.
func TestNobodyToAsk(t *testing.T) {
	ca := newAuthority(t, "ca")
	o := options(t, ca, nil, io.Discard)
	admin := identity{cert: ca.client("admin", time.Now().Add(hour), "system:masters")}
	_, server := open(t, o)
	if code, _ := ask(t, server, admin, "GET", "/metrics"); code != http.StatusUnauthorized {
		t.Errorf("%d", code)
	}
	o.Authentication.X509.ClientCAFile = ""
	o.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeAlwaysAllow
	_, server = open(t, o)
	if code, _ := ask(t, server, admin, "GET", "/metrics"); code != http.StatusUnauthorized {
		t.Errorf("%d", code)
	}
}

// An unavailable API server admits no client, and the log reports it without the token.
func TestNoAnswer(t *testing.T) {
	api, ca := newFakeAPI(t), newAuthority(t, "ca")
	var log bytes.Buffer
	_, server := open(t, options(t, ca, api.client(t), &log))
	api.mu.Lock()
	api.broken = http.StatusForbidden
	api.mu.Unlock()
	for range 2 {
		if code, _ := ask(t, server, identity{token: "s3cr3t"}, "GET", "/metrics"); code != http.StatusServiceUnavailable {
			t.Errorf("a token: %d", code)
		}
	}
	admin := identity{cert: ca.client("admin", time.Now().Add(hour), "system:masters")}
	want := "Authorization error (user=admin, verb=get, resource=nodes, subresource=metrics)"
	if code, text := ask(t, server, admin, "GET", "/metrics"); code != http.StatusInternalServerError || text != want {
		t.Errorf("a right: %d %q", code, text)
	}
	if s := log.String(); strings.Contains(s, "s3cr3t") || strings.Count(s, "level=WARN") != 2 ||
		!strings.Contains(s, "does not allow it (403 Forbidden)") {
		t.Errorf("logged: %s", s)
	}
	api.mu.Lock()
	api.broken, api.rules["system:masters"] = 0, []string{"* *"}
	api.mu.Unlock()
	if code, _ := ask(t, server, admin, "GET", "/metrics"); code != http.StatusOK {
		t.Errorf("the failure is remembered: %d", code)
	}
}

// Only a certificate of the client CA proves the client's identity.
func TestProven(t *testing.T) {
	ca, other := newAuthority(t, "ca"), newAuthority(t, "other")
	a, _ := open(t, options(t, ca, newFakeAPI(t).client(t), io.Discard))
	for name, want := range map[string]bool{"ours": true, "another's": false, "expired": false, "none": false} {
		r := httptest.NewRequest(http.MethodGet, "/pods", nil)
		r.TLS = &tls.ConnectionState{}
		until, signer := time.Now().Add(hour), ca
		switch name {
		case "another's":
			signer = other
		case "expired":
			until = time.Now().Add(-hour)
		}
		if name != "none" {
			leaf, err := x509.ParseCertificate(signer.client("admin", until).Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			r.TLS.PeerCertificates = []*x509.Certificate{leaf}
		}
		if got := a.Proven(r); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A replaced client CA applies from then on, and the previous one no longer.
func TestTheClientCAIsReadAgain(t *testing.T) {
	api, before, after := newFakeAPI(t), newAuthority(t, "before"), newAuthority(t, "after")
	api.rules["system:masters"] = []string{"* *"}
	o := options(t, before, api.client(t), io.Discard)
	a, server := open(t, o)
	old := identity{cert: before.client("admin", time.Now().Add(hour), "system:masters")}
	young := identity{cert: after.client("admin", time.Now().Add(hour), "system:masters")}
	if code, _ := ask(t, server, old, "GET", "/metrics"); code != http.StatusOK {
		t.Fatalf("%d", code)
	}
	pool := a.ClientCAs()
	next := o.Authentication.X509.ClientCAFile + ".next"
	if err := os.WriteFile(next, after.pem(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, o.Authentication.X509.ClientCAFile); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for a.ClientCAs().Equal(pool) {
		select {
		case <-ctx.Done():
			t.Fatal("the file is not read again")
		case <-time.After(10 * time.Millisecond):
		}
	}
	if code, _ := ask(t, server, young, "GET", "/metrics"); code != http.StatusOK {
		t.Errorf("the new CA: %d", code)
	}
	if code, _ := ask(t, server, old, "GET", "/metrics"); code != http.StatusUnauthorized {
		t.Errorf("the old CA: %d", code)
	}
}

func TestClientCA_UnreadableFileIsNamed(t *testing.T) {
	o := options(t, newAuthority(t, "ca"), nil, io.Discard)
	o.Authentication.X509.ClientCAFile = "/nowhere/ca.crt"
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "authentication.x509.clientCAFile: /nowhere/ca.crt") {
		t.Errorf("%v", err)
	}
}

// rightsOf is an authorizer that allows all, and records the remaining time.
type rightsOf struct {
	authorizer.Authorizer
	left time.Duration
}

func (r *rightsOf) Authorize(ctx context.Context, _ authorizer.Attributes) (authorizer.Decision, string, error) {
	until, _ := ctx.Deadline()
	r.left = time.Until(until)
	return authorizer.DecisionAllow, "", nil
}

// The whole check has a single deadline.
func TestTheReviewOfRightsHasADeadline(t *testing.T) {
	ca := newAuthority(t, "ca")
	a, server := open(t, options(t, ca, newFakeAPI(t).client(t), io.Discard))
	rights := &rightsOf{}
	a.may = rights
	code, text := ask(t, server, identity{cert: ca.client("admin", time.Now().Add(hour))}, http.MethodGet, "/pods")
	if code != http.StatusOK || rights.left == 0 || rights.left > reviewTimeout {
		t.Errorf("%d %s, and %v was left", code, text, rights.left)
	}
}

// Tokens of unknown clients and rights of known ones are reviewed through separate clients.
func TestReviewsOfTokensAndRightsShareNoClient(t *testing.T) {
	ca, tokens, rights := newAuthority(t, "ca"), newFakeAPI(t), newFakeAPI(t)
	tokens.tokens["t"] = authenticationv1.UserInfo{Username: "admin"}
	rights.rules["admin"] = []string{"* *"}
	o := options(t, ca, tokens.client(t), io.Discard)
	o.Rights = rights.client(t)
	_, server := open(t, o)
	if code, text := ask(t, server, identity{token: "t"}, http.MethodGet, "/pods"); code != http.StatusOK {
		t.Errorf("%d %s", code, text)
	}
	if code, text := ask(t, server, identity{token: "none"}, http.MethodGet, "/pods"); code != http.StatusUnauthorized {
		t.Errorf("%d %s", code, text)
	}
	if !slices.Equal(tokens.asked, []string{"token t", "token none"}) || len(rights.asked) != 1 || strings.HasPrefix(rights.asked[0], "token") {
		t.Errorf("asked about tokens: %v, about rights: %v", tokens.asked, rights.asked)
	}
}

// Reviews are cached for a time that stands still in a suspension of the machine. After it all are made again.
func TestReviews_Suspended(t *testing.T) {
	api := newFakeAPI(t)
	api.tokens["t"] = authenticationv1.UserInfo{Username: "admin"}
	api.rules["admin"] = []string{"* *"}
	a, server := open(t, options(t, newAuthority(t, "ca"), api.client(t), io.Discard))
	asleep := time.Duration(0)
	a.asleep = func() time.Duration { return asleep }
	get := func(want, reviews int) {
		t.Helper()
		if code, text := ask(t, server, identity{token: "t"}, http.MethodGet, "/pods"); code != want || len(api.asked) != reviews {
			t.Errorf("%d %s after %d reviews (%v), want %d after %d", code, text, len(api.asked), api.asked, want, reviews)
		}
	}
	get(http.StatusOK, 2)
	get(http.StatusOK, 2)
	delete(api.tokens, "t")
	asleep = time.Hour
	get(http.StatusUnauthorized, 3)
	get(http.StatusUnauthorized, 3)
}
