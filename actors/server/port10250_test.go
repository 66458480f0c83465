package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/server/nodeapi"
	"github.com/playlet-dev/playlet/config"
)

// certificate returns a self-signed certificate.
func certificate(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// byName admits clients with a certificate of this name.
func byName(name string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || r.TLS.PeerCertificates[0].Subject.CommonName != name {
				http.Error(w, "Unauthorized", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// nodeRig returns a rig with the node's API on both of its ports, and their addresses.
func nodeRig(t *testing.T, change func(*NodeAPI), more ...func(*Config)) (r *rig, secure, readOnly string) {
	t.Helper()
	own := certificate(t, "server")
	each := func(*tls.ClientHelloInfo) (*tls.Config, error) { // like a certificate that is read again when it changes
		return &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequestClientCert, NextProtos: []string{"http/1.1"}}, nil
	}
	node := &NodeAPI{
		Config:  nodeapi.Config{Kubelet: &config.KubeletConfiguration{}, Kubernetes: "1.36.3", SystemLogs: t.TempDir()},
		Address: "127.0.0.1", ReadOnlyAddress: "127.0.0.1", Port: 10250, ReadOnlyPort: 10255, TLS: &tls.Config{GetConfigForClient: each}, Filter: byName("friend"),
	}
	if change != nil {
		change(node)
	}
	r = newRig(t, func(c *Config) {
		c.Node = node
		for _, m := range more {
			m(c)
		}
	})
	for _, e := range r.listeners.ends[1:] {
		e.opener, e.conns = tcpOpener("127.0.0.1:0"), 8
	}
	if err := r.listeners.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.listeners.Attach(r.tree)
	r.board.Publish(board.Snapshot{})
	ends := r.listeners.ends[1:]
	if len(ends) == 2 {
		secure = ends[0].serving.listener.Addr().String()
	}
	return r, secure, ends[len(ends)-1].serving.listener.Addr().String()
}

// ask makes a TLS request with a certificate of this name, or without one if it is empty.
func ask(t *testing.T, address, name, path string, header http.Header) (*http.Response, string) {
	t.Helper()
	conf := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}
	if name != "" {
		conf.Certificates = []tls.Certificate{certificate(t, name)}
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	resp, err := (&http.Transport{TLSClientConfig: conf, DisableKeepAlives: true, ForceAttemptHTTP2: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	text := body(t, resp)
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	return resp, text
}

func TestTheNodesAPIIsServed(t *testing.T) {
	r, secure, readOnly := nodeRig(t, nil)
	if got := r.listeners.NodePort(); got != 10250 {
		t.Errorf("port %d", got)
	}
	for name, want := range map[string]int{"": 401, "stranger": 401, "friend": 200} {
		if resp, text := ask(t, secure, name, "/configz", nil); resp.StatusCode != want || resp.ProtoMajor != 1 {
			t.Errorf("%q: %s %s %s", name, resp.Proto, resp.Status, text)
		}
	}
	if resp, text := ask(t, secure, "friend", "/healthz/syncloop", nil); resp.StatusCode != http.StatusOK || text != "ok" {
		t.Errorf("%s %s", resp.Status, text)
	}
	within(t, r.listeners.ends[1], nodeConns)
	script := "/pods?command=" + strings.Repeat("x", 8*maxHeaderBytes)
	if resp, _ := ask(t, secure, "friend", script, nil); resp.StatusCode != http.StatusOK {
		t.Errorf("a long script: %s", resp.Status)
	}
	for _, e := range r.listeners.ends {
		if got := e.server.MaxHeaderBytes; (got == maxHeaderBytes) == e.secure {
			t.Errorf("%s takes %d bytes of headers", e.name, got)
		}
	}
	for path, want := range map[string]int{"/pods": 200, "/healthz": 200, "/configz": 404, "/metrics": 404} {
		if code, text := public(t, "http://"+readOnly+path); code != want {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
}

// Without a certificate or an authorizer the port stays closed.
func TestAPortThatNobodyGuardsStaysClosed(t *testing.T) {
	for name, change := range map[string]func(*NodeAPI){
		"no certificate": func(n *NodeAPI) { n.TLS = nil }, "no filter": func(n *NodeAPI) { n.Filter = nil },
	} {
		r, secure, _ := nodeRig(t, change)
		if secure != "" || r.listeners.NodePort() != 0 {
			t.Errorf("%s: served on %s", name, secure)
		}
	}
}

// Idle connections, in the handshake or after it, keep no client out and never exceed the limit.
func TestIdleConnectionsDoNotStarveTheNodesAPI(t *testing.T) {
	r, secure, _ := nodeRig(t, nil)
	end := r.listeners.ends[1]
	var idle []net.Conn
	for i := range 64 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", secure)
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, conn)
		if i%8 == 0 {
			client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
			if err := client.HandshakeContext(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if resp, text := ask(t, secure, "friend", "/pods", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("%s %s", resp.Status, text)
	}
	limit := end.serving.listener.(*connLimit)
	limit.mu.Lock()
	open := limit.open
	limit.mu.Unlock()
	if open > 8 {
		t.Errorf("%d connections are open", open)
	}
	if err := idle[0].SetReadDeadline(time.Now().Add(waitLimit)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, idle[0]); errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the oldest connection: %v", err)
	}
	for _, c := range idle {
		_ = c.Close() // possibly closed by the server
	}
}

// Requests under review keep no client out: unknown clients may send as many as there are connections.
func TestAccessReviews_StarveNoOtherRequest(t *testing.T) {
	reviewed := make(chan struct{}, 64)
	_, secure, _ := nodeRig(t, func(n *NodeAPI) {
		n.Filter = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "" { // an API server that does not answer
					reviewed <- struct{}{}
					<-r.Context().Done()
					return
				}
				next.ServeHTTP(w, r)
			})
		}
	})
	for range 16 {
		conn, err := tls.Dial("tcp", secure, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }() // possibly closed by the server
		if _, err := io.WriteString(conn, "GET /pods HTTP/1.1\r\nHost: n\r\nAuthorization: Bearer x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		<-reviewed
	}
	if resp, text := ask(t, secure, "friend", "/pods", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("%s %s", resp.Status, text)
	}
}

// Requests on the read-only port are counted like the others.
func TestRequestsOnTheReadOnlyPortAreCounted(t *testing.T) {
	var counted atomic.Int32
	_, _, readOnly := nodeRig(t, func(n *NodeAPI) {
		n.CountReadOnly = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { counted.Add(1); next.ServeHTTP(w, r) })
		}
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+readOnly+"/pods", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK || counted.Load() != 1 {
		t.Errorf("%v, %s, counted %d times", err, resp.Status, counted.Load())
	}
}
