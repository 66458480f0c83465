package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/devices"
	"github.com/playlet-dev/playlet/actors/internal/eventlog"
	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/actors/internal/history"
	"github.com/playlet-dev/playlet/actors/server/admin"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/server/containers"
	"github.com/playlet-dev/playlet/actors/server/healthz"
	"github.com/playlet-dev/playlet/actors/server/observatory"
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

// Config is what is served, and where.
type Config struct {
	// AdminSocket is the absolute path of the unix socket; its folder is made where it is missing.
	AdminSocket string
	// AdminSocketGroup is the name or number of a group that may use it, too; empty: none.
	AdminSocketGroup string
	// HealthzAddress and HealthzPort are where /healthz is; port 0 switches it off.
	HealthzAddress string
	HealthzPort    int
	// Board is where the pods actor publishes.
	Board *board.Board
	// Runtime is the newest word on the container runtime. It is called from many goroutines and must not wait.
	Runtime func() api.Runtime
	// Notes are checks of /healthz beside those of healthz itself.
	Notes []healthz.Note
	// Checked is told the result of each check of /healthz that is made; nil: nobody is told.
	Checked func(check string, healthy bool)
	// PodLogsDir has the logs of pods; a link below it is not followed.
	PodLogsDir string
	// Events are the last ones of this node.
	Events *eventlog.Log
	// CRI is asked for the logs of containers, and for streams with them.
	CRI containers.Runtime
	// StreamIdleTimeout ends a stream over which nothing passed for so long; 0: never. MaxStreams is as containers.Config has it.
	StreamIdleTimeout time.Duration
	// CountWebSocket is containers.Config's, for the node's API.
	CountWebSocket func(subresource string)
	MaxStreams     int
	// WriteTimeout bounds the writing of one line of a stream, or of one piece of a log, and the reading of a body on the admin
	// socket and the observatory's port: who does not go on is let go.
	// 0: half a minute.
	WriteTimeout time.Duration
	// Devices are those of device plugins; nil: there are none, and no pod resources API.
	Devices *devices.Manager
	// Node is the node's API; nil: it is not served.
	Node *NodeAPI
	// Figures is admin.Config's.
	Figures func(ctx context.Context, all bool) api.Figures
	// History is admin.Config's.
	History func(uid string) []history.Series
	// Registered is admin.Config's.
	Registered func() api.Registered
	// RootDir is the agent's --root-dir, to be told.
	RootDir string
	// Chaos breaks actors on purpose; nil: it is not enabled.
	Chaos *chaos.Engine
	// CAdvisor has cAdvisor's pages and API on CAdvisorAddress, "host:port"; nil: they are not served.
	CAdvisor        http.Handler
	CAdvisorAddress string
	// Observatory has the observatory's page; without an address it is on the admin socket alone.
	Observatory Observatory
	// Version is the agent's own, Kubernetes the release that it is tested against.
	Version    string
	Kubernetes string
	Log        *slog.Logger // nil: discards
}

// Observatory is where the observatory is served beside the admin socket.
type Observatory struct {
	Address string // "host:port"; empty: nowhere
	Token   *observatory.Token
}

// Listeners are the process's open listeners and streams. They are made before the tree and outlive each actor in it.
// Safe for concurrent use.
type Listeners struct {
	conf   Config
	log    *slog.Logger
	ctx    context.Context // ends with Close; each request's context is made from it
	cancel context.CancelFunc
	health *healthz.Checks
	ends   []*endpoint
	// Each listener has logs and streams of its own, which is the reserve of the admin socket: clients of the node's API and of
	// the observatory's port do not keep this node's administrator out.
	ofAdmin, ofNode, ofPage *containers.Handlers

	nodePort int
	asker    atomic.Pointer[admin.Tree]
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
	maxHeaderBytes  = 16 << 10         // but port 10250's
	adminConns      = 2048             // more than the logs, streams and watches of the socket
	pageConns       = 512              // likewise, of the observatory's port
	probeTimeout    = 10 * time.Second // for a whole request to /healthz, and its answer
	answerTimeout   = 30 * time.Second // for a request to cAdvisor's port, and for the client to take the answer
	probeConns      = 64
	shutdownTimeout = 2 * time.Second
	pageStreams     = 128 // logs, and as many streams, on the observatory's port
)

