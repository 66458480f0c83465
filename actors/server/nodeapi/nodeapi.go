package nodeapi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/shares"
	"github.com/playlet-dev/playlet/actors/server/containers"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/stall"
)

// Runtime is the required part of the runtime's client; *cri.Client implements it.
type Runtime interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (cri.ExecResult, error)
	CheckpointContainer(ctx context.Context, id, location string, timeout int64) error
}

// Config has the dependencies of the handlers.
type Config struct {
	Board      *board.Board // published by the pods actor
	Containers *containers.Handlers
	Runtime    Runtime
	Healthz    http.Handler
	// Figures serves /stats, /spec and /metrics and the paths below; nil disables them.
	Figures http.Handler
	// Manifests serves /manifests and the paths below; nil disables submissions.
	Manifests http.Handler
	// Kubelet is the configuration: it enables handlers, and /configz shows it. Secrets are masked. Read-only.
	Kubelet *config.KubeletConfiguration
	// CgroupDriver returns the runtime's cgroup driver for /configz; empty or nil: unknown.
	CgroupDriver func() string
	// Flags are the flags of the command line with their values, for /flagz. Secrets are masked.
	Flags map[string]string
	// Kubernetes is the release of the API, "1.36.3", for /statusz.
	Kubernetes string
	// SystemLogs is the folder served at /logs/; CheckpointDir is created for /checkpoint.
	SystemLogs, CheckpointDir string
	// SetVerbosity changes the log's verbosity.
	SetVerbosity func(int)
	Log          *slog.Logger
}

const (
	// shortTimeout bounds a request and its answer that only have to be read and written.
	shortTimeout = 30 * time.Second
	// queueTimeout is the part of it for waiting: the rest is for the answer.
	queueTimeout = 10 * time.Second
	// longTimeout bounds work that is large or has a duration from the client: profiles, a command of /run, a checkpoint. It also
	// ends a search of the system's logs that finds nothing for this time.
	longTimeout = 5 * time.Minute
	// maxBody limits the body of a request, in bytes.
	maxBody = 1 << 20
)

// api are the handlers.
type api struct {
	conf  Config
	mux   *http.ServeMux
	paths []string      // as /statusz lists them
	slow  *shares.Limit // slow requests
	short *shares.Limit // requests with answers made in memory
	sends *shares.Limit // such answers while their clients take them
}

const (
	// maxSlow limits the concurrent requests that may take minutes.
	maxSlow = 32
	// maxShort limits the big answers and requests in memory: on a crowded node they have megabytes.
	maxShort = 8
	// maxWaiting limits the waiting requests.
	maxWaiting = 256
	// maxSends limits the answers kept for clients that read slowly.
	maxSends = 32
)

func newAPI(conf Config) *api {
	conf.Log = cmp.Or(conf.Log, slog.New(slog.DiscardHandler))
	return &api{conf: conf, mux: http.NewServeMux(), slow: shares.New("slow requests", maxSlow),
		short: shares.NewQueue("requests", maxShort, maxWaiting), sends: shares.New("answers being sent", maxSends)}
}

// ReadOnly serves port 10255: all paths readable without credentials. Changes are impossible, such as DELETE /metrics/slis on the
// other port.
func ReadOnly(conf Config) http.Handler {
	a := newAPI(conf)
	a.readOnly()
	return plainPaths(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead ||
			r.Method == http.MethodPost && r.URL.Path == "/stats/summary" // the kubelet accepts it
		if _, pattern := a.mux.Handler(r); !reads && pattern != "" {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
			return
		}
		a.mux.ServeHTTP(w, r)
	}))
}

// New serves port 10250.
func New(conf Config) http.Handler {
	a := newAPI(conf)
	a.readOnly()
	if conf.Manifests != nil {
		a.handle("/manifests", a.bounded(conf.Manifests))
		a.handle("/manifests/", a.bounded(conf.Manifests))
	}
	k := conf.Kubelet
	if !ptr.Deref(k.EnableDebuggingHandlers, true) {
		off := disabled("Debug endpoints are disabled.")
		for _, p := range []string{
			"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/", "/debug/pprof/", "/logs/",
		} {
			a.handle(p, off)
		}
		return plainPaths(a.mux)
	}
	const pod, uid, container = "/{namespace}/{pod}", "/{uid}", "/{container}"
	a.handle("/containerLogs"+pod+container, only(a.containerLogs, http.MethodGet))
	for _, pod := range []string{pod, pod + uid} {
		a.handle("/exec"+pod+container, a.stream(true, conf.Containers.Exec))
		a.handle("/attach"+pod+container, a.stream(false, conf.Containers.Attach))
		a.handle("/portForward"+pod, only(a.portForward, http.MethodGet, http.MethodPost))
		a.handle("/run"+pod+container, a.slowly(only(a.run, http.MethodPost)))
	}
	a.handle("/checkpoint"+pod+container, a.slowly(only(a.checkpoint, http.MethodPost)))
	a.handle("/runningpods/{$}", a.bounded(only(a.runningPods, http.MethodGet)))
	a.handle("/configz", a.bounded(only(a.configz, http.MethodGet)))
	a.systemLogs()
	a.debug()
	a.zpages() // last: it lists the paths
	return plainPaths(a.mux)
}

