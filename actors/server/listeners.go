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
	"github.com/playlet-dev/playlet/actors/internal/dra"
	"github.com/playlet-dev/playlet/actors/internal/eventlog"
	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/actors/internal/history"
	"github.com/playlet-dev/playlet/actors/server/admin"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/server/containers"
	"github.com/playlet-dev/playlet/actors/server/healthz"
	"github.com/playlet-dev/playlet/actors/server/observatory"
	"github.com/playlet-dev/playlet/actors/server/podresources"
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

// Config has the listeners' addresses and handlers' dependencies.
type Config struct {
	// AdminSocket is the absolute path of the unix socket; a missing folder is created.
	AdminSocket string
	// AdminSocketGroup is the name or number of a group with access, or "".
	AdminSocketGroup string
	// HealthzAddress and HealthzPort are the address of /healthz; port 0 disables it.
	HealthzAddress string
	HealthzPort    int
	// Board is published by the pods actor.
	Board *board.Board
	// Runtime returns the latest state of the container runtime. It is called from many goroutines and must not block.
	Runtime func() api.Runtime
	// Notes are additional checks of /healthz.
	Notes []healthz.Note
	// Checked receives the result of each check of /healthz; may be nil.
	Checked func(check string, healthy bool)
	// PodLogsDir has the logs of pods; links below it are not followed.
	PodLogsDir string
	// Events has the last events of this node.
	Events *eventlog.Log
	// CRI serves the logs of containers, and streams with them.
	CRI containers.Runtime
	// StreamIdleTimeout ends a stream without traffic; 0 means never. MaxStreams is containers.Config's.
	StreamIdleTimeout time.Duration
	// CountWebSocket is containers.Config's, for the node's API.
	CountWebSocket func(subresource string)
	MaxStreams     int
	// WriteTimeout bounds the writing of one line of a stream, or of one piece of a log, and the reading of a body on the admin
	// socket and the observatory's port; slower clients are disconnected. 0 means half a minute.
	WriteTimeout time.Duration
	// Claims manages ResourceClaims; nil: there are none.
	Claims *dra.Manager
	// Devices manages device plugins; nil disables them and the pod resources API.
	Devices *devices.Manager
	// CPUs are the containers' exclusive ones, for the pod resources API.
	CPUs podresources.CPUs
	// Memory is the containers' memory by NUMA node, for the pod resources API.
	Memory podresources.Memory
	// ListEnded has the pod resources API list ended pods, too [gate KubeletPodResourcesListUseActivePods off].
	ListEnded bool
	// PodsAPI serves the Pods API [gate PodsAPI].
	PodsAPI bool
	// Node is the node's API; nil disables it.
	Node *NodeAPI
	// Figures is admin.Config's.
	Figures func(ctx context.Context, all bool) api.Figures
	// History is admin.Config's.
	History func(uid string) []history.Series
	// Registered is admin.Config's.
	Registered func() api.Registration
	// RootDir is the agent's --root-dir, for display.
	RootDir string
	// Args are the agent's flags, for display.
	Args []string
	// Chaos breaks actors on purpose; nil if it is not enabled.
	Chaos *chaos.Engine
	// CAdvisor serves cAdvisor's pages and API on CAdvisorAddress, "host:port"; nil disables them.
	CAdvisor        http.Handler
	CAdvisorAddress string
	// Observatory is the observatory's port; without an address it is on the admin socket alone.
	Observatory Observatory
	// Version is the agent's own, Kubernetes the tested release.
	Version    string
	Kubernetes string
	Log        *slog.Logger // nil discards
}

// Observatory is the address of the observatory in addition to the admin socket.
type Observatory struct {
	Address string // "host:port"; empty for none
	Token   *observatory.Token
}

// Listeners are the process's open listeners and streams. They are created before the tree and outlive each actor in it. Safe for
// concurrent use.
type Listeners struct {
	conf   Config
	log    *slog.Logger
	ctx    context.Context // ends with Close; parent of each request's context
	cancel context.CancelFunc
	health *healthz.Checks
	ends   []*endpoint
	// Each listener has a separate limit of logs and streams, which reserves capacity for the admin socket: clients of the node's
	// API and of the observatory's port do not keep this node's administrator out.
	ofAdmin, ofNode, ofPage *containers.Handlers

	nodePort int
	asker    atomic.Pointer[admin.Tree]
}

// Listener is the state of one listener.
type Listener struct {
	Name  string    `json:"name"`
	Where string    `json:"where"`
	Open  bool      `json:"open"`
	Error string    `json:"error,omitempty"` // the reason that it is not open, after an attempt
	Since time.Time `json:"since,omitzero"`  // when it was opened
}

