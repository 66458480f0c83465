package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
)

// connLimit keeps at most so many connections of a listener open. Another one takes the place of that which has been without a
// request for longest, so that idle connections keep nobody out; it waits only while each of them has a request.
type connLimit struct {
	net.Listener
	limit int

	mu      sync.Mutex
	changed *sync.Cond // there is room, or the listener was closed
	open    int
	idle    []*limitedConn // those without a request, the oldest first
	closed  bool
}

// limitedConn is one connection of a connLimit, whose mutex guards it.
type limitedConn struct {
	net.Conn
	of   *connLimit
	gone bool
}

func newConnLimit(l net.Listener, limit int) *connLimit {
	c := &connLimit{Listener: l, limit: limit}
	c.changed = sync.NewCond(&c.mu)
	return c
}

// Accept implements net.Listener.
func (l *connLimit) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.open >= l.limit && len(l.idle) == 0 && !l.closed {
		l.changed.Wait()
	}
	if l.closed {
		_ = accepted.Close() // nobody serves it
		return nil, net.ErrClosed
	}
	if l.open >= l.limit {
		oldest := l.idle[0]
		l.forget(oldest)
		_ = oldest.Conn.Close() // the server, which reads from it, is told by the read
	}
	c := &limitedConn{Conn: accepted, of: l}
	l.open++
	l.idle = append(l.idle, c)
	return c, nil
}

// Close implements net.Listener.
func (l *connLimit) Close() error {
	l.mu.Lock()
	l.closed = true
	l.changed.Broadcast()
	l.mu.Unlock()
	return l.Listener.Close()
}

// forget takes a connection out of the count, once.
func (l *connLimit) forget(c *limitedConn) {
	if c.gone {
		return
	}
	c.gone = true
	l.open--
	l.setBusy(c, true)
	l.changed.Signal()
}

func (l *connLimit) setBusy(c *limitedConn, busy bool) {
	l.idle = slices.DeleteFunc(l.idle, func(other *limitedConn) bool { return other == c })
	if !busy && !c.gone {
		l.idle = append(l.idle, c)
		l.changed.Signal()
	}
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.of.mu.Lock()
	c.of.forget(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

type connKey struct{}

// knowsConns tells a server's handlers, by the request's context, the connection that they answer on.
func knowsConns(s *http.Server) {
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if secure, ok := c.(*tls.Conn); ok {
			c = secure.NetConn()
		}
		return context.WithValue(ctx, connKey{}, c)
	}
}

// whileBusy has a connection counted as busy while the handler answers on it.
func whileBusy(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*limitedConn); ok {
			mark := func(busy bool) {
				c.of.mu.Lock()
				defer c.of.mu.Unlock()
				c.of.setBusy(c, busy)
			}
			mark(true)
			defer mark(false)
		}
		handler.ServeHTTP(w, r)
	})
}