// readOnly adds the handlers of both ports.
func (a *api) readOnly() {
	a.handle("/healthz", within(shortTimeout, a.conf.Healthz))
	a.handle("/healthz/", within(shortTimeout, a.conf.Healthz))
	a.handle("/pods", a.bounded(only(a.pods, http.MethodGet)))
	a.handle("/pods/{$}", a.bounded(only(a.pods, http.MethodGet)))
	if a.conf.Figures != nil {
		for _, p := range []string{"/stats", "/stats/", "/spec", "/spec/", "/metrics", "/metrics/"} {
			a.handle(p, a.bounded(a.conf.Figures))
		}
	}
}

func (a *api) handle(pattern string, h http.Handler) {
	a.mux.Handle(pattern, h)
	shown, _, _ := strings.Cut(pattern, "{")
	if !slices.Contains(a.paths, shown) {
		a.paths = append(a.paths, shown)
	}
}

// fallibleHandler is a handler that may return an error before its first output, to answer with.
type fallibleHandler func(w http.ResponseWriter, r *http.Request) error

// only serves the named methods, and rejects others as the kubelet does.
func only(h fallibleHandler, methods ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(methods, r.Method) {
			w.Header().Set("Allow", strings.Join(methods, ", "))
			http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if err := h(w, r); err != nil {
			fail(w, err)
		}
	})
}

func fail(w http.ResponseWriter, err error) {
	status := containers.StatusOf(err)
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(int(queueTimeout.Seconds())))
	}
	http.Error(w, err.Error(), status)
}

func refuse(status int, text string) error { return &containers.Error{Status: status, Text: text} }

func disabled(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, http.StatusMethodNotAllowed) })
}

// within sets a request's deadline: for its processing, for its body, and for the client to read the answer.
func within(limit time.Duration, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		until := time.Now().Add(limit)
		control := http.NewResponseController(w)
		_ = errors.Join(control.SetReadDeadline(until), control.SetWriteDeadline(until)) // not supported by a test's recorder
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// bounded is within for answers made in memory: a request waits for its turn. A client that reads slowly holds up no turn.
func (a *api) bounded(h http.Handler) http.Handler {
	return within(shortTimeout, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wait, cancel := context.WithTimeout(r.Context(), queueTimeout)
		defer cancel()
		release, err := a.short.Wait(wait, shares.Client(r))
		if err != nil {
			fail(w, refuse(http.StatusServiceUnavailable, "too many requests are being answered: "+err.Error()))
			return
		}
		out := bufferedResponse{ResponseWriter: w, header: http.Header{}, status: http.StatusOK}
		func() {
			defer release() // also when h panics
			h.ServeHTTP(&out, r)
		}()
		sent, err := a.sends.Take(shares.Client(r))
		if err != nil {
			fail(w, refuse(http.StatusServiceUnavailable, "too many answers wait for slow clients: "+err.Error()))
			return
		}
		defer sent()
		maps.Copy(w.Header(), out.header)
		w.WriteHeader(out.status)
		_, _ = w.Write(out.body.Bytes()) // fails if the client has left
	}))
}

// Bounded limits big answers of another port like those of this one.
func Bounded(h http.Handler) http.Handler { return newAPI(Config{}).bounded(h) }

// bufferedResponse is an answer that is kept in memory.
type bufferedResponse struct {
	http.ResponseWriter
	header http.Header // separate, so that an error has none of it
	status int
	body   bytes.Buffer
}

func (k *bufferedResponse) Header() http.Header         { return k.header }
func (k *bufferedResponse) WriteHeader(status int)      { k.status = status }
func (k *bufferedResponse) Write(p []byte) (int, error) { return k.body.Write(p) }

// Unwrap supports http.ResponseController: a handler may set deadlines.
func (k *bufferedResponse) Unwrap() http.ResponseWriter { return k.ResponseWriter }

// slowly is within for requests that may take minutes, with a limit of their number.
func (a *api) slowly(h http.Handler) http.Handler { return within(longTimeout, a.inSlowSlot(h)) }

func (a *api) inSlowSlot(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys := []string{shares.Client(r)}
		if pod := r.PathValue("pod"); pod != "" {
			keys = append(keys, "namespace "+r.PathValue("namespace"), "pod "+pod)
		}
		release, err := a.slow.Take(keys...)
		if err != nil {
			fail(w, refuse(http.StatusTooManyRequests, err.Error()))
			return
		}
		defer release()
		h.ServeHTTP(w, r)
	})
}

// streaming is slowly for an answer of any size. It has no deadline while the client keeps reading.
func (a *api) streaming(h http.Handler) http.Handler {
	return a.inSlowSlot(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := stall.New(r.Context(), clock.RealClock{}, longTimeout)
		defer cancel()
		control := http.NewResponseController(w)
		h.ServeHTTP(pieceWriter{w, control, ctx}, r.WithContext(ctx))
		end := time.Now().Add(shortTimeout) // for the end of the answer, and an unread request body
		_ = errors.Join(control.SetReadDeadline(end), control.SetWriteDeadline(end))
	}))
}

// pieceWriter is an answer with a deadline for each piece.
type pieceWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	ctx     context.Context // of the request; each piece is progress
}

func (p pieceWriter) Write(data []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(shortTimeout))
	n, err := p.ResponseWriter.Write(data)
	if err == nil {
		stall.Progress(p.ctx, nil)
	}
	return n, err
}

// Unwrap supports http.ResponseController.
func (p pieceWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// plainPaths rejects paths that would be redirected.
func plainPaths(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, c := r.URL.Path, path.Clean(r.URL.Path); strings.Contains(p, "//") || p != c && p != c+"/" {
			http.NotFound(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}
