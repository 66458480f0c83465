// Package containers is what the admin socket and the node's API share about containers: choosing the one that a request
// means, reading its log, and streams with it (exec, attach, port-forward).
//
// A stream is the runtime's. The agent asks the runtime for the URL of its streaming server and joins the two connections
// itself: who has the URL has the command, so nobody gets it. Logs and streams belong to the process, not to an actor.
//
// What is refused before anything was answered comes back as an error, which each listener puts into its own form.
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

// Runtime is the part of the runtime's client that is needed here; *cri.Client implements it.
type Runtime interface {
	ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	Exec(ctx context.Context, req *runtimeapi.ExecRequest) (url string, err error)
	Attach(ctx context.Context, req *runtimeapi.AttachRequest) (url string, err error)
	PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (url string, err error)
}

const (
	// maxLogs and maxStreams are how many logs are read and how many streams are open at once on one listener. They are shared by
	// client, namespace and pod: of one client, one pod has at most an eighth.
	maxLogs, maxStreams = 512, 512
	// callTimeout bounds one question to the runtime.
	callTimeout = 2 * time.Second
	// writeTimeout bounds the writing of one piece of a log: a client that does not read is let go.
	writeTimeout = 30 * time.Second
)

// Config is what the handlers need.
type Config struct {
	Board   *board.Board // where the pods actor publishes
	Runtime Runtime
	// PodLogsDir has the logs of pods; a link below it is not followed.
	PodLogsDir string
	// CountWebSocket counts a stream over a WebSocket that the agent itself turns into SPDY: "exec", "attach" or "portforward".
	// nil: nothing does.
	CountWebSocket func(subresource string)
	// IdleTimeout ends a stream over which nothing passed for so long; 0: never.
	IdleTimeout time.Duration
	// MaxLogs and MaxStreams are how many logs are read and how many streams are open at once. WriteTimeout bounds the writing of
	// one piece of a log; a client that takes one piece after another has no deadline. A 0 stands for the package's own limit.
	MaxLogs, MaxStreams int
	WriteTimeout        time.Duration
	Log                 *slog.Logger // nil: discards
}

// Handlers answer requests about containers, for any listener: whoever asks has been let in by then. Safe for concurrent use.
type Handlers struct {
	conf          Config
	logs, streams *shares.Limit
}

// New prepares the handlers.
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

// Open returns how many logs are being read and how many streams are open.
func (h *Handlers) Open() (logs, streams int) { return h.logs.Held(), h.streams.Held() }

// Error is why a request is refused, with the HTTP status that says so.
type Error struct {
	Status int
	Text   string
}

// Error implements error.
func (e *Error) Error() string { return e.Text }

// StatusOf is the HTTP status that an error is answered with.
func StatusOf(err error) int {
	if refused, ok := errors.AsType[*Error](err); ok {
		return refused.Status
	}
	return http.StatusInternalServerError
}

// JSON answers with a value. A failure to write means that nobody reads it any more.
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