// NewListeners prepares the listeners; none is open before Open is called, by the command or by the actor.
func NewListeners(conf Config) *Listeners {
	l := &Listeners{conf: conf, log: cmp.Or(conf.Log, slog.New(slog.DiscardHandler))}
	if l.conf.Runtime == nil {
		l.conf.Runtime = func() api.Runtime { return api.Runtime{} }
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	of := containers.Config{
		Board: conf.Board, Runtime: conf.CRI, PodLogsDir: conf.PodLogsDir, IdleTimeout: conf.StreamIdleTimeout,
		MaxStreams: conf.MaxStreams, WriteTimeout: conf.WriteTimeout, Log: l.log,
	}
	l.ofAdmin = containers.New(of)
	ofNode := of
	ofNode.CountWebSocket = conf.CountWebSocket
	l.ofNode = containers.New(ofNode)
	of.MaxLogs, of.MaxStreams = pageStreams, pageStreams
	l.ofPage = containers.New(of)
	l.health = healthz.New(healthz.Config{
		Context: l.ctx, Board: conf.Board, Runtime: l.conf.Runtime, Observe: conf.Checked, NoPlugins: l.noPlugins,
		Notes: append([]healthz.Note{{Check: "listeners", Says: l.closed}, {Check: "volumes", Says: func() []string {
			return explain.HeldIn(conf.Board.Now())
		}}}, conf.Notes...),
		Tree: func() healthz.Tree { return l.tree() },
	})

	// Another listener is another line here, and a function that makes its endpoint.
	l.ends = []*endpoint{l.adminEndpoint()}
	if conf.HealthzPort != 0 {
		l.ends = append(l.ends, l.healthzEndpoint())
	}
	if conf.CAdvisor != nil {
		l.ends = append(l.ends, l.cadvisorEndpoint())
	}
	if conf.Observatory.Address != "" {
		l.ends = append(l.ends, l.observatoryEndpoint())
	}
	if conf.Devices != nil {
		l.addPlugins(conf.Devices)
	}
	if conf.Node != nil {
		l.addNodeAPI(conf.Node)
	}
	for _, e := range l.ends {
		knowsConns(e.server)
		e.server.ReadHeaderTimeout, e.server.IdleTimeout = headerTimeout, idleTimeout
		e.server.MaxHeaderBytes = cmp.Or(e.server.MaxHeaderBytes, maxHeaderBytes)
		e.server.BaseContext = func(net.Listener) context.Context { return l.ctx }
		e.server.ErrorLog = log.New(serverLog{l.log.With("listener", e.name)}, "", 0)
	}
	return l
}

// serverLog takes what net/http reports. Failed handshakes are any scanner's doing.
type serverLog struct{ log *slog.Logger }

// Write implements io.Writer.
func (s serverLog) Write(p []byte) (int, error) {
	level := slog.LevelWarn
	if bytes.Contains(p, []byte("TLS handshake error")) {
		level = slog.LevelDebug
	}
	s.log.Log(context.Background(), level, strings.TrimSpace(string(p)))
	return len(p), nil
}

func (l *Listeners) adminEndpoint() *endpoint {
	handler := l.timed(observatory.OnSocket(l.adminHandler(l.ofAdmin)))
	door := &socketDoor{path: l.conf.AdminSocket, group: l.conf.AdminSocketGroup}
	return newEndpoint("admin", l.conf.AdminSocket, adminConns, &http.Server{Handler: whileBusy(handler)}, door)
}

// adminHandler answers the admin API, with limits of its own for the listener that it is made for.
func (l *Listeners) adminHandler(streams *containers.Handlers) http.Handler {
	return admin.New(admin.Config{
		Board: l.conf.Board, Events: l.conf.Events, Containers: streams, Healthz: l.health.Handler(true),
		Health: l.health.Explain, Tree: l.tree, Runtime: l.conf.Runtime, Chaos: l.conf.Chaos, Figures: l.conf.Figures,
		History: l.conf.History, Registered: l.conf.Registered, WriteTimeout: l.conf.WriteTimeout,
		Observatory: l.observatory,
		Version: api.Version{
			Version: l.conf.Version, Kubernetes: l.conf.Kubernetes, Go: runtime.Version(),
			Platform: runtime.GOOS + "/" + runtime.GOARCH, PID: os.Getpid(), RootDir: l.conf.RootDir, Since: time.Now(),
		},
	})
}

// observatoryEndpoint is the one of the observatory on a port. What streams sets a deadline for each write, and there is none for
// reading, whose end would end the streams.
func (l *Listeners) observatoryEndpoint() *endpoint {
	o := l.conf.Observatory
	host, _, _ := net.SplitHostPort(o.Address) // one that is wrong cannot be opened, either
	handler := l.timed(observatory.OnPort(observatory.Config{
		API: whileBusy(l.adminHandler(l.ofPage)), Chaos: l.conf.Chaos != nil, Token: o.Token, Host: host,
	}))
	server := &http.Server{Handler: handler, WriteTimeout: answerTimeout}
	return newEndpoint(observatoryName, o.Address, pageConns, server, readyDoor{tcpDoor(o.Address), o.Token.Load})
}

const observatoryName = "observatory"

// observatory says where the observatory is; nil where it is on no port, or not open.
func (l *Listeners) observatory() (*api.Observatory, error) {
	for _, e := range l.ends {
		if e.name == observatoryName {
			at, err := e.address()
			if err != nil {
				return nil, err
			}
			return &api.Observatory{Address: at, TokenFile: l.conf.Observatory.Token.Path()}, nil
		}
	}
	return nil, nil
}

func (l *Listeners) healthzEndpoint() *endpoint {
	where := net.JoinHostPort(l.conf.HealthzAddress, strconv.Itoa(l.conf.HealthzPort))
	server := &http.Server{
		Handler: whileBusy(l.health.Handler(false)), ReadTimeout: probeTimeout, WriteTimeout: probeTimeout,
	}
	return newEndpoint("healthz", where, probeConns, server, tcpDoor(where))
}

func (l *Listeners) cadvisorEndpoint() *endpoint {
	server := &http.Server{
		Handler: newClients().limit(whileBusy(l.conf.CAdvisor), nil), ReadTimeout: probeTimeout, WriteTimeout: answerTimeout,
	}
	return newEndpoint("cadvisor", l.conf.CAdvisorAddress, probeConns, server, tcpDoor(l.conf.CAdvisorAddress))
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

// closed says in sentences what could not be opened.
func (l *Listeners) closed() []string {
	var out []string
	for _, s := range l.State() {
		if s.Error != "" {
			out = append(out, "not listening on "+s.Where+": "+s.Error)
		}
	}
	if d := l.conf.Devices; d != nil && d.Damage() != "" {
		out = append(out, d.Damage())
	}
	return out
}

// streams are how many logs are being read and how many streams are open, of all listeners.
func (l *Listeners) streams() (logs, streams int) {
	for _, h := range []*containers.Handlers{l.ofAdmin, l.ofNode, l.ofPage} {
		moreLogs, more := h.Open()
		logs, streams = logs+moreLogs, streams+more
	}
	return logs, streams
}

// Attach gives the handlers the running tree. Before it, what needs an actor is answered with 503.
func (l *Listeners) Attach(a admin.Tree) { l.asker.Store(&a) }

func (l *Listeners) tree() admin.Tree { return ptr.Deref(l.asker.Load(), nil) }

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
