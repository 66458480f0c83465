package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/server/admin"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Asker is the running tree, as the handlers see it; *supervisors.System is one.
type Asker interface {
	Ask(ctx context.Context, to messages.Address, question any) (any, error)
	Actors() []messages.Address
	KindOf(a messages.Address) supervisors.Kind
	Quarantined() map[messages.Address]messages.ChildQuarantined
	Recorder() *supervisors.Recorder
}

// Config is what is served, and where.
type Config struct {
	// AdminSocket is the absolute path of the unix socket; its folder is made where it is missing.
	AdminSocket string
	// HealthzAddress and HealthzPort are where /healthz is; port 0 switches it off.
	HealthzAddress string
	HealthzPort    int
	// Board is where the pods actor publishes.
	Board *board.Board
	// Runtime is the newest word on the container runtime. It is called from many goroutines and must not wait.
	Runtime func() admin.Runtime
	// Cluster are sentences that say what goes wrong between this node and its cluster; nil on a node of its own. It must not
	// wait.
	Cluster func() []string
	// Probes are sentences on probes that run late; nil: there is no such check. It must not wait.
	Probes func() []string
	// PodLogsDir has the logs of pods; a link below it is not followed.
	PodLogsDir string
	// Containers is asked for the logs of containers.
	Containers Containers
	// Commands is asked to run commands in containers.
	Commands Commands
	// Version is the agent's own, Kubernetes the release that it is tested against.
	Version    string
	Kubernetes string
	Log        *slog.Logger // nil: discards
}

// Listeners are the process's open listeners and streams. They are made before the tree and outlive each actor in it.
// Safe for concurrent use.
type Listeners struct {
	conf   Config
	log    *slog.Logger
	began  time.Time
	ctx    context.Context // ends with Close; each request's context is made from it
	cancel context.CancelFunc
	api    *api
	ends   []*endpoint

	mu    sync.Mutex
	asker Asker
}

// Listener is the state of one listener.
type Listener struct {
	Name  string    `json:"name"`
	Where string    `json:"where"`
	Open  bool      `json:"open"`
	Error string    `json:"error,omitempty"` // why it is not open, once that was tried
	Since time.Time `json:"since,omitzero"`  // of being open
}

const (
	headerTimeout   = 5 * time.Second
	idleTimeout     = time.Minute
	maxHeaderBytes  = 16 << 10
	maxBodyBytes    = 1 << 20
	shutdownTimeout = 2 * time.Second
)

// NewListeners prepares the listeners; none is open before Open is called, by the command or by the actor.
func NewListeners(conf Config) *Listeners {
	l := &Listeners{conf: conf, log: conf.Log, began: time.Now()}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if l.conf.Runtime == nil {
		l.conf.Runtime = func() admin.Runtime { return admin.Runtime{} }
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.api = newAPI(l)
	health := newHealth(l)

	// Another listener is another line here, and a file with its endpoint.
	l.ends = []*endpoint{l.api.endpoint(health)}
	if conf.HealthzPort != 0 {
		l.ends = append(l.ends, health.endpoint())
	}
	for _, e := range l.ends {
		marksBusy(e.server)
		e.server.MaxHeaderBytes = maxHeaderBytes
		e.server.BaseContext = func(net.Listener) context.Context { return l.ctx }
		e.server.ErrorLog = slog.NewLogLogger(l.log.With("listener", e.name).Handler(), slog.LevelWarn)
	}
	return l
}

// Open opens what is not open, and says what cannot be. A command calls it before anything else is started, and gives
// up when the error is ErrInUse: another agent runs. It is safe to call again.
func (l *Listeners) Open(ctx context.Context) error {
	var errs []error
	for _, e := range l.ends {
		errs = append(errs, e.ensure(ctx))
	}
	return errors.Join(errs...)
}

func (l *Listeners) ensure(ctx context.Context) []Listener {
	for _, e := range l.ends {
		if err := e.ensure(ctx); err != nil {
			l.log.Debug("listener is not open", "listener", e.name, "error", err)
		}
	}
	return l.State()
}

// State is that of each listener, at one time.
func (l *Listeners) State() []Listener {
	out := make([]Listener, 0, len(l.ends))
	for _, e := range l.ends {
		out = append(out, e.state())
	}
	return out
}

// Attach gives the handlers the running tree. Before it, what needs an actor is answered with 503.
func (l *Listeners) Attach(a Asker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asker = a
}

func (l *Listeners) tree() Asker {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asker
}

// Close ends every stream, closes every listener and removes the socket. Nothing opens again after it.
func (l *Listeners) Close() error {
	l.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	var errs []error
	for _, e := range l.ends {
		errs = append(errs, e.close(ctx))
	}
	return errors.Join(errs...)
}
