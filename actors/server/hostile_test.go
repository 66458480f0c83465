package server

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// heap is what the process has in use of its heap and its stacks, in MiB.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc+m.StackInuse) / (1 << 20)
}

// Ten thousand clients that connect and say nothing, begin a request and do not end it, or stay after one, keep nobody out, and are
// never more than the limit. What they cost is printed; clients and server are one process here.
func TestTenThousandIdleConnections(t *testing.T) {
	const many, limit, mib = 10_000, 256, 48
	r, _, readOnly := nodeRig(t, nil)
	end := r.listeners.ends[2]
	within(t, end, limit)
	before := heap()
	var dialer net.Dialer
	conns := make([]net.Conn, 0, limit)
	defer func() {
		for _, c := range conns {
			_ = c.Close() // whoever ended it
		}
	}()
	for i := range many {
		conn, err := dialer.DialContext(t.Context(), "tcp", readOnly)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		words := []string{"", "GET /pods HTT", "GET /healthz HTTP/1.1\r\nHost: n\r\nX-Long: " + strings.Repeat("x", 4<<10)}[i%3]
		if _, err := io.WriteString(conn, words); err != nil {
			t.Logf("connection %d: %v", i, err) // it was ended already
		}
		if conns = append(conns, conn); len(conns) > 2*limit { // this side keeps more than the other may
			_ = conns[0].Close()
			conns = conns[1:]
		}
	}
	if code, text := public(t, "http://"+readOnly+"/pods"); code != http.StatusOK {
		t.Errorf("%d %s", code, text)
	}
	l := end.serving.listener.(*connLimit)
	l.mu.Lock()
	open := l.open
	l.mu.Unlock()
	after := heap()
	t.Logf("%d connections, of which %d are open: %.1f MiB before, %.1f MiB after", many, open, before, after)
	if open > limit || after-before > mib {
		t.Errorf("%d connections are open, and take %.1f MiB", open, after-before)
	}
}

// within has an endpoint opened anew with another limit of connections, on the address that it has.
func within(t *testing.T, e *endpoint, conns int) {
	t.Helper()
	old, _ := e.current()
	e.conns, e.door = conns, tcpDoor(old.listener.Addr().String())
	if err := old.listener.Close(); err != nil {
		t.Fatal(err)
	}
	<-old.ended
	if err := e.ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A header without end is refused before it is held.
func TestOversizedHeaders(t *testing.T) {
	_, secure, readOnly := nodeRig(t, nil)
	for name, of := range map[string]struct {
		dial  func(context.Context) (net.Conn, error)
		bytes int
	}{
		"10255": {func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", readOnly) }, maxHeaderBytes},
		"10250": {func(ctx context.Context) (net.Conn, error) {
			d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
			return d.DialContext(ctx, "tcp", secure)
		}, maxNodeHeaderBytes},
	} {
		conn, err := of.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(waitLimit)); err != nil {
			t.Fatal(err)
		}
		go func() { // until the server has enough
			_, _ = io.WriteString(conn, "GET /pods HTTP/1.1\r\nHost: n\r\nX-Long: "+strings.Repeat("x", 2*of.bytes))
		}()
		answer := make([]byte, len("HTTP/1.1 431"))
		if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "HTTP/1.1 431" {
			t.Errorf("%s: %q, %v", name, answer, err)
		}
		_ = conn.Close() // the server may have ended it
	}
}
