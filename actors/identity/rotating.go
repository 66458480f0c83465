package identity

import (
	"crypto/tls"
	"net/http"
	"sync"
)

// rotating is an http.RoundTripper that sends each request on connections with the newest client certificate. Connections with
// the one before end when their last request has: none is cut off, so that no request fails by a rotation.
type rotating struct {
	certificate func() (*tls.Certificate, error)
	make        func(*tls.Certificate) (*http.Transport, error)

	mu   sync.Mutex
	pair *tls.Certificate
	now  *http.Transport
}

func (r *rotating) RoundTrip(request *http.Request) (*http.Response, error) {
	t, err := r.transport()
	if err != nil {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, err
	}
	return t.RoundTrip(request)
}

func (r *rotating) transport() (*http.Transport, error) {
	pair, err := r.certificate()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now != nil && r.pair == pair {
		return r.now, nil
	}
	next, err := r.make(pair)
	if err != nil {
		return nil, err
	}
	if r.now != nil {
		r.now.CloseIdleConnections()
	}
	r.pair, r.now = pair, next
	return next, nil
}

// CloseIdleConnections is looked for by net/http and client-go.
func (r *rotating) CloseIdleConnections() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now != nil {
		r.now.CloseIdleConnections()
	}
}
