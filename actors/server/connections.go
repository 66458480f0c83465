package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/shares"
)

// connLimit limits the open connections of a listener. A new connection replaces the one that has been idle longest, so that idle
// ones keep no client out; it only waits while each of them has a request.
//
// It also limits the total of data read from connections without a request, e.g. handshakes and headers of unauthenticated
// clients: above headShare per permitted connection, the connection that has sent most is closed. That one has exceeded its
// share, so no connection within its share is closed because of others.
type connLimit struct {
	net.Listener
	limit int

	mu      sync.Mutex
	changed *sync.Cond // there is room, or the listener was closed
	open    int
	idle    []*limitedConn // connections without a request, the oldest first
	heads   int            // bytes received from idle connections
	closed  bool
}

// headShare suffices for a request of the API server or kubectl with its token. Parsed, many small headers take some fifteen
// times as much.
const headShare = 8 << 10

// limitedConn is one connection of a connLimit, whose mutex guards it.
type limitedConn struct {
	net.Conn
	of   *connLimit
	head int // bytes read since its last request, or in all
	busy bool
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
		_ = accepted.Close() // it would not be served
		return nil, net.ErrClosed
	}
	if l.open >= l.limit {
		oldest := l.idle[0]
		l.forget(oldest)
		_ = oldest.Conn.Close() // the server notices by its read
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

// forget removes a connection from the count, once.
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
	c.busy = busy
	l.read(c, -c.head)
	l.idle = slices.DeleteFunc(l.idle, func(other *limitedConn) bool { return other == c })
	if !busy && !c.gone {
		l.idle = append(l.idle, c)
		l.changed.Signal()
	}
}

// read counts data of a connection without a request.
func (l *connLimit) read(c *limitedConn, n int) {
	c.head += n
	l.heads += n
	if n <= 0 || l.heads <= l.limit*headShare {
		return
	}
	most := slices.MaxFunc(l.idle, func(a, b *limitedConn) int { return a.head - b.head })
	l.forget(most)
	_ = most.Conn.Close() // the server notices by its next read
}

// Read implements net.Conn.
func (c *limitedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if !c.busy && !c.gone {
		c.of.read(c, n)
	}
	return n, err
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.of.mu.Lock()
	c.of.forget(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

type connKey struct{}

// knowsConns makes a connection available to a server's handlers through the request's context, and notifies the connection at
// the end of a request.
func knowsConns(s *http.Server) {
	below := func(c net.Conn) net.Conn {
		if secure, ok := c.(*tls.Conn); ok {
			return secure.NetConn()
		}
		return c
	}
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if l, ok := below(c).(*limitedConn); ok {
			if uid, ok := peer(l.Conn); ok {
				ctx = shares.WithClient(ctx, uid)
			}
		}
		return context.WithValue(ctx, connKey{}, below(c))
	}
	s.ConnState = func(c net.Conn, state http.ConnState) {
		if c, ok := below(c).(*limitedConn); ok && state == http.StateIdle {
			c.of.mu.Lock()
			defer c.of.mu.Unlock()
			c.of.read(c, -c.head)
		}
	}
}

// peer returns the user of a process at the other end of a unix socket.
func peer(c net.Conn) (name string, ok bool) {
	socket, ok := c.(*net.UnixConn)
	if !ok {
		return "", false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return "", false
	}
	var credentials *unix.Ucred
	if control := raw.Control(func(fd uintptr) {
		credentials, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); control != nil || err != nil {
		return "", false
	}
	return "user " + strconv.FormatUint(uint64(credentials.Uid), 10), true
}

// whileBusy marks a connection as busy while the handler runs.
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

// timed sets a deadline for the bodies of requests instead of one for all reads: after the body, the server reads to notice a
// client's departure, and a deadline would end a stream.
func (l *Listeners) timed(next http.Handler) http.Handler {
	timeout := cmp.Or(l.conf.WriteTimeout, answerTimeout)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			body := timedBody{r.Body, http.NewResponseController(w)}
			_ = body.control.SetReadDeadline(time.Now().Add(timeout)) // fails if the connection is closed
			r.Body = body
		}
		next.ServeHTTP(w, r)
	})
}

// timedBody clears its deadline once it has ended.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
}

// Read implements io.Reader.
func (b timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
