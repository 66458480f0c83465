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

// Runtime is the part of the runtime's client that is needed here; *cri.Client implements it.
type Runtime interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (cri.ExecResult, error)
	CheckpointContainer(ctx context.Context, id, location string, timeout int64) error
}

// Config is what the handlers need.
type Config struct {
	Board      *board.Board // where the pods actor publishes
	Containers *containers.Handlers
	Runtime    Runtime
	Healthz    http.Handler
	// Figures is the handler of /stats, /spec and /metrics and what is below them; nil: nothing serves them.
	Figures http.Handler
	// Manifests is the handler of /manifests and what is below it; nil: nothing is submitted here.
	Manifests http.Handler
	// Kubelet is the configuration: its switches say which handlers there are, and /configz shows it. Secrets
	// are masked. Only read.
	Kubelet *config.KubeletConfiguration
	// Flags are those of the command line with their values, for /flagz. Secrets are masked.
	Flags map[string]string
	// Kubernetes is the release that is spoken, "1.36.3", for /statusz.
	Kubernetes string
	// SystemLogs is the folder that /logs/ shows; CheckpointDir is made for what /checkpoint writes.
	SystemLogs, CheckpointDir string
	// SetVerbosity changes the log's verbosity.
	SetVerbosity func(int)
	Log          *slog.Logger
}

const (
	// shortTimeout bounds a request and its answer that only have to be read and written.
	shortTimeout = 30 * time.Second
	// queueTimeout is how much of it a request may wait for its turn: the rest is for the answer.
	queueTimeout = 10 * time.Second
	// longTimeout bounds work that is large or has a duration from the client: profiles, a command of /run, a checkpoint. It also
	// ends a search of the system's logs that finds nothing for this time.
	longTimeout = 5 * time.Minute
	// maxBody is what a request may bring, in bytes.
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
	// maxSlow is how many requests that may take minutes are answered at once.
	maxSlow = 32
	// maxShort is how many answers that may be big, or big requests, are in memory at once: those of a crowded node have
	// megabytes.
	maxShort = 8
	// maxWaiting is how many requests wait for their turn.
	maxWaiting = 256
	// maxSends is how many of these answers are kept for clients that are slow to read them.
	maxSends = 32
)

func newAPI(conf Config) *api {
	conf.Log = cmp.Or(conf.Log, slog.New(slog.DiscardHandler))
	return &api{conf: conf, mux: http.NewServeMux(), slow: shares.New("slow requests", maxSlow),
		short: shares.NewQueue("requests", maxShort, maxWaiting), sends: shares.New("answers being sent", maxSends)}
}

// ReadOnly is all that port 10255 answers: what can be read without credentials. Nothing can be changed, as by DELETE
// /metrics/slis on the other port.
func ReadOnly(conf Config) http.Handler {
	a := newAPI(conf)
	a.readOnly()
	return plainPaths(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead ||
			r.Method == http.MethodPost && r.URL.Path == "/stats/summary" // the kubelet takes it
		if _, pattern := a.mux.Handler(r); !reads && pattern != "" {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
			return
		}
		a.mux.ServeHTTP(w, r)
	}))
}

// New is all that port 10250 answers.
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

// readOnly adds what both ports answer.
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

// failing is a handler whose error, which comes before it has answered, is its answer.
type failing func(w http.ResponseWriter, r *http.Request) error

// only serves the methods named, and refuses others as the kubelet does.
func only(h failing, methods ...string) http.Handler {
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

// within gives a request its deadline: for itself, for its body, and for the client to take the answer.
func within(limit time.Duration, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		until := time.Now().Add(limit)
		control := http.NewResponseController(w)
		_ = errors.Join(control.SetReadDeadline(until), control.SetWriteDeadline(until)) // a recorder in a test has none
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// bounded is within for what is made in memory: a request waits for its turn. Its client, which may be slow to read, holds up no
// turn.
func (a *api) bounded(h http.Handler) http.Handler {
	return within(shortTimeout, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wait, cancel := context.WithTimeout(r.Context(), queueTimeout)
		defer cancel()
		release, err := a.short.Wait(wait, shares.Client(r))
		if err != nil {
			fail(w, refuse(http.StatusServiceUnavailable, "too many requests are being answered: "+err.Error()))
			return
		}
		out := kept{ResponseWriter: w, header: http.Header{}, status: http.StatusOK}
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
		_, _ = w.Write(out.body.Bytes()) // it fails where the client is gone
	}))
}

// Bounded is what bounds big answers on this port, for those of another port.
func Bounded(h http.Handler) http.Handler { return newAPI(Config{}).bounded(h) }

// kept is an answer that is kept in memory.
type kept struct {
	http.ResponseWriter
	header http.Header // of its own: that of a refusal has nothing of it
	status int
	body   bytes.Buffer
}

func (k *kept) Header() http.Header         { return k.header }
func (k *kept) WriteHeader(status int)      { k.status = status }
func (k *kept) Write(p []byte) (int, error) { return k.body.Write(p) }

// Unwrap is for http.ResponseController: a handler may set deadlines.
func (k *kept) Unwrap() http.ResponseWriter { return k.ResponseWriter }

// slowly is within for what may take minutes, of which there are not many at once.
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

// streaming is slowly for an answer of any size. It has no deadline while the client takes one piece after another.
func (a *api) streaming(h http.Handler) http.Handler {
	return a.inSlowSlot(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := stall.New(r.Context(), clock.RealClock{}, longTimeout)
		defer cancel()
		control := http.NewResponseController(w)
		h.ServeHTTP(pieces{w, control, ctx}, r.WithContext(ctx))
		end := time.Now().Add(shortTimeout) // of the answer, and of a request body that is not read
		_ = errors.Join(control.SetReadDeadline(end), control.SetWriteDeadline(end))
	}))
}

// pieces is an answer with a deadline for each piece.
type pieces struct {
	http.ResponseWriter
	control *http.ResponseController
	ctx     context.Context // of the request; each piece is its progress
}

func (p pieces) Write(data []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(shortTimeout))
	n, err := p.ResponseWriter.Write(data)
	if err == nil {
		stall.Progress(p.ctx, nil)
	}
	return n, err
}

// Unwrap is for http.ResponseController.
func (p pieces) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// plainPaths refuses paths that would be redirected to another.
func plainPaths(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, c := r.URL.Path, path.Clean(r.URL.Path); strings.Contains(p, "//") || p != c && p != c+"/" {
			http.NotFound(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}
