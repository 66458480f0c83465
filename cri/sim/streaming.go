package sim

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
)

// Exec returns the URL at which Script.Stream runs a command.
func (s *runtimeService) Exec(ctx context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	url, err := s.r.processURL(ctx, req, req.GetCmd())
	return &runtimeapi.ExecResponse{Url: url}, err
}

// Attach does the same without a command.
func (s *runtimeService) Attach(ctx context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	url, err := s.r.processURL(ctx, req, nil)
	return &runtimeapi.AttachResponse{Url: url}, err
}

// PortForward returns a URL at which every port echoes its input.
func (s *runtimeService) PortForward(_ context.Context,
	req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.store.sandboxes[req.GetPodSandboxId()] == nil {
		return nil, errNotFound("failed to find sandbox %q in store", req.GetPodSandboxId())
	}
	return &runtimeapi.PortForwardResponse{Url: r.streams.Echo()}, nil
}

// process is a request to stream with a process.
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
	want := 1 // the error stream
	for _, open := range []bool{req.GetStdin(), req.GetStdout(), req.GetStderr(), req.GetTty()} {
		if open {
			want++
		}
	}
	return r.streams.Run(want, func(by map[string]httpstream.Stream) {
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
				_, _ = io.WriteString(s, text) // fails if the client has left
				_ = s.Close()
			}
		}
		status, _ := json.Marshal(ended(result)) // cannot fail for plain data
		_, _ = by["error"].Write(status)
		_ = by["error"].Close()
	}), nil
}

// ended returns the result of a command in the format of the error stream.
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
