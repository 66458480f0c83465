package sim

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// streaming is the runtime's streaming server, over SPDY. It is started by the first call that needs it.
type streaming struct {
	server *httptest.Server
	asked  map[string]asked // by the path of a URL that was given out, which is good once
}

// asked is what is to be streamed once the client has opened so many streams; without run, ports.
type asked struct {
	streams int
	run     func(map[string]httpstream.Stream)
}

// Exec gives the URL at which Script.Stream runs a command.
func (s *runtimeService) Exec(ctx context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	url, err := s.r.processURL(ctx, req, req.GetCmd())
	return &runtimeapi.ExecResponse{Url: url}, err
}

// Attach does the same without a command.
func (s *runtimeService) Attach(ctx context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	url, err := s.r.processURL(ctx, req, nil)
	return &runtimeapi.AttachResponse{Url: url}, err
}

// PortForward gives a URL at which every port sends back what it gets.
func (s *runtimeService) PortForward(_ context.Context,
	req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.store.sandboxes[req.GetPodSandboxId()] == nil {
		return nil, errNotFound("failed to find sandbox %q in store", req.GetPodSandboxId())
	}
	return &runtimeapi.PortForwardResponse{Url: r.urlLocked(asked{})}, nil
}

// process is what is asked to stream with a process.
type process interface {
	GetContainerId() string
	GetStdin() bool
	GetStdout() bool
	GetStderr() bool
	GetTty() bool
}

func (r *Runtime) processURL(ctx context.Context, req process, command []string) (string, error) {
	target := callFrom(ctx).target()
	r.mu.Lock()
	defer r.mu.Unlock()
	c, stream := r.store.containers[req.GetContainerId()], r.opts.Script.Stream
	switch {
	case c == nil:
		return "", errNotFound("failed to find container %q in store", req.GetContainerId())
	case !c.running():
		return "", errUnknown("container is in %s state", c.state)
	}
	want := 1 // errors
	for _, open := range []bool{req.GetStdin(), req.GetStdout(), req.GetStderr(), req.GetTty()} {
		if open {
			want++
		}
	}
	return r.urlLocked(asked{want, func(by map[string]httpstream.Stream) {
		result := ExecResult{}
		if stream != nil {
			in := io.Reader(http.NoBody)
			if s := by["stdin"]; s != nil {
				in = s
			}
			result = stream(target, command, in)
		}
		for kind, text := range map[string]string{"stdout": result.Stdout, "stderr": result.Stderr} {
			if s := by[kind]; s != nil {
				_, _ = io.WriteString(s, text) // who does not read it has gone
				_ = s.Close()
			}
		}
		status, _ := json.Marshal(ended(result)) // it is plain data
		_, _ = by["error"].Write(status)
		_ = by["error"].Close()
	}}), nil
}

// ended is how a command's end is told on the stream of errors.
func ended(result ExecResult) *metav1.Status {
	switch {
	case result.Err != nil:
		return &metav1.Status{Status: metav1.StatusFailure, Message: result.Err.Error()}
	case result.Code != 0:
		return &metav1.Status{Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Details: &metav1.StatusDetails{
			Causes: []metav1.StatusCause{{Type: "ExitCode", Message: strconv.Itoa(int(result.Code))}},
		}}
	}
	return &metav1.Status{Status: metav1.StatusSuccess}
}

func (r *Runtime) urlLocked(a asked) string {
	if r.streaming.server == nil {
		r.streaming = streaming{httptest.NewServer(http.HandlerFunc(r.serveStreams)), map[string]asked{}}
	}
	path := "/" + r.newIDLocked()
	r.streaming.asked[path] = a
	return r.streaming.server.URL + path
}

// serveStreams opens the streams that were asked for, and ends with the connection.
func (r *Runtime) serveStreams(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	a, found := r.streaming.asked[req.URL.Path]
	delete(r.streaming.asked, req.URL.Path)
	r.mu.Unlock()
	if !found {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("X-Stream-Protocol-Version", req.Header.Get("X-Stream-Protocol-Version"))
	opened := make(chan httpstream.Stream)
	var conn httpstream.Connection
	ready := make(chan struct{})
	conn = spdy.NewResponseUpgrader().UpgradeResponse(w, req, func(s httpstream.Stream, answered <-chan struct{}) error {
		r.wg.Go(func() { // a stream is used when its opening was answered
			<-answered
			<-ready
			if a.run == nil {
				if s.Headers().Get("streamType") == "data" {
					_, _ = io.Copy(s, s)
				}
				_ = s.Close()
				return
			}
			select {
			case opened <- s:
			case <-conn.CloseChan():
			}
		})
		return nil
	})
	close(ready)
	if conn == nil {
		return // the upgrader has answered
	}
	defer conn.Close() //nolint:errcheck // it may be closed
	by := map[string]httpstream.Stream{}
	for len(by) < a.streams {
		select {
		case s := <-opened:
			by[s.Headers().Get("streamType")] = s
		case <-conn.CloseChan():
			return
		}
	}
	if a.run != nil {
		a.run(by)
	}
	<-conn.CloseChan() // the client has read it
}

// closeStreams ends what streams.
func (r *Runtime) closeStreams() {
	r.mu.Lock()
	server := r.streaming.server
	r.mu.Unlock()
	if server != nil {
		server.Close()
	}
}
