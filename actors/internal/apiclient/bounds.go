package apiclient

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

const (
	// longestRest bounds a Retry-After of the API server. client-go waits for it within the request, in a list or watch without a
	// limit.
	longestRest = 30 * time.Second
	// maxAnswer limits an answer other than a watch, in bytes.
	maxAnswer = 256 << 20
)

// bounds keeps answers of the API server, or of a proxy before it, within bounds.
type bounds struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounds) RoundTrip(q *http.Request) (*http.Response, error) {
	a, err := b.next.RoundTrip(q)
	if err != nil {
		return nil, err
	}
	if rest, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil {
		a.Header.Set("Retry-After", strconv.Itoa(min(max(rest, 0), int(longestRest.Seconds()))))
	}
	if watch, _ := strconv.ParseBool(q.URL.Query().Get("watch")); !watch && a.Body != nil {
		a.Body = &body{a.Body, maxAnswer}
	}
	return a, nil
}

// WrappedRoundTripper implements net.RoundTripperWrapper of apimachinery, by which client-go finds the transport.
func (b bounds) WrappedRoundTripper() http.RoundTripper { return b.next }

// body ends an answer that is too long with an error.
type body struct {
	io.ReadCloser
	left int64
}

func (b *body) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the answer of the API server is longer than %d MiB", maxAnswer>>20)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
