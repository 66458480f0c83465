package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"sync"
	"time"
)

// rootsEvery is the interval at which the file of the API server's certificate authorities is read again, as in client-go for
// connections without a managed certificate. After a server that they do not vouch for, it is read with the next request.
const rootsEvery = 5 * time.Minute

// rotatingTransport is an http.RoundTripper that sends each request on connections with the newest client certificate, to a
// server with a certificate of the newest authorities. Older connections end with their last request. None is cut off, so that no
// request fails because of a rotation.
type rotatingTransport struct {
	certificate func() (*tls.Certificate, error)
	make        func(*tls.Certificate) (*http.Transport, error)
	roots       func() ([]byte, error) // reads the file of the authorities; nil: they are in no file

	mu      sync.Mutex
	pair    *tls.Certificate
	now     *http.Transport
	trusted []byte    // the file for which it was made
	readAt  time.Time // when the file was read; zero: it is to be read
}

func (r *rotatingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	t, err := r.transport()
	if err != nil {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, err
	}
	answer, err := t.RoundTrip(request)
	if _, distrusted := errors.AsType[x509.UnknownAuthorityError](err); distrusted {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.readAt = time.Time{}
	}
	return answer, err
}

func (r *rotatingTransport) transport() (*http.Transport, error) {
	pair, err := r.certificate()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	trusted := r.read()
	same := r.now != nil && r.pair == pair
	if same && bytes.Equal(trusted, r.trusted) {
		return r.now, nil
	}
	next, err := r.make(pair)
	if err != nil && same {
		return r.now, nil //nolint:nilerr // the file is being written: the earlier authorities stay until it can be used
	}
	if err != nil {
		return nil, err
	}
	if r.now != nil {
		r.now.CloseIdleConnections()
	}
	r.pair, r.now, r.trusted = pair, next, trusted
	return next, nil
}

// read returns the present contents of the file of authorities, or the last ones while it is not due or cannot be read. The
// caller holds the lock.
func (r *rotatingTransport) read() []byte {
	if r.roots == nil || !r.readAt.IsZero() && time.Since(r.readAt) < rootsEvery {
		return r.trusted
	}
	r.readAt = time.Now()
	if data, err := r.roots(); err == nil && len(data) > 0 {
		return data
	}
	return r.trusted
}

// CloseIdleConnections is looked for by net/http and client-go.
func (r *rotatingTransport) CloseIdleConnections() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now != nil {
		r.now.CloseIdleConnections()
	}
}
