// Package streams is the streaming server of a simulated runtime, over SPDY.
package streams

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// Server starts with the first URL that it returns. The zero value is ready for use. It is safe for concurrent use.
type Server struct {
	wg sync.WaitGroup // open streams

	mu      sync.Mutex
	server  *httptest.Server
	given   int
	pending map[string]pendingStream // by the path of a returned URL, which can be used once
}

// pendingStream is a process to run once the client has opened the number of streams, or ports to echo if run is nil.
type pendingStream struct {
	streams int
	run     func(map[string]httpstream.Stream)
}

// Run returns a URL for a process: run receives the streams, by kind, once the client has opened that number.
func (s *Server) Run(streams int, run func(map[string]httpstream.Stream)) string {
	return s.url(pendingStream{streams, run})
}

// Echo returns a URL at which every port echoes its input.
func (s *Server) Echo() string { return s.url(pendingStream{}) }

func (s *Server) url(a pendingStream) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		s.server, s.pending = httptest.NewServer(http.HandlerFunc(s.serve)), map[string]pendingStream{}
	}
	s.given++
	path := "/" + strconv.Itoa(s.given)
	s.pending[path] = a
	return s.server.URL + path
}

// serve opens the requested streams, and ends with the connection.
func (s *Server) serve(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	a, found := s.pending[req.URL.Path]
	delete(s.pending, req.URL.Path)
	s.mu.Unlock()
	if !found {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("X-Stream-Protocol-Version", req.Header.Get("X-Stream-Protocol-Version"))
	opened := make(chan httpstream.Stream)
	var conn httpstream.Connection
	ready := make(chan struct{})
	conn = spdy.NewResponseUpgrader().UpgradeResponse(w, req, func(one httpstream.Stream, answered <-chan struct{}) error {
		s.wg.Go(func() { // a stream may only be used after its opening was answered
			<-answered
			<-ready
			if a.run == nil {
				if one.Headers().Get("streamType") == "data" {
					_, _ = io.Copy(one, one)
				}
				_ = one.Close()
				return
			}
			select {
			case opened <- one:
			case <-conn.CloseChan():
			}
		})
		return nil
	})
	close(ready)
	if conn == nil {
		return // the upgrader has replied
	}
	defer conn.Close() //nolint:errcheck // it may be closed
	by := map[string]httpstream.Stream{}
	for len(by) < a.streams {
		select {
		case one := <-opened:
			by[one.Headers().Get("streamType")] = one
		case <-conn.CloseChan():
			return
		}
	}
	if a.run != nil {
		a.run(by)
	}
	<-conn.CloseChan() // the client has read the stream
}

// Close ends all streams.
func (s *Server) Close() {
	s.mu.Lock()
	server := s.server
	s.mu.Unlock()
	if server != nil {
		server.Close()
	}
	s.wg.Wait()
}
