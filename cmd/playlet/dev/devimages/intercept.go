package devimages

import (
	"crypto/subtle"
	"net/http"
	"strings"
	"time"
)

// Fault is the effect of Intercept on one request. The zero value has none.
type Fault struct {
	// Delay is waited first; it ends early when the client goes away.
	Delay time.Duration
	// Until, if set, is waited for too: closing it releases the request. It ends early likewise.
	Until <-chan struct{}
	// Status, if not 0, is answered in place of the registry's own answer (429 and 503 are retried by some clients).
	Status int
	// Cut drops the connection without an answer.
	Cut bool
}

// Request is one request with a complete or partial answer.
type Request struct {
	Method string
	Path   string
	// Status is the HTTP status, 0 where the connection was cut.
	Status int
}

// keptRequests bounds the request log; the oldest half is forgotten beyond it.
const keptRequests = 20_000

// Intercept makes f decide the fate of every request from now on; nil ends that. f is called from the server's
// goroutines, several at once, before the request is checked or logged, and must not call methods of the Registry.
func (r *Registry) Intercept(f func(*http.Request) Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.intercept = f
}

// Protect asks for HTTP basic authentication from now on; an empty user ends that.
func (r *Registry) Protect(user, password string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.user, r.password = user, password
}

// Requests gives the requests answered since the start or the last Forget, in the order of their answers.
func (r *Registry) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Request(nil), r.requests...)
}

// Forget empties the log of requests.
func (r *Registry) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = nil
}

// Pulls counts how often name (repository[:tag]) was resolved: containerd asks for a tag's digest once a pull, by
// HEAD, and for everything else by digest.
func (r *Registry) Pulls(name string) int {
	repo, tag := split(name)
	path := "/v2/" + repo + "/manifests/" + tag
	n := 0
	for _, req := range r.Requests() {
		if req.Method == http.MethodHead && req.Path == path {
			n++
		}
	}
	return n
}

// BlobReads counts the GET requests for blobs (layers and configurations) of a repository.
func (r *Registry) BlobReads(repo string) int {
	n := 0
	for _, req := range r.Requests() {
		if req.Method == http.MethodGet && strings.HasPrefix(req.Path, "/v2/"+repo+"/blobs/") {
			n++
		}
	}
	return n
}

func (r *Registry) serve(w http.ResponseWriter, req *http.Request) {
	seen := &notingWriter{ResponseWriter: w, note: func(status int) { r.note(req, status) }}
	r.mu.Lock()
	intercept, user, password := r.intercept, r.user, r.password
	r.mu.Unlock()

	var fault Fault
	if intercept != nil {
		fault = intercept(req)
	}
	if !wait(req, fault) || fault.Cut {
		r.note(req, 0)
		panic(http.ErrAbortHandler) // net/http's way to drop a connection
	}
	switch {
	case fault.Status != 0:
		http.Error(seen, http.StatusText(fault.Status), fault.Status)
	case user != "" && !authorized(req, user, password):
		seen.Header().Set("WWW-Authenticate", `Basic realm="playlet"`)
		http.Error(seen, "unauthorized", http.StatusUnauthorized)
	default:
		r.store.ServeHTTP(seen, req)
	}
}

// wait holds a request back; it gives false when the client, or the registry, went away meanwhile.
func wait(req *http.Request, fault Fault) bool {
	if fault.Delay > 0 {
		timer := time.NewTimer(fault.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-req.Context().Done():
			return false
		}
	}
	if fault.Until != nil {
		select {
		case <-fault.Until:
		case <-req.Context().Done():
			return false
		}
	}
	return true
}

func authorized(req *http.Request, user, password string) bool {
	gotUser, gotPassword, ok := req.BasicAuth()
	return ok && subtle.ConstantTimeCompare([]byte(gotUser), []byte(user))&
		subtle.ConstantTimeCompare([]byte(gotPassword), []byte(password)) == 1
}

func (r *Registry) note(req *http.Request, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.requests) >= keptRequests {
		r.requests = append([]Request(nil), r.requests[keptRequests/2:]...)
	}
	r.requests = append(r.requests, Request{Method: req.Method, Path: req.URL.Path, Status: status})
}

// notingWriter reports the status before the client can see it, so that the log has each answered request.
type notingWriter struct {
	http.ResponseWriter
	note  func(status int)
	noted bool
}

func (w *notingWriter) WriteHeader(status int) {
	if !w.noted {
		w.noted = true
		w.note(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *notingWriter) Write(p []byte) (int, error) {
	if !w.noted {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}
