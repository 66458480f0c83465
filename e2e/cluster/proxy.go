package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/playlet-dev/playlet/e2e/isolate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Proxy stands between nodes and the server and causes faults. It ends TLS with the authority of the cluster, and names the
// client to the server as an authenticating proxy does, so that the server sees the node. It cuts the connection of a request
// that the server does not answer because it is down. Its methods may be called at any time, from several goroutines.
type Proxy struct {
	// URL is used in a kubeconfig instead of the server's.
	URL string

	listener net.Listener
	server   *http.Server
	gate     *gate

	mu     sync.Mutex
	delay  time.Duration
	answer func(*http.Request) int
	refuse bool
	conns  map[net.Conn]bool
	passed int
	failed int
}

// Proxy starts a proxy that passes everything on, and ends with the test.
func (c *Cluster) Proxy(t TB) *Proxy {
	t.Helper()
	p, err := c.newProxy()
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	t.Cleanup(func() {
		p.Thaw()
		if err := p.server.Close(); err != nil {
			t.Errorf("proxy: %v", err)
		}
	})
	return p
}

func (c *Cluster) newProxy() (*Proxy, error) {
	listener, err := net.Listen("tcp", isolate.NodeIP+":0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{URL: "https://" + listener.Addr().String(), gate: newGate(), conns: map[net.Conn]bool{}}
	p.listener = &gatedListener{Listener: listener, proxy: p}
	forward, err := c.forward()
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.pki.ca.cert)
	p.server = &http.Server{
		Handler:           p.handler(forward),
		TLSConfig:         &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: roots},
		ErrorLog:          log.New(io.Discard, "", 0), // connections that were cut, on purpose
		ReadHeaderTimeout: waitLimit,
	}
	go func() {
		_ = p.server.ServeTLS(p.listener, c.pki.file("apiserver.crt"), c.pki.file("apiserver.key")) // until it is closed
	}()
	return p, nil
}

// forward sends requests to the server as an authenticating proxy.
func (c *Cluster) forward() (*httputil.ReverseProxy, error) {
	front, err := tls.LoadX509KeyPair(c.pki.file("front-proxy-client.crt"), c.pki.file("front-proxy-client.key"))
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(c.URL())
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.pki.ca.cert)
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("X-Remote-User")
			r.Out.Header.Del("X-Remote-Group")
			if peers := r.In.TLS.PeerCertificates; len(peers) > 0 {
				r.Out.Header.Set("X-Remote-User", peers[0].Subject.CommonName)
				r.Out.Header["X-Remote-Group"] = peers[0].Subject.Organization
			}
		},
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{front}},
			ForceAttemptHTTP2: true,
		},
		FlushInterval: -1, // a watch is passed on as it comes
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}, nil
}

func (p *Proxy) handler(forward http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		delay, code := p.delay, 0
		if p.answer != nil {
			code = p.answer(r)
		}
		if code == 0 {
			p.passed++
		} else {
			p.failed++
		}
		p.mu.Unlock()
		if delay > 0 {
			select {
			case <-time.After(delay):
			case <-r.Context().Done():
				return
			}
		}
		if code == 0 {
			forward.ServeHTTP(w, r)
			return
		}
		answer(w, code)
	})
}

// answer is an error as the server gives one.
func answer(w http.ResponseWriter, code int) {
	w.Header().Set("Content-Type", "application/json")
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(code)
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Message: "the proxy of a test says so", Code: int32(code),
		Reason: map[int]metav1.StatusReason{
			http.StatusUnauthorized: metav1.StatusReasonUnauthorized, http.StatusForbidden: metav1.StatusReasonForbidden,
			http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusConflict: metav1.StatusReasonConflict,
			http.StatusGone: metav1.StatusReasonExpired, http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
			http.StatusInternalServerError: metav1.StatusReasonInternalError,
			http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
		}[code],
	}
	_ = json.NewEncoder(w).Encode(status) // to a client that may have gone
}

// Delay delays every further request before it is passed on or answered. Open watches are not delayed.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Answer answers every further request with that HTTP status, 429 with Retry-After of a second; with 0 requests are passed on
// again. Open watches continue: see Cut.
func (p *Proxy) Answer(code int) { p.AnswerWhere(func(*http.Request) int { return code }) }

// AnswerWhere asks a function for each further request; it gives an HTTP status, or 0 for a request that is passed on.
// It is called for one request at a time.
func (p *Proxy) AnswerWhere(code func(*http.Request) int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = code
}

// Counts gives how many requests were passed on and how many were answered otherwise, watches too.
func (p *Proxy) Counts() (passed, failed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed, p.failed
}

// Cut closes all connections with their requests in progress. New ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close() // closed already
	}
}

// Refuse closes all connections, and every new one at once, until Admit.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	p.refuse = true
	p.mu.Unlock()
	p.Cut()
}

// Admit undoes Refuse.
func (p *Proxy) Admit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = false
}

// Freeze lets nothing through in either direction until Thaw, while connections stay and new ones are taken, as a
// network does that swallows packets.
func (p *Proxy) Freeze() { p.gate.shut() }

// Thaw undoes Freeze: delayed data arrives.
func (p *Proxy) Thaw() { p.gate.open() }