const (
	headerTimeout   = 5 * time.Second
	idleTimeout     = time.Minute
	maxHeaderBytes  = 16 << 10         // except for port 10250
	adminConns      = 2048             // more than the logs, streams and watches of the socket
	pageConns       = 512              // likewise, of the observatory's port
	probeTimeout    = 10 * time.Second // for a whole request to /healthz, and its answer
	answerTimeout   = 30 * time.Second // for a request to cAdvisor's port, and for the client to take the answer
	probeConns      = 64
	shutdownTimeout = 2 * time.Second
	pageStreams     = 128 // logs, and as many streams, on the observatory's port
)

// NewListeners prepares the listeners; none is open before the command or the actor calls Open.
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

	// Another listener is another line here, and a function that returns its endpoint.
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
	if conf.PodsAPI {
		l.addPodsAPI()
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

// serverLog logs the reports of net/http. Failed handshakes are logged as debug, since any scanner causes them.
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
	opener := &socketOpener{path: l.conf.AdminSocket, group: l.conf.AdminSocketGroup}
	return newEndpoint("admin", l.conf.AdminSocket, adminConns, &http.Server{Handler: whileBusy(handler)}, opener)
}

// adminHandler returns the admin API, with separate limits for its listener.
func (l *Listeners) adminHandler(streams *containers.Handlers) http.Handler {
	var exclusive func(uid, container string) []int64
	if l.conf.CPUs != nil {
		exclusive = l.conf.CPUs.Exclusive
	}
	return admin.New(admin.Config{
		Board: l.conf.Board, Events: l.conf.Events, Containers: streams, Healthz: l.health.Handler(true),
		Health: l.health.Explain, Tree: l.tree, Runtime: l.conf.Runtime, Chaos: l.conf.Chaos, Figures: l.conf.Figures,
		History: l.conf.History, Registered: l.conf.Registered, WriteTimeout: l.conf.WriteTimeout,
		Observatory: l.observatory, ExclusiveCPUs: exclusive,
		Version: api.Version{
			Version: l.conf.Version, Kubernetes: l.conf.Kubernetes, Go: runtime.Version(),
			Platform: runtime.GOOS + "/" + runtime.GOARCH, PID: os.Getpid(), RootDir: l.conf.RootDir, Args: l.conf.Args,
			Since: time.Now(),
		},
	})
}

// observatoryEndpoint returns the observatory's endpoint on a port. Streams set a deadline for each write, and none for reading,
// which would end them.
func (l *Listeners) observatoryEndpoint() *endpoint {
	o := l.conf.Observatory
	host, _, _ := net.SplitHostPort(o.Address) // an invalid one cannot be opened either
	handler := l.timed(observatory.OnPort(observatory.Config{
		API: whileBusy(l.adminHandler(l.ofPage)), Chaos: l.conf.Chaos != nil, Token: o.Token, Host: host,
	}))
	server := &http.Server{Handler: handler, WriteTimeout: answerTimeout}
	return newEndpoint(observatoryName, o.Address, pageConns, server, readyOpener{tcpOpener(o.Address), o.Token.Load})
}

const observatoryName = "observatory"

// observatory returns the observatory's address, or nil if it has no port or is not open.
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
	return newEndpoint("healthz", where, probeConns, server, tcpOpener(where))
}

func (l *Listeners) cadvisorEndpoint() *endpoint {
	server := &http.Server{
		Handler: newClients().limit(whileBusy(l.conf.CAdvisor), nil), ReadTimeout: probeTimeout, WriteTimeout: answerTimeout,
	}
	return newEndpoint("cadvisor", l.conf.CAdvisorAddress, probeConns, server, tcpOpener(l.conf.CAdvisorAddress))
}

// Open opens the closed listeners, and returns the failures. A command calls it before it starts anything else, and exits if the
// error is ErrInUse: another agent runs. It may be called again.
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

// State returns the state of each listener, at one time.
func (l *Listeners) State() []Listener {
	out := make([]Listener, 0, len(l.ends))
	for _, e := range l.ends {
		out = append(out, e.state())
	}
	return out
}

// closed describes in sentences the listeners that could not be opened.
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
	if c := l.conf.Claims; c != nil && c.Damage() != "" {
		out = append(out, c.Damage())
	}
	return out
}

// streams returns the number of logs being read and of open streams, of all listeners.
func (l *Listeners) streams() (logs, streams int) {
	for _, h := range []*containers.Handlers{l.ofAdmin, l.ofNode, l.ofPage} {
		moreLogs, more := h.Open()
		logs, streams = logs+moreLogs, streams+more
	}
	return logs, streams
}

// Attach connects the handlers with the running tree. Before, requests that need an actor are answered with 503.
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
