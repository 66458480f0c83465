package cluster

import (
	"errors"
	"net"
	"sync"
)

// gatedListener takes connections that the proxy can close and stop.
type gatedListener struct {
	net.Listener
	proxy *Proxy
}

func (l *gatedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p := l.proxy
		p.mu.Lock()
		if p.refuse {
			p.mu.Unlock()
			_ = conn.Close() // as requested
			continue
		}
		gated := &gatedConn{Conn: conn, proxy: p, gone: make(chan struct{})}
		p.conns[gated] = true
		p.mu.Unlock()
		return gated, nil
	}
}

type gatedConn struct {
	net.Conn
	proxy *Proxy
	once  sync.Once
	gone  chan struct{}
}

func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.proxy.gate.pass(c.gone) {
		return 0, errors.New("closed while frozen")
	}
	return n, err
}

func (c *gatedConn) Write(b []byte) (int, error) {
	if !c.proxy.gate.pass(c.gone) {
		return 0, errors.New("closed while frozen")
	}
	return c.Conn.Write(b)
}

// Close may be called while the proxy's lock is held.
func (c *gatedConn) Close() error {
	c.once.Do(func() {
		close(c.gone)
		go func() {
			c.proxy.mu.Lock()
			defer c.proxy.mu.Unlock()
			delete(c.proxy.conns, c)
		}()
	})
	return c.Conn.Close()
}

// gate is open or shut.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // closed while the gate is open
}

func newGate() *gate {
	g := &gate{opened: make(chan struct{})}
	close(g.opened)
	return g
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.opened:
		g.opened = make(chan struct{})
	default:
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.opened:
	default:
		close(g.opened)
	}
}

// pass waits until the gate is open; false means that the caller has left before.
func (g *gate) pass(gone <-chan struct{}) bool {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	select {
	case <-opened:
		return true
	case <-gone:
		return false
	}
}
