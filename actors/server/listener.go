package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

var errClosed = errors.New("the server is closed for good")

// opener creates listeners of one kind. An endpoint uses it from one goroutine at a time.
type opener interface {
	// open creates the listener, or returns a readable reason that it cannot.
	open(ctx context.Context) (net.Listener, error)
	// intact reports whether clients can still reach the last listener of open.
	intact() bool
	// close frees the resources of open other than the listener.
	close() error
}

// endpoint serves one handler on one listener. Its http.Server lives as long as the process, so that streams survive a reopened
// listener.
type endpoint struct {
	name, where string
	conns       int // maximum, at the same time
	server      *http.Server
	secure      bool // by TLS, with the server's configuration
	opener      opener
	loops       sync.WaitGroup

	opening sync.Mutex // held while the opener is used; taken before mu

	mu      sync.Mutex
	serving *loop // nil if it is not open
	err     error // the reason that it is not open
	closed  bool
}

// loop is one listener being served.
type loop struct {
	listener net.Listener
	since    time.Time
	ended    chan struct{} // closed when serving ends
}

func newEndpoint(name, where string, conns int, server *http.Server, d opener) *endpoint {
	return &endpoint{name: name, where: where, conns: conns, server: server, opener: d}
}

// ensure opens the endpoint unless it is open. It can be called at any time, and restores a failed loop or a removed socket.
func (e *endpoint) ensure(ctx context.Context) error {
	e.opening.Lock()
	defer e.opening.Unlock()
	old, closed := e.current()
	if closed {
		return errClosed
	}
	if old != nil {
		if old.alive() && e.opener.intact() {
			return nil
		}
		_ = old.listener.Close() // useless in any case
	}
	listener, err := e.opener.open(ctx)

	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.serving, e.err = nil, fmt.Errorf("%s: %w", e.name, err)
		return e.err
	}
	e.serving, e.err = &loop{newConnLimit(listener, e.conns), time.Now(), make(chan struct{})}, nil
	e.loops.Add(1)
	go e.serve(e.serving)
	return nil
}

func (e *endpoint) serve(l *loop) {
	defer e.loops.Done()
	defer close(l.ended)
	serve := e.server.Serve
	if e.secure { // above the limit of connections: handlers see the client's certificate
		serve = func(l net.Listener) error { return e.server.ServeTLS(l, "", "") }
	}
	err := serve(l.listener)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.serving == l && !e.closed {
		e.err = fmt.Errorf("%s: it stopped listening: %w", e.name, err)
	}
}

func (l *loop) alive() bool {
	select {
	case <-l.ended:
		return false
	default:
		return true
	}
}

func (e *endpoint) current() (*loop, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.serving, e.closed
}

func (e *endpoint) state() Listener {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := Listener{Name: e.name, Where: e.where, Open: e.serving != nil && e.serving.alive()}
	switch {
	case out.Open:
		out.Since = e.serving.since
	case e.err != nil:
		out.Error = e.err.Error()
	}
	return out
}

// address returns "host:port" of an open TCP endpoint: the configured host, and the actual port.
func (e *endpoint) address() (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.serving == nil {
		return "", cmp.Or(e.err, errors.New(e.name+": it is not open yet"))
	}
	host, _, _ := net.SplitHostPort(e.where)
	_, port, err := net.SplitHostPort(e.serving.listener.Addr().String())
	return net.JoinHostPort(host, port), err
}

// close ends the endpoint for good: requests may finish until ctx ends, then they are cut.
func (e *endpoint) close(ctx context.Context) error {
	e.opening.Lock()
	defer e.opening.Unlock()
	e.mu.Lock()
	already := e.closed
	e.closed = true
	e.mu.Unlock()
	if already {
		return nil
	}
	// The socket's file is removed first, while the listener still answers: a client finds either the agent or no socket.
	err := e.opener.close()
	if e.server.Shutdown(ctx) != nil {
		err = errors.Join(err, e.server.Close())
	}
	e.loops.Wait()
	return err
}

// tcpOpener opens a TCP address, "host:port".
type tcpOpener string

func (d tcpOpener) open(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", string(d))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is taken by another process: a kubelet, or another playlet", string(d))
	}
	return l, err
}

func (tcpOpener) intact() bool { return true }

func (tcpOpener) close() error { return nil }

// readyOpener opens once a condition is met.
type readyOpener struct {
	opener
	ready func() error
}

func (d readyOpener) open(ctx context.Context) (net.Listener, error) {
	if err := d.ready(); err != nil {
		return nil, err
	}
	return d.opener.open(ctx)
}
