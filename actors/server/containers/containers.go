// Package containers holds the code for containers shared by the admin socket and the node's API: choosing the container of a
// request, reading its log, and streams (exec, attach, port-forward).
//
// The runtime serves a stream. The agent requests the URL of its streaming server and connects the two ends itself: the URL
// grants the command to anyone who has it, so it is never passed on. Logs and streams belong to the process, not to an actor.
//
// A request that is rejected before the first output returns an error, which each listener converts to its own form.
package containers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/shares"
)

// Runtime is the required part of the runtime's client; *cri.Client implements it.
type Runtime interface {
	ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	Exec(ctx context.Context, req *runtimeapi.ExecRequest) (url string, err error)
	Attach(ctx context.Context, req *runtimeapi.AttachRequest) (url string, err error)
	PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (url string, err error)
}

const (
	// maxLogs and maxStreams limit the logs being read and the open streams on one listener. They are shared by client, namespace
	// and pod: of one client, one pod has at most an eighth.
	maxLogs, maxStreams = 512, 512
	// callTimeout bounds one question to the runtime.
	callTimeout = 2 * time.Second
	// writeTimeout bounds the writing of one piece of a log; a client that does not read is disconnected.
	writeTimeout = 30 * time.Second
)

// Config has the dependencies of the handlers.
type Config struct {
	Board   *board.Board // published by the pods actor
	Runtime Runtime
	// PodLogsDir has the logs of pods; links below it are not followed.
	PodLogsDir string
	// CountWebSocket counts a stream over a WebSocket that the agent itself converts to SPDY: "exec", "attach" or "portforward".
	// May be nil.
	CountWebSocket func(subresource string)
	// IdleTimeout ends a stream without traffic; 0 means never.
	IdleTimeout time.Duration
	// MaxLogs and MaxStreams limit the logs being read and the open streams. WriteTimeout bounds the writing of one piece of a
	// log; a client that keeps reading has no deadline. 0 selects the package's own limit.
	MaxLogs, MaxStreams int
	WriteTimeout        time.Duration
	Log                 *slog.Logger // nil discards
}

// Handlers serve requests about containers for any listener, after authorization. Safe for concurrent use.
type Handlers struct {
	conf          Config
	logs, streams *shares.Limit
}

// New returns the handlers.
func New(conf Config) *Handlers {
	conf.WriteTimeout = cmp.Or(conf.WriteTimeout, writeTimeout)
	conf.Log = cmp.Or(conf.Log, slog.New(slog.DiscardHandler))
	if conf.CountWebSocket == nil {
		conf.CountWebSocket = func(string) {}
	}
	return &Handlers{
		conf: conf, logs: shares.New("logs that are read", cmp.Or(conf.MaxLogs, maxLogs)),
		streams: shares.New("open streams", cmp.Or(conf.MaxStreams, maxStreams)),
	}
}

// Open returns the number of logs being read and of open streams.
func (h *Handlers) Open() (logs, streams int) { return h.logs.Held(), h.streams.Held() }

// Error is a rejection with its HTTP status.
type Error struct {
	Status int
	Text   string
}

// Error implements error.
func (e *Error) Error() string { return e.Text }

// StatusOf returns the HTTP status of an error.
func StatusOf(err error) int {
	if refused, ok := errors.AsType[*Error](err); ok {
		return refused.Status
	}
	return http.StatusInternalServerError
}

// JSON answers with a value. It ignores write errors, which mean that the client has left.
func JSON(w http.ResponseWriter, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
	return nil
}

func refuse(status int, format string, args ...any) error {
	return &Error{Status: status, Text: fmt.Sprintf(format, args...)}
}

func bad(format string, args ...any) error { return refuse(http.StatusBadRequest, format, args...) }

// take takes a place for a request about a pod.
func take(limit *shares.Limit, r *http.Request, pod *board.Pod) (release func(), err error) {
	release, err = limit.Take(shares.Client(r), "namespace "+pod.Pod.Namespace, "pod "+pod.Pod.Name)
	if err != nil {
		return nil, refuse(http.StatusTooManyRequests, "%v", err)
	}
	return release, nil
}
